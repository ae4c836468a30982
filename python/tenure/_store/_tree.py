"""
The directory under a file store: every step down is taken by descriptor, and none follows a symbolic link.

The root alone may be one, because the operator chose it. Below it, each component is opened relative to the descriptor
of its parent: a path that is checked first and opened later can have been swapped in between.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tenure._store import _at
from tenure._store._at import Directory, exact_mode
from tenure._store._failures import kind_of, odd_file, too_large, unclear
from tenure._store._kernel import close, is_locked, patience, sync_for_reading
from tenure._store._records import MAX_SIZE_BYTES

# What opening says of a name that is a link, a socket, or a file where a directory is needed. Source: open(2); FreeBSD
# and its relatives say EMLINK or EFTYPE for a link.
_ODD = {
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENXIO,
    errno.EMLINK,
    errno.EOPNOTSUPP,
    getattr(errno, "EFTYPE", errno.ELOOP),
}

# How long a loser waits for a winner that writes in place. One that takes longer has died or stands still.
_WRITER_PATIENCE_S = 1.0


class Tree:
    """A root directory, opened anew for each operation: a kept descriptor is closed by whoever daemonizes the process."""

    def __init__(self, root: str, mode: int) -> None:
        self.root = root
        self._mode = mode
        self._below = os.path.join(root, "")

    def path_of(self, name: str) -> str:
        return self._below + name if name else self.root

    @contextmanager
    def directory(self, segments: Sequence[str], *, make: bool = False) -> Iterator[Directory | None]:
        """
        The directory at *segments* below the root, open; or None when it is not there.

        With *make* what is missing is made, and the parent of each new directory synced.
        """
        found = self._open_root(make)
        try:
            for depth, segment in enumerate(segments):
                if found is None:
                    break
                parent, found = found, None
                try:
                    found = self._step(parent, segment, "/".join(segments[: depth + 1]), make)
                finally:
                    _at.close_directory(parent)
            yield found
        finally:
            if found is not None:
                _at.close_directory(found)

    def _open_root(self, make: bool) -> Directory | None:
        try:
            return _at.open_directory(self.root)
        except FileNotFoundError:
            if not make:
                return None
        # Only the root itself, never its parents: a parent that is missing is most often a mount that is missing, and
        # with a store made beneath the empty mount point each host would have its own "only" writer.
        with suppress(FileExistsError):
            Path(self.root).mkdir(self._mode)
        found = _at.open_directory(self.root)
        try:
            exact_mode(found, self._mode)
            parent = _at.open_directory(str(Path(self.root).resolve().parent))
            try:
                _at.sync_directory(parent)
            finally:
                _at.close_directory(parent)
        except BaseException:
            _at.close_directory(found)
            raise
        return found

    def _step(self, parent: Directory, segment: str, name: str, make: bool) -> Directory | None:
        try:
            return self._open_directory(parent, segment, name)
        except FileNotFoundError:
            if not make:
                return None
        with suppress(FileExistsError):
            _at.make_directory(parent, segment, self._mode)
        found = self._open_directory(parent, segment, name)
        try:
            exact_mode(found, self._mode)
            # Also when somebody else made it just now: they may not have got as far as this.
            _at.sync_directory(parent)
        except BaseException:
            _at.close_directory(found)
            raise
        return found

    def _open_directory(self, parent: Directory, segment: str, name: str) -> Directory:
        try:
            return _at.open_directory(segment, parent)
        except OSError as exc:
            self._raise_if_odd(exc, parent, segment, name)
            raise

    def _raise_if_odd(self, cause: OSError, directory: Directory, segment: str, name: str) -> None:
        """Raise the clear error if *cause* came from something at *name* that is not ours; else return."""
        if cause.errno in _ODD:
            mode = kind_of(directory, segment)
            if mode is not None:
                raise odd_file(mode, self.path_of(name)) from cause

    def open(self, directory: Directory, segment: str, name: str, flags: int, mode: int = 0) -> int:
        """The regular file at *segment* of *directory*, which is *name* in messages. Nothing else is opened."""
        try:
            fd = _at.open_file(directory, segment, flags, mode)
        except OSError as exc:
            self._raise_if_odd(exc, directory, segment, name)
            raise
        found = os.fstat(fd).st_mode
        if not stat.S_ISREG(found):
            close(fd)
            raise odd_file(found, self.path_of(name))
        if flags & os.O_CREAT:
            exact_mode(fd, mode)
        return fd

    def read(
        self, directory: Directory, segment: str, name: str, *, durable: bool, settle: bool = False
    ) -> bytes | None:
        """
        The whole record at *segment* of *directory*, or None. *name* is its key, for messages.

        With *durable*, the file and its name are synced before this returns. With *settle*, a writer that is still
        filling the file in place gets a moment to finish.
        """
        try:
            fd = self.open(directory, segment, name, _at.TO_SYNC if durable else os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            if settle:
                _await_writer(fd)
            data = _read_bounded(fd)
            if len(data) > MAX_SIZE_BYTES:
                raise too_large(max(os.fstat(fd).st_size, len(data)), MAX_SIZE_BYTES, self.path_of(name))
            if durable:
                sync_for_reading(fd)
                _at.sync_directory_for_reading(directory)
            return data
        finally:
            close(fd)


def _await_writer(fd: int) -> None:
    # An empty file is one whose writer has not got to its lock yet, or never will: nothing we write is empty.
    with suppress(OSError):
        for _ in patience(_WRITER_PATIENCE_S):
            if os.fstat(fd).st_size and not is_locked(fd):
                return


def _read_bounded(fd: int) -> bytes:
    # One byte more than may be, to see that there is more; st_size is not believed, the file may be growing.
    pieces, left = [], MAX_SIZE_BYTES + 1
    while left and (piece := os.read(fd, min(left, 1 << 16))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def create_exclusively(directory: Directory, segment: str, mode: int) -> int:
    """A new file, open for reading and writing. Raises FileExistsError for anything at that name, a dangling link too."""
    fd = _at.open_file(directory, segment, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
    try:
        exact_mode(fd, mode)
    except BaseException:
        close(fd)
        raise
    return fd


def write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def remove(directory: Directory, segment: str) -> None:
    """Unlink and sync. Already gone is what was wanted."""
    with suppress(FileNotFoundError), unclear():
        _at.unlink(directory, segment)
        _at.sync_directory(directory)
