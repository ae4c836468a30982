#!/usr/bin/env bash
# Checks the core for systems that this machine is not, as far as each lets itself be checked from Linux on x86_64.
#
#   cross-check.sh [STEP ...]        default: every step
#
#   layouts   what we believe of macOS's structs, held against Apple's own headers            proved
#   darwin    clippy for macOS, both architectures; a test program linked                      checked, linked
#   windows   clippy for Windows MSVC, both architectures                                      checked
#   wine      the core's tests for Windows, under wine                                         run
#   wheel     the Windows wheel and the Python tests in Windows CPythons under wine            run
#   aarch64   the core's tests on 64-bit Arm Linux, under qemu                                 run
#   musl      the core's tests on musl                                                         run
#   bsd       clippy for FreeBSD, which nobody has taught the core                             checked
#
# Start it from the repository root, with .venv made. A step that lacks something, and may not install it, is skipped by
# name; the last line counts, and says how long each took. docs/support.md says what follows for users.
set -uo pipefail

readonly STEPS=(layouts darwin windows wine wheel aarch64 musl bsd)
readonly SYSTEM_CARGO=/usr/bin/cargo
passed=0 failed=0 skipped=0 took=()

say() { printf '== cross %s\n' "$*"; }

apt_missing() {
    local package missing=()
    for package; do
        dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    printf '%s\n' "${missing[@]:-}"
}

# Installs Debian packages where that may be done without asking; false if some are missing after that.
need() {
    command -v apt-get >/dev/null || return 1
    local missing
    mapfile -t missing < <(apt_missing "$@")
    [ -n "${missing[0]}" ] || return 0
    [ "$(id -u)" = 0 ] || return 1
    apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" >/dev/null
}

# Debian's compiler, because it alone has the source of its standard library beside it.
need_rust() { need rustc-web cargo-web rust-web-src rust-web-clippy gcc libc6-dev; }

need_zig() { .venv/bin/python -m ziglang version >/dev/null 2>&1 || .venv/bin/python -m pip install --quiet --group cross; }

# RUSTC_BOOTSTRAP lets a stable compiler build the standard library: for these checks, and no others.
in_cross() {
    env RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/cross" PYO3_NO_PYTHON=1 "$@"
}

# cargo, clippy and rustc must be of one version, so the system's come first.
lint() {
    in_cross env "PATH=/usr/bin:$PATH" "$SYSTEM_CARGO" clippy --quiet -Zbuild-std --target "$1" --workspace --lib --tests \
        --exclude tenure-bindings -- -D warnings &&
        in_cross env "PATH=/usr/bin:$PATH" "$SYSTEM_CARGO" clippy --quiet -Zbuild-std --target "$1" -p tenure-bindings --lib -- -D warnings
}

# Without what a debugger reads, since nobody debugs these: of the standard library that is most of what is written.
# Not stripped of it either, which would need a tool of the other system.
build() {
    in_cross env CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_STRIP=false RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc "PATH=$PWD/.venv/bin:$PATH" "$@"
}

readonly WINDOWS=x86_64-pc-windows-gnu
# One for every change; `make cross WINDOWS_PYTHONS="3.10 3.11 3.12 3.13"` for all.
readonly WINDOWS_PYTHONS="${WINDOWS_PYTHONS:-3.11}"
read -ra WINDOWS_TESTS <<<"${WINDOWS_TESTS:-tests/lease/test_everywhere.py tests/judgement tests/identity tests/pidfile \
tests/store/test_contract.py tests/store/test_open_store.py tests/store/test_memory.py tests/test_errors.py}"

need_wine() { need gcc-mingw-w64-x86-64-win32 wine64 wine; }

export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc
readonly CORE=(-p tenure-identity -p tenure-hold --lib --tests)

step_layouts() {
    need_zig || return 77
    local target object
    object=$(mktemp)
    for target in aarch64-macos x86_64-macos; do
        .venv/bin/python -m ziglang cc -target "$target" -c rust/identity/src/sys/macos/layout.c -o "$object" || return 1
    done
    rm "$object"
}

