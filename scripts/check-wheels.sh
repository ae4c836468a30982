#!/usr/bin/env bash
# Looks into every wheel and sdist of DIRECTORY: size, contents, metadata, and whether abi3 wheels keep to it.
#
#   check-wheels.sh DIRECTORY        needs the group `release` of pyproject.toml on PATH
set -euo pipefail

# Twice what one has now: a dependency that nobody wanted would show.
readonly MAX_BYTES=1000000

cd "$1"
for file in *.whl; do
    size=$(wc -c <"$file")
    printf '%s  %s bytes\n' "$file" "$size"
    [ "$size" -le "$MAX_BYTES" ] || { echo "more than $MAX_BYTES bytes" >&2; exit 1; }
done
twine check --strict tenure-*
check-wheel-contents ./*.whl
# Of free-threaded wheels it knows nothing yet.
for file in *-abi3-*.whl; do abi3audit --strict "$file"; done
