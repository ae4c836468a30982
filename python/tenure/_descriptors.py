"""
Open files, as Python calls them and as the core does.

A descriptor is the kernel's own number on most systems. On Windows it means something to Python's C library alone; the
kernel has handles, and whoever opens a file decides whether others may rename or remove it meanwhile, which Python's own
`open` forbids them.
"""

from __future__ import annotations

import os
import sys

# Neither through a planted link nor waiting for a planted pipe; not inherited, and never with other line ends. Each is 0
# where a system has no such flag.
CAREFULLY = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_NOINHERIT", 0)
    | getattr(os, "O_BINARY", 0)
)

if sys.platform == "win32":
    import errno
    import msvcrt

    from tenure._core import open_shared

    # Source: winerror.h, ERROR_STOPPED_ON_SYMLINK.
    _STOPPED_ON_SYMLINK = 681

    def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:  # noqa: ARG001
        """
        `os.open`, without following a link at the end of *path*.

        Others may rename and remove the file meanwhile. The mode has no meaning here: a file has the rights that its
        directory gives.
        """
        try:
            handle = open_shared(
                path,
                write=bool(flags & (os.O_WRONLY | os.O_RDWR)),
                create=bool(flags & os.O_CREAT and not flags & os.O_EXCL),
                create_new=bool(flags & os.O_EXCL),
                truncate=bool(flags & os.O_TRUNC),
            )
        except OSError as exc:
            if exc.winerror == _STOPPED_ON_SYMLINK:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path)) from exc
            if isinstance(exc, PermissionError) and os.path.isdir(path):  # noqa: PTH112  see PTH116
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path)) from exc
            raise
        return msvcrt.open_osfhandle(handle, os.O_NOINHERIT | os.O_BINARY)

    def handle_of(fd: int) -> int:
        """What the core calls the open file *fd*. Raises OSError if it is not open."""
        return msvcrt.get_osfhandle(fd)

else:

    def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
        """`os.open`, without following a link at the end of *path*."""
        return os.open(path, flags | CAREFULLY, mode)

    def handle_of(fd: int) -> int:
        """What the core calls the open file *fd*."""
        return fd
