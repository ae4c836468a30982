"""
Files by path, below a directory that is pinned: what Windows has in place of directory descriptors.

Modes mean nothing here, since a file has the rights that its directory gives. Names are not synced: a rename returns once
it is on the disk, and a name that came about otherwise is not relied on after a power cut.
"""

from __future__ import annotations

import sys

assert sys.platform == "win32"

# Below the assertion, so that mypy leaves them out where it holds for nobody.
import errno  # noqa: E402
import os  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from typing import TypeAlias  # noqa: E402

from tenure import _descriptors  # noqa: E402
from tenure._core import PinnedDirectory, filesystem_type, rename_over  # noqa: E402
from tenure._core import rename_noreplace as _rename_noreplace  # noqa: E402
from tenure._store._kernel import patience  # noqa: E402

Directory: TypeAlias = PinnedDirectory

# Source: winerror.h. Somebody has it open and lets nobody remove it; or it is being removed already.
_SHARING_VIOLATION, _ACCESS_DENIED, _STOPPED_ON_SYMLINK = 32, 5, 681
_PATIENCE_S = 0.5


def _verbatim(path: str) -> str:
    """So that each of our names is one: otherwise `nul` is a device, `a.` is `a`, and a long path is none. Source: NamingAFile."""
    if path.startswith("\\\\?\\"):
        return path
    return "\\\\?\\UNC" + path[1:] if path.startswith("\\\\") else "\\\\?\\" + path


def _below(directory: Directory, name: str) -> str:
    return os.path.join(directory.path, name)


def open_directory(name: str, within: Directory | None = None) -> Directory:
    """The directory *name* of another, unless it is a link; without one, the directory at that path, link or not."""
    path = _verbatim(os.path.realpath(name)) if within is None else _below(within, name)
    try:
        return PinnedDirectory(path)
    except OSError as exc:
        if exc.winerror == _STOPPED_ON_SYMLINK:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from exc
        raise


def close_directory(directory: Directory) -> None:
    directory.close()


def sync_directory(directory: Directory) -> None:
    """See above."""


def sync_directory_for_reading(directory: Directory) -> None:
    """See above."""


def make_directory(directory: Directory, name: str, mode: int) -> None:
    os.mkdir(_below(directory, name), mode)  # noqa: PTH102  paths are text here


def open_file(directory: Directory, name: str, flags: int, mode: int = 0) -> int:
    return _descriptors.open_file(_below(directory, name), flags, mode)


def status(directory: Directory, name: str) -> os.stat_result:
    return os.lstat(_below(directory, name))


def link(directory: Directory, source: str, target: str) -> None:
    os.link(_below(directory, source), _below(directory, target))


def rename(directory: Directory, source: str, target: str) -> None:
    rename_over(_below(directory, source), _below(directory, target))


def rename_noreplace(directory: Directory, source: str, target: str) -> None:
    _rename_noreplace(_below(directory, source), _below(directory, target))


def place_new(directory: object, files: Sequence[tuple[str, bytes]], **_beside: object) -> list[tuple[int, int] | None]:
    """Not in one call here: always ENOSYS."""
    raise OSError(errno.ENOSYS, "there is no such call", f"{directory}, {len(files)} files")


def unlink(directory: Directory, name: str) -> None:
    _patiently(lambda: os.unlink(_below(directory, name)))  # noqa: PTH108  likewise


def _patiently(call: Callable[[], None]) -> None:
    """Again and again while somebody else's open file forbids it: scanners come to every new file."""
    refusal: OSError | None = None
    for _ in patience(_PATIENCE_S):
        try:
            return call()
        except PermissionError as exc:
            if exc.winerror not in (_SHARING_VIOLATION, _ACCESS_DENIED):
                raise
            refusal = exc
    if refusal is not None:
        raise refusal
    return None


def scan(directory: Directory) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory.path) as entries:
        yield from entries


def is_proof(directory: Directory) -> bool:
    """Whether a lock in it says the truth: this machine's kernel alone manages them. Raises OSError."""
    return filesystem_type(directory.handle) is not None


def exact_mode(fd: int | Directory, mode: int) -> None:
    """See above."""
