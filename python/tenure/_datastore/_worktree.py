"""
The files of a checkout, reached without ever following a link and without ever leaving it.

What is replaced is renamed into place from beside, so that nobody sees half a file. Nothing here is deleted but what the datastore
itself put there: what anybody else wrote is moved aside.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tenure._datastore._names import RESERVED, parents
from tenure._descriptors import CAREFULLY
from tenure._store import _at
from tenure._store._failures import store_error, told
from tenure._store._kernel import close
from tenure._store._tree import write_all
from tenure.errors import StoreCannotLockError, StoreError

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_PIECE = 1 << 20
# Within the checkout's own directory.
_TEMPORARY = "tmp"
# Something is in the way, or the file system has no RENAME_NOREPLACE. Source: rename(2).
_NOT_NEW = {errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
# Of small files, between two looks at whether somebody has pressed Ctrl-C.
_PAGE = 500
# How many files of one name are kept aside.
_ASIDE = 1000


class Stamp(NamedTuple):
    """What tells, without reading it, that a file is still the one we left: size, time of change, inode."""

    size: int
    mtime_ns: int
    inode: int


class Digest(NamedTuple):
    """What a file contains, in short."""

    size: int
    sha256: str


class Worktree:
    """
    The directory of a checkout, with its own directory `.tenure` inside; both must be there.

    Used by one thread at a time. Two directories are kept open from one call to the next, since names come sorted; `forget` closes
    them.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        if os.open not in os.supports_dir_fd:
            raise StoreCannotLockError(
                "this platform cannot open files relative to a directory, which a checkout needs",
                hint="read with `Datastore.read`, or write from another system",
            )
        self.root = Path(root).absolute()
        self.own = self.root / RESERVED
        self._root = str(self.root)
        self._open: dict[bool, tuple[str, int]] = {}
        self._unique = itertools.count()

    def path_of(self, name: str) -> str:
        """Where *name* lies, for messages."""
        return f"{self._root}/{name}"

    def stamp(self, name: str) -> Stamp | None:
        """The stamp of the file *name*; None if there is none. What is no regular file has one that fits nothing."""
        with told(self.path_of(name), "look at a file of a checkout"):
            directory, segment = self._above(name)
            if directory is None:
                return None
            try:
                return _stamp(os.stat(segment, dir_fd=directory, follow_symlinks=False))
            except FileNotFoundError:
                return None

    def open(self, name: str) -> BinaryIO | None:
        """The file *name*, to read; None if there is none, or it is no regular file."""
        with told(self.path_of(name), "read a file of a checkout"):
            directory, segment = self._above(name)
            if directory is None:
                return None
            try:
                fd = os.open(segment, os.O_RDONLY | CAREFULLY, dir_fd=directory)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO):
                    return None
                raise
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                close(fd)
                return None
            return os.fdopen(fd, "rb")

    def digest(self, name: str) -> Digest | None:
        """What the file *name* contains; None if there is none."""
        source = self.open(name)
        if source is None:
            return None
        with source:
            return digest_of(source)

    def write(self, name: str, fill: Callable[[int], None]) -> Stamp:
        """
        Put a file at *name*, complete at once, replacing what is there; *fill* writes it to a descriptor.

        Not synced: whoever lets the catalog vouch for it does that, once for many files.
        """
        with told(self.path_of(name), "write a file of a checkout"):
            directory, segment = self._above(name, make=True)
            # Under the checkout's lock, so a number is enough; what a crash leaves is replaced.
            own, temporary = self._above(f"{RESERVED}/{_TEMPORARY}/{next(self._unique)}", make=True)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | CAREFULLY, 0o666, dir_fd=own)
            try:
                fill(fd)
                os.rename(temporary, segment, src_dir_fd=own, dst_dir_fd=directory)
                return _stamp(os.fstat(fd))
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=own)
                raise
            finally:
                close(fd)

    def write_new(self, files: Iterable[tuple[str, bytes]]) -> dict[str, Stamp]:
        """
        Put *files*, sorted by name, where nothing is yet, and return their stamps. Not synced either.

        Left out are those at whose name, or above it, something is; and all where this takes more than one step.
        """
        placed: dict[str, Stamp] = {}
        for above, group in itertools.groupby(files, lambda file: file[0].rpartition("/")[0]):
            while page := list(itertools.islice(group, _PAGE)):
                placed.update(self._place(above, page))
        return placed

    def _place(self, above: str, files: list[tuple[str, bytes]]) -> Iterator[tuple[str, Stamp]]:
        segments = [(name.rpartition("/")[2], data) for name, data in files]
        try:
            directory, _ = self._above(files[0][0], make=True)
            own, temporary = self._above(f"{RESERVED}/{_TEMPORARY}/{next(self._unique)}", make=True)
            assert directory is not None
            assert own is not None
            found = _at.place_new(directory, segments, beside=own, temporary=temporary)
        except OSError as error:
            if error.errno in _NOT_NEW:
                return
            failed = error.filename if error.filename in dict(segments) else segments[0][0]
            path = self.path_of(f"{above}/{failed}" if above else failed)
            raise store_error(error, path, "write a file of a checkout") from error
        for (name, data), one in zip(files, found, strict=True):
            if one is not None:
                yield name, Stamp(len(data), *one)

    def remove(self, name: str) -> None:
        """Remove the file *name*, and the directories that are empty without it. Already gone is what was wanted."""
        with told(self.path_of(name), "remove a file of a checkout"):
            directory, segment = self._above(name)
            if directory is not None:
                with suppress(FileNotFoundError):
                    os.unlink(segment, dir_fd=directory)
            for above in reversed(parents(name)):
                directory, segment = self._above(above)
                try:
                    if directory is not None:
                        os.rmdir(segment, dir_fd=directory)
                except OSError:
                    # Not empty, most often.
                    return

    def move_aside(self, name: str, to: str) -> str | None:
        """
        Move whatever is at *name* into the directory *to* below `.tenure`, and say where it is now; None if nothing was there.

        Nothing that lies there already is replaced.
        """
        with told(self.path_of(name), "move a file of a checkout aside"):
            directory, segment = self._above(name)
            if directory is None or not _exists(directory, segment):
                return None
            for attempt in range(_ASIDE):
                target = f"{RESERVED}/{to}/{name}" + (f".{attempt}" if attempt else "")
                beside, last = self._above(target, make=True)
                assert beside is not None
                if not _exists(beside, last):
                    os.rename(segment, last, src_dir_fd=directory, dst_dir_fd=beside)
                    return target
        raise StoreError(
            f"too many files of one name were moved aside. path=`{self.own / to / name}`",
            hint="look at them, and remove some",
        )

    def obstacle(self, name: str) -> str | None:
        """What stands where *name* needs a directory, and is none."""
        for above in parents(name):
            directory, segment = self._above(above)
            if directory is None:
                return None
            try:
                found = os.stat(segment, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                return None
            if not stat.S_ISDIR(found.st_mode):
                return above
        return None

    def clear_temporary(self) -> None:
        """Remove what writers that died left half-written. Under the checkout's lock only."""
        with suppress(FileNotFoundError), os.scandir(self.own / _TEMPORARY) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    Path(entry.path).unlink()

    def forget(self) -> None:
        """Close the directories that were kept open."""
        kept, self._open = self._open, {}
        for _, fd in kept.values():
            close(fd)

    def _above(self, name: str, *, make: bool = False) -> tuple[int | None, str]:
        """The directory that *name* lies in, and its last segment; None if that is not there, or is no directory."""
        above, _, segment = name.rpartition("/")
        # One is kept of the files, and one of our own directory: they are used by turns.
        ours = above.startswith(RESERVED)
        kept = self._open.get(ours)
        if kept is not None:
            # Somebody may have removed it, and what is made in there then is nowhere.
            if kept[0] == above and (not make or os.fstat(kept[1]).st_nlink):
                return kept[1], segment
            del self._open[ours]
            close(kept[1])
        fd = self._walk(above, make)
        if fd is not None:
            self._open[ours] = (above, fd)
        return fd, segment

    def _walk(self, path: str, make: bool) -> int | None:
        fd = os.open(self._root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
        for segment in filter(None, path.split("/")):
            try:
                try:
                    deeper = os.open(segment, _DIRECTORY, dir_fd=fd)
                except FileNotFoundError:
                    if not make:
                        return None
                    with suppress(FileExistsError):
                        os.mkdir(segment, dir_fd=fd)
                    deeper = os.open(segment, _DIRECTORY, dir_fd=fd)
                except OSError as error:
                    if error.errno in (errno.ENOTDIR, errno.ELOOP) and not make:
                        return None
                    raise
            finally:
                close(fd)
            fd = deeper
        return fd


def digest_of(source: BinaryIO, copy_to: Callable[[bytes], None] | None = None) -> Digest:
    """Read *source* to its end, in memory that does not grow; hand each piece to *copy_to*."""
    digest, size = hashlib.sha256(), 0
    while piece := source.read(_PIECE):
        digest.update(piece)
        size += len(piece)
        if copy_to is not None:
            copy_to(piece)
    return Digest(size, digest.hexdigest())


def writing(data: bytes) -> Callable[[int], None]:
    """What `Worktree.write` needs to write *data*."""
    return lambda fd: write_all(fd, data)


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_size if stat.S_ISREG(found.st_mode) else -1, found.st_mtime_ns, found.st_ino)


def _exists(directory: int, segment: str) -> bool:
    try:
        os.stat(segment, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
