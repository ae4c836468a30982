"""
Files by their name in an open directory, so that nothing can be swapped in between a check and a use.

Where the system opens relative to a descriptor, the directory is one. Where it does not (Windows), the directory is pinned:
nobody can rename or replace it while it is open, so that a path through it stays what it is.
"""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    from tenure._store._pinned import (
        Directory,
        close_directory,
        exact_mode,
        is_proof,
        link,
        make_directory,
        open_directory,
        open_file,
        place_new,
        rename,
        rename_noreplace,
        scan,
        status,
        sync_directory,
        sync_directory_for_reading,
        unlink,
    )

    SYNCS_DIRECTORIES = False
    # What is to be synced must be open for writing.
    TO_SYNC = os.O_RDWR
else:
    import stat
    from collections.abc import Iterator, Sequence
    from contextlib import suppress
    from typing import TypeAlias

    from tenure._core import filesystem_type
    from tenure._core import place_new as _place_new
    from tenure._core import rename_noreplace as _rename_noreplace
    from tenure._descriptors import CAREFULLY
    from tenure._store import _kernel

    Directory: TypeAlias = int

    SYNCS_DIRECTORIES = True
    TO_SYNC = os.O_RDONLY

    _DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

    def open_directory(name: str, within: Directory | None = None) -> Directory:
        """The directory *name* of another, unless it is a link; without one, the directory at that path, link or not."""
        return os.open(name, _DIRECTORY | (0 if within is None else os.O_NOFOLLOW), dir_fd=within)

    def close_directory(directory: Directory) -> None:
        _kernel.close(directory)

    def sync_directory(directory: Directory) -> None:
        """Make the names in it durable, where the file system has such an operation."""
        _kernel.sync_directory(directory)

    def sync_directory_for_reading(directory: Directory) -> None:
        _kernel.sync_for_reading(directory)

    def make_directory(directory: Directory, name: str, mode: int) -> None:
        os.mkdir(name, mode, dir_fd=directory)

    def open_file(directory: Directory, name: str, flags: int, mode: int = 0) -> int:
        return os.open(name, flags | CAREFULLY, mode, dir_fd=directory)

    def status(directory: Directory, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)

    def link(directory: Directory, source: str, target: str) -> None:
        os.link(source, target, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)

    def rename(directory: Directory, source: str, target: str) -> None:
        os.rename(source, target, src_dir_fd=directory, dst_dir_fd=directory)

    def rename_noreplace(directory: Directory, source: str, target: str) -> None:
        _rename_noreplace(source, target, dir_fd=directory)

    def place_new(
        directory: Directory, files: Sequence[tuple[str, bytes]], *, beside: Directory, temporary: str
    ) -> list[tuple[int, int] | None]:
        """Many new files in one call; see `_core.place_new`. Raises OSError, also where that is not possible."""
        return _place_new(files, temporary=temporary, src_dir_fd=beside, dst_dir_fd=directory)

    def unlink(directory: Directory, name: str) -> None:
        os.unlink(name, dir_fd=directory)

    def scan(directory: Directory) -> Iterator[os.DirEntry[str]]:
        with os.scandir(directory) as entries:
            yield from entries

    def is_proof(directory: Directory) -> bool:
        """Whether a lock in it says the truth: this machine's kernel alone manages them. Raises OSError."""
        return filesystem_type(directory) is not None

    def exact_mode(fd: int, mode: int) -> None:
        """
        Give *fd* exactly *mode*, whatever the umask took away; a set-group-id bit inherited from the parent stays.

        The default modes pass any sane umask and cost nothing here; a store shared by a group needs what it asked for.
        """
        current = stat.S_IMODE(os.fstat(fd).st_mode)
        if current & 0o7777 & ~stat.S_ISGID != mode & ~stat.S_ISGID:
            # Refused by file systems that keep no modes, and for a directory that another user made just now.
            with suppress(OSError):
                os.fchmod(fd, mode | (current & stat.S_ISGID))


__all__ = [
    "SYNCS_DIRECTORIES",
    "TO_SYNC",
    "Directory",
    "close_directory",
    "exact_mode",
    "is_proof",
    "link",
    "make_directory",
    "open_directory",
    "open_file",
    "place_new",
    "rename",
    "rename_noreplace",
    "scan",
    "status",
    "sync_directory",
    "sync_directory_for_reading",
    "unlink",
]
