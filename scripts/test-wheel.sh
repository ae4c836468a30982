#!/usr/bin/env bash
# Installs a wheel into a fresh environment of each CPython at hand, from 3.10 on, and runs the tests against it.
#
#   test-wheel.sh WHEEL [PYTHON ...]     default: python3.10 to python3.14, on PATH or among pyenv's and uv's
#
# TESTS says what to run, with any other arguments of pytest. A version that is not at hand is named and counted; none at
# hand is a failure. Start it from the repository root.
set -euo pipefail

wheel=$(realpath "$1")
shift
readonly TESTS=${TESTS:-tests -n 2}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0 absent=0

# The interpreter of version $1, by its own word. Version managers leave names on PATH that only print an error.
find_python() {
    local candidate
    for candidate in "python$1" "$HOME"/.pyenv/versions/"$1".*/bin/python "$HOME"/.local/share/uv/python/cpython-"$1".*/bin/python; do
        if "$candidate" -c "import sys; sys.exit(sys.version_info[:2] != tuple(map(int, '$1'.split('.'))))" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

try() {
    local python=$1 venv=$scratch/$2
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet 'pip>=25.1'
    "$venv/bin/python" -m pip install --quiet "$wheel"
    "$venv/bin/python" -m pip install --quiet --group test
    "$venv/bin/python" -c 'import sys, tenure; assert tenure.__file__.startswith(sys.prefix), tenure.__file__'
    # shellcheck disable=SC2086  # several words
    "$venv/bin/python" -m pytest -q -p no:cacheprovider $TESTS
}

if [ $# -eq 0 ]; then
    for version in 3.10 3.11 3.12 3.13 3.14; do
        if python=$(find_python "$version"); then
            set -- "$@" "$python"
        else
            echo "== wheel: no CPython $version at hand"
            absent=$((absent + 1))
        fi
    done
fi
for python; do
    echo "== wheel on $("$python" --version)"
    if try "$python" "$((passed + failed))"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "pythons: $passed passed, $failed failed, $absent skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
