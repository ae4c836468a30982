"""Locks and syncs: the two things the kernel does for us that differ from platform to platform."""

from __future__ import annotations

import errno
import os
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from tenure._descriptors import handle_of

_HELD_BY_ANOTHER = {errno.EAGAIN, errno.EACCES}
# Some file systems cannot sync a directory and say EINVAL. Source: fsync(2).
_NOTHING_TO_SYNC = {errno.EINVAL, errno.EOPNOTSUPP}

if sys.platform == "win32":
    from tenure._core import lifeline_held, lifeline_lock, lifeline_unlock

    def try_lock(fd: int) -> bool:
        """Take the exclusive lock of the open file *fd* (open for writing); False when another open file has it."""
        return lifeline_lock(handle_of(fd))

    def unlock(fd: int) -> None:
        """Give the lock back. Closing would do so too, but takes the system its time."""
        with suppress(OSError):
            lifeline_unlock(handle_of(fd))

    def is_locked(fd: int) -> bool:
        """Whether another open file has the exclusive lock. For a moment the asker has a shared one."""
        return lifeline_held(handle_of(fd))

    def sync(fd: int) -> None:
        """Make the content of *fd* durable, and its name."""
        os.fsync(fd)

else:
    import fcntl

    # Open-file-description locks where there are any, else flock. Never POSIX locks: closing any other descriptor of
    # the file drops them. And not flock on Linux: it does not meet the locks that an NFS server takes for its clients on
    # the same directory, these do. Source: fcntl_locking(2), flock(2).
    # Linux only: the struct has another shape elsewhere.
    _OFD_SETLK: int | None = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform == "linux" else None
    _OFD_GETLK: int | None = getattr(fcntl, "F_OFD_GETLK", None) if sys.platform == "linux" else None
    _FULLFSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    # struct flock: l_type, l_whence, l_start, l_len (0: to the end, however far), l_pid (must be 0).
    _FLOCK = struct.Struct("@hhqqi4x")

    def try_lock(fd: int) -> bool:
        """Take the exclusive lock of the open file *fd* (open for writing); False when another open file has it."""
        try:
            if _OFD_SETLK is not None:
                fcntl.fcntl(fd, _OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            else:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno in _HELD_BY_ANOTHER:
                return False
            raise
        return True

    def unlock(fd: int) -> None:
        """
        Give the lock back.

        Closing is not enough: a process that another thread forked meanwhile has a copy of the descriptor, and the lock
        would last as long as that copy.
        """
        with suppress(OSError):
            if _OFD_SETLK is not None:
                fcntl.fcntl(fd, _OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
            else:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def is_locked(fd: int) -> bool:
        """Whether another open file has the exclusive lock. Asking takes nothing where the kernel can be asked."""
        if _OFD_GETLK is not None:
            answer = fcntl.fcntl(fd, _OFD_GETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
            return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(fd, fcntl.LOCK_UN)
        return False

    def sync(fd: int) -> None:
        """Make the content of *fd* durable."""
        if _FULLFSYNC is not None:
            # fsync(2) on macOS leaves the data in the drive's own cache; this does not. Not every file system has it.
            with suppress(OSError):
                fcntl.fcntl(fd, _FULLFSYNC)
                return
        os.fsync(fd)


def close(fd: int) -> None:
    """
    Close, whatever the system says to it: the descriptor is gone in any case, and whether bytes arrived is what `sync` has said.

    An error here would deny a record that has been created. Source: close(2), "Dealing with error returns from close()".
    """
    # Not `suppress`, which costs more than the call.
    try:
        os.close(fd)
    except OSError:
        pass


def sync_directory(fd: int) -> None:
    """Make the names in the directory *fd* durable, where the file system has such an operation."""
    try:
        sync(fd)
    except OSError as exc:
        if exc.errno not in _NOTHING_TO_SYNC:
            raise


def sync_for_reading(fd: int) -> None:
    """
    `sync`, for what was found and not written by us.

    A file system that is mounted read-only may answer EROFS: it has nothing pending, so what was read is durable.
    """
    try:
        sync_directory(fd)
    except OSError as exc:
        if exc.errno != errno.EROFS:
            raise


def patience(total_s: float) -> Iterator[None]:
    """Yield again and again, sleeping in between, at first half a millisecond and later five, for about *total_s* in all."""
    # Counted in sleeps, so that no clock is read; a busy machine makes it longer, never endless. And no longer sleeps:
    # where many want one lock, whoever sleeps longest gets it last.
    delay, slept = 0.0005, 0.0
    yield
    while slept < total_s:
        time.sleep(delay)  # noqa: TID251  milliseconds between two tries, below the room of clocks
        slept += delay
        delay = min(delay * 1.5, 0.005)
        yield