step_darwin() {
    need_rust && need_zig || return 77
    lint aarch64-apple-darwin && lint x86_64-apple-darwin || return 1
    # Linked, a test program proves that each function it calls is in macOS's library. A wheel would not: it may have
    # undefined symbols.
    build cargo-zigbuild test --quiet --no-run -Zbuild-std --target aarch64-apple-darwin "${CORE[@]}"
}

step_windows() {
    need_rust || return 77
    lint x86_64-pc-windows-msvc && lint aarch64-pc-windows-msvc
}

step_wine() {
    need_rust && need_wine || return 77
    # shellcheck source=scripts/wine.sh
    source scripts/wine.sh
    trap wine_down EXIT
    wine_up || return 77
    local program programs
    programs=$(build cargo test --quiet --no-run -Zbuild-std --target "$WINDOWS" --message-format=json "${CORE[@]}" |
        .venv/bin/python -c 'import json, sys
for line in sys.stdin:
    built = json.loads(line)
    if built.get("executable") and built["profile"]["test"]:
        print(built["executable"])') || return 1
    for program in $programs; do in_wine 300 "$program" --test-threads=2 || return 1; done
}

# The wheel of the GNU target, since that of MSVC needs Microsoft's libraries to be linked: for tests, and never published.
step_wheel() {
    need_rust && need_wine && need osslsigncode || return 77
    source scripts/wine.sh
    trap wine_down EXIT
    wine_up || return 77
    rm -rf "$WINE_HOME/dist" "$WINE_HOME/tree"
    build .venv/bin/maturin build --quiet --locked -Z build-std --target "$WINDOWS" --out "$WINE_HOME/dist" || return 1
    # As a checkout with the wheel in it: tests read the sources, and the documents.
    mkdir -p "$WINE_HOME/tree" && git archive HEAD | tar -x -C "$WINE_HOME/tree" || return 1
    .venv/bin/python -m zipfile -e "$WINE_HOME"/dist/tenure-*-win_amd64.whl "$WINE_HOME/tree" || return 1
    local version python status=0
    for version in $WINDOWS_PYTHONS; do
        python=$(windows_python "$version") || return 77
        say "Windows CPython $version under wine"
        # A crash of another's thread would be told by faulthandler and is wine's own business; what ends a test is not.
        (cd "$WINE_HOME/tree" && in_wine 900 "$python/python.exe" -m pytest -q -p no:cacheprovider -p no:faulthandler \
            --capture=sys --timeout=240 "${WINDOWS_TESTS[@]}") || status=1
    done
    return "$status"
}

step_aarch64() {
    need_rust && need gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static || return 77
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
    build cargo test --quiet -Zbuild-std --target aarch64-unknown-linux-gnu "${CORE[@]}"
}

step_musl() {
    need_rust && need_zig || return 77
    # Debian's standard library lacks musl's start-up files; zig brings them.
    export CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS=-Clink-self-contained=no
    build cargo-zigbuild test --quiet -Zbuild-std --target x86_64-unknown-linux-musl "${CORE[@]}"
}

step_bsd() {
    need_rust || return 77
    lint x86_64-unknown-freebsd
}

run() {
    local step=$1 status=0 start=$SECONDS
    say "$step (${start}s)"
    ("step_$step") || status=$?
    took+=("$step $((SECONDS - start))s")
    case $status in
    0) passed=$((passed + 1)) ;;
    77)
        skipped=$((skipped + 1))
        say "$step: NOT RUN, something it needs is missing and could not be installed"
        ;;
    *)
        failed=$((failed + 1))
        say "$step: FAILED"
        ;;
    esac
}

[ $# -gt 0 ] || set -- "${STEPS[@]}"
for step; do
    if ! declare -F "step_$step" >/dev/null; then
        echo "no such step: $step. There are: ${STEPS[*]}" >&2
        exit 2
    fi
done
for step; do run "$step"; done
printf -v seconds ', %s' "${took[@]}"
echo "cross: $passed passed, $failed failed, $skipped skipped: ${seconds:2}"
[ "$failed" = 0 ]
