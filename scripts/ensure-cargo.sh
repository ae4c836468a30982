#!/bin/sh
# Sees to it that there is a Rust compiler as new as Cargo.toml asks for, and the components named as arguments.
#
# A missing one is installed by the system's package manager where that may be done without asking. No toolchain is
# downloaded past the package manager: whoever wants rustup has it, and it then comes first on PATH.
set -eu

need=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)

# Is version $1 at least $2? Major and minor decide.
at_least() {
    major=${1%%.*}
    rest=${1#*.}
    minor=${rest%%.*}
    need_rest=${2#*.}
    [ "$major" -gt "${2%%.*}" ] || { [ "$major" -eq "${2%%.*}" ] && [ "$minor" -ge "${need_rest%%.*}" ]; }
}

# The version of a Rust program, or nothing. A rustup proxy without its toolchain or component prints an error only.
version_of() {
    "$@" --version 2>/dev/null | sed -n '1s/^[a-z]* \([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p'
}

cargo_is_fine() {
    for program in cargo rustc; do
        found=$(version_of "$program")
        [ -n "$found" ] && at_least "$found" "$need" || return 1
    done
}

has_component() {
    case $1 in
    clippy) cargo clippy --version >/dev/null 2>&1 ;;
    # rustfmt counts on its own; one that knows the edition is needed.
    rustfmt) printf 'fn main() {}\n' | rustfmt --edition 2024 >/dev/null 2>&1 ;;
    esac
}

# The version that apt would install, or nothing.
apt_offers() {
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *\([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p'
}

# Debian's `-web` packages are the same compiler, kept new because the browsers need it.
apt_packages() {
    for suffix in '' -web; do
        offered=$(apt_offers "cargo$suffix")
        if [ -n "$offered" ] && at_least "$offered" "$need"; then
            echo "cargo$suffix rustc$suffix gcc libc6-dev"
            return
        fi
    done
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

install_cargo() {
    if command -v brew >/dev/null 2>&1; then
        brew install --quiet rust # brew refuses root and needs no such right
    elif [ "$(id -u)" != 0 ]; then
        return 0
    elif command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq
        # shellcheck disable=SC2046  # several names
        apt_install $(apt_packages)
    elif command -v dnf >/dev/null 2>&1; then
        dnf install -q -y cargo rust gcc
    elif command -v apk >/dev/null 2>&1; then
        apk add --quiet cargo rust gcc musl-dev
    elif command -v pacman >/dev/null 2>&1; then
        pacman -Sy --noconfirm --needed --quiet rust gcc
    fi
}

install_component() {
    if command -v rustup >/dev/null 2>&1; then
        rustup --quiet component add "$1"
    elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        case $1 in
        clippy) package=rust-web-clippy ;;
        rustfmt) package=rustfmt ;;
        esac
        apt_install "$package"
    fi
}

if ! cargo_is_fine; then
    echo "no Rust $need or newer found; the system's package manager may have one"
    # Its failure is told by what is still missing.
    install_cargo || true
    hash -r
fi

if ! cargo_is_fine; then
    if command -v rustup >/dev/null 2>&1; then
        hint="rustup toolchain install stable"
    elif command -v apt-get >/dev/null 2>&1 && [ -n "$(apt_packages)" ]; then
        hint="as root: apt-get install $(apt_packages)"
    else
        hint="https://www.rust-lang.org/tools/install"
    fi
    printf 'tenure needs Rust %s or newer.\nhint: %s\n' "$need" "$hint" >&2
    exit 1
fi

for component; do
    has_component "$component" || install_component "$component" || true
    if ! has_component "$component"; then
        echo "$component is missing, or too old for this code. hint: rustup component add $component" >&2
        exit 1
    fi
done
