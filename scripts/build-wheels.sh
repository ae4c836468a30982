#!/usr/bin/env bash
# Builds the wheels that a Linux machine on x86_64 can build, and the sdist, into dist/release, and checks each.
#
#   build-wheels.sh [TARGET ...]     default: every target, and sdist
#
#   x86_64-unknown-linux-gnu    manylinux2014     x86_64-unknown-linux-musl     musllinux_1_2
#   aarch64-unknown-linux-gnu   manylinux2014     aarch64-unknown-linux-musl    musllinux_1_2
#   sdist                       built again from itself, with nothing else at hand
#
# For each target one wheel for every CPython from 3.10 on (abi3) and one for the free-threaded 3.14, which cannot load the
# first. What is published comes from .github/workflows/release.yml, where each system builds its own; this shows beforehand
# that it can. Needs .venv; for all but the first target, Debian's rustc-web, cargo-web and rust-web-src.
set -euo pipefail

readonly OUT=dist/release
readonly BIN=$PWD/.venv/bin

export PATH="$BIN:$HOME/.cargo/bin:$PATH"
# An interpreter that is only built for is not here to be asked.
unset PYO3_PYTHON

wheel() {
    local target=$1 policy=$2 interpreter
    shift 2
    for interpreter in python3.11 python3.14t; do
        # One call for each: in one call together maturin gives each interpreter a wheel of its own.
        "$@" maturin build --quiet --release --locked --zig --compatibility "$policy" --target "$target" \
            --interpreter "$interpreter" --out "$OUT"
    done
}

# The standard library comes with the compiler for the first target alone; for others it is built (see cross-check.sh).
with_std() {
    env RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1 CARGO_UNSTABLE_BUILD_STD=std,panic_abort \
        CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/cross" "$@"
}

build() {
    case $1 in
    x86_64-unknown-linux-gnu) wheel "$1" manylinux2014 env ;;
    aarch64-unknown-linux-gnu) wheel "$1" manylinux2014 with_std ;;
    *-unknown-linux-musl) wheel "$1" musllinux_1_2 with_std env RUSTFLAGS='-Clink-self-contained=no -Ctarget-feature=-crt-static' ;;
    sdist) sdist ;;
    *)
        echo "no such target: $1" >&2
        exit 2
        ;;
    esac
}

sdist() {
    # From what is committed: outside of a checkout maturin would pack whatever lies about.
    local scratch
    scratch=$(mktemp -d)
    git archive --format=tar HEAD | tar -x -C "$scratch"
    maturin sdist --manifest-path "$scratch/rust/bindings/Cargo.toml" --out "$OUT" >/dev/null
    rm -rf "$scratch"
    # As pip does it for somebody whose system no wheel is for.
    pip wheel --quiet --no-deps --no-cache-dir --wheel-dir "$OUT/from-sdist" "$OUT"/tenure-*.tar.gz
}

pip install --quiet --group cross --group release
rm -rf "$OUT"
[ $# -gt 0 ] || set -- {x86_64,aarch64}-unknown-linux-{gnu,musl} sdist
for target; do
    printf '== wheels %s (%ss)\n' "$target" "$SECONDS"
    build "$target"
done
scripts/check-wheels.sh "$OUT"
