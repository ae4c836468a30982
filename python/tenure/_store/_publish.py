"""
The one step that decides who wins: to make a complete, durable file appear under a name, if the name is free.

Three ways, tried in this order until one is possible here; each lets exactly one caller win, and they may be mixed:

`link`       a temporary file, synced, then link(2): complete when visible, and after a lost reply the inode says who won
`rename`     the same with a rename that refuses to replace
`exclusive`  O_CREAT|O_EXCL at the name itself: a writer killed half-way leaves a torn record, which readers must tolerate

Road not taken: O_TMPFILE and linkat(2) need no temporary name, but /proc, and overlayfs and NFS know no O_TMPFILE.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO, Literal, NamedTuple

from tenure._failpoints import reach
from tenure._store import _at
from tenure._store._at import Directory
from tenure._store._failures import unclear
from tenure._store._kernel import close, patience, sync, try_lock
from tenure._store._tree import create_exclusively, write_all

Way = Literal["link", "rename", "exclusive"]
# Where a directory cannot be synced, a link's name would not last, and a rename says when it is on the disk.
WAYS: tuple[Way, ...] = ("link", "rename", "exclusive") if _at.SYNCS_DIRECTORIES else ("rename", "exclusive")

# Writes the content of a new file to its descriptor.
Fill = Callable[[int], None]
_PIECE = 1 << 20

# The first kind is locked by its maker for as long as it works and can be swept; the second could not be locked.
_LOCKED, _UNLOCKED = ".temp-", ".nolock-"
_TEMPORARY = re.compile(r"\.(?:temp|nolock)-[0-9a-f]{24}")

# "Not on this file system", each seen somewhere: EPERM from vfat, EMLINK from file systems with a limit of one, EACCES
# from a security module that forbids links alone (Android), EXDEV from stacked file systems. That the directory may be
# written to is known by then: the temporary file is in it. Source: link(2), rename(2).
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EINVAL}
_NO_RENAMES = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV}
_NO_EXCLUSIVE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


class _NotHereError(Exception):
    """This way is not possible on this file system."""


class Published(NamedTuple):
    won: bool
    way: Way


def publish(directory: Directory, segment: str, data: bytes, *, mode: int, ways: Sequence[Way]) -> Published:
    """
    Make *data* appear under *segment* unless something is there. Complete, and durable if it is ours.

    Raises:
        OSError: the system's own; its `applied` is None where the name may have appeared. ENOSYS: no way is possible.
    """
    return _publish(directory, segment, partial(write_all, data=data), mode, ways)


def publish_stream(
    directory: Directory, segment: str, source: BinaryIO, *, mode: int, ways: Sequence[Way]
) -> Published:
    """The same for all that *source* gives, in memory that does not grow; what *source* raises leaves nothing behind."""
    start = source.tell() if source.seekable() else None

    def fill(fd: int) -> None:
        if start is not None:
            # Once more, where the first way was not possible here.
            source.seek(start)
        while piece := source.read(_PIECE):
            write_all(fd, piece)

    # In place only in one go: a reader must not see half of it for as long as a large file takes.
    return _publish(directory, segment, fill, mode, [way for way in ways if way != "exclusive"])


def _publish(directory: Directory, segment: str, fill: Fill, mode: int, ways: Sequence[Way]) -> Published:
    refusal: BaseException | None = None
    for way in ways:
        try:
            return Published(_HOW[way](directory, segment, fill, mode), way)
        except _NotHereError as exc:
            refusal = exc.__cause__
    raise OSError(errno.ENOSYS, "no way to create a file atomically") from refusal


def _by_link(directory: Directory, segment: str, fill: Fill, mode: int) -> bool:
    def link(temporary: str) -> None:
        _at.link(directory, temporary, segment)

    return _by_temporary(directory, segment, fill, mode, move=link, impossible=_NO_LINKS)


def _by_rename(directory: Directory, segment: str, fill: Fill, mode: int) -> bool:
    def rename(temporary: str) -> None:
        _at.rename_noreplace(directory, temporary, segment)

    return _by_temporary(directory, segment, fill, mode, move=rename, impossible=_NO_RENAMES)


def _by_temporary(
    directory: Directory,
    segment: str,
    fill: Fill,
    mode: int,
    *,
    move: Callable[[str], None],
    impossible: Collection[int],
) -> bool:
    with _filled_file(directory, mode, fill) as (fd, temporary):
        try:
            move(temporary)
        except OSError as exc:
            # Also after EEXIST: on NFS a reply can be lost, and the request that is sent again meets its own success.
            ours = _is_same(directory, segment, fd)
            if ours is False:
                if isinstance(exc, FileExistsError):
                    return False
                if isinstance(exc, FileNotFoundError):
                    # Our temporary file or the directory is gone: removed by somebody who should not have.
                    raise OSError(errno.ESTALE, "a temporary file was removed while in use") from exc
                if exc.errno in impossible:
                    raise _NotHereError from exc
            if not ours:
                if ours is None or exc.errno not in _SURELY_NOT:
                    exc.applied = None  # type: ignore[attr-defined]
                raise
        with unclear():
            reach("publish.linked")
            _at.sync_directory(directory)
        return True


# Refusals that a file system gives before it does anything; after any other the request may yet arrive.
_SURELY_NOT = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


def _by_creating(directory: Directory, segment: str, fill: Fill, mode: int) -> bool:
    try:
        fd = create_exclusively(directory, segment, mode)
    except FileExistsError:
        return False
    except OSError as exc:
        if exc.errno in _NO_EXCLUSIVE:
            raise _NotHereError from exc
        raise
    try:
        # Tells a loser that we are still writing; without locks it may read a torn record.
        with suppress(OSError):
            for _ in patience(0.1):
                if try_lock(fd):
                    break
        fill(fd)
        sync(fd)
    except BaseException as exc:
        # An error leaves nothing: a full disk would otherwise leave an empty record. Only if it is still ours.
        if isinstance(exc, OSError):
            exc.applied = None  # type: ignore[attr-defined]
        with suppress(OSError):
            if _is_same(directory, segment, fd):
                _at.unlink(directory, segment)
        raise
    else:
        with unclear():
            _at.sync_directory(directory)
    finally:
        close(fd)
    return True


_HOW: dict[Way, Callable[[Directory, str, Fill, int], bool]] = {
    "link": _by_link,
    "rename": _by_rename,
    "exclusive": _by_creating,
}


def _is_same(directory: Directory, segment: str, fd: int) -> bool | None:
    """Whether *fd* is what stands at *segment*; None when the file system would not say."""
    for _ in range(2):  # twice: ESTALE passes
        try:
            return os.path.samestat(_at.status(directory, segment), os.fstat(fd))
        except FileNotFoundError:
            return False
        except OSError:
            continue
    return None


@contextmanager
def temporary_file(directory: Directory, mode: int, data: bytes) -> Iterator[tuple[int, str]]:
    """
    A new file with *data*, synced, under a name that no other thread or process has; gone afterwards.

    It is locked until then, which is how a sweep knows that its maker lives: the kernel drops the lock with the process.
    """
    with _filled_file(directory, mode, partial(write_all, data=data)) as made:
        yield made


@contextmanager
def _filled_file(directory: Directory, mode: int, fill: Fill) -> Iterator[tuple[int, str]]:
    fd, name = _new_temporary(directory, mode)
    try:
        fill(fd)
        reach("publish.written")
        sync(fd)
        reach("publish.synced")
        yield fd, name
    finally:
        # A name that stays is swept.
        with suppress(OSError):
            _at.unlink(directory, name)
        close(fd)


def _new_temporary(directory: Directory, mode: int) -> tuple[int, str]:
    # More than one try only when somebody sweeps in the moment between our open and our lock.
    for _ in range(8):
        name = _LOCKED + _unique()
        try:
            fd = create_exclusively(directory, name, mode)
        except FileExistsError:
            continue
        try:
            if try_lock(fd) and os.fstat(fd).st_nlink == 1:
                return fd, name
        except OSError:
            # No locks here: then it gets a name that no sweep touches.
            with suppress(OSError):
                unlocked = _UNLOCKED + _unique()
                _at.rename(directory, name, unlocked)
                return fd, unlocked
        with suppress(OSError):
            _at.unlink(directory, name)
        close(fd)
    raise FileExistsError(errno.EEXIST, "every temporary name that was tried is taken")


def _unique() -> str:
    # From the kernel: neither a pid nor a counter, which threads, forked children and other hosts would share.
    return os.urandom(12).hex()


def is_temporary(segment: str) -> bool:
    return _TEMPORARY.fullmatch(segment) is not None


def sweep(directory: Directory, segments: Iterable[str]) -> list[str]:
    """
    Remove those of the temporary files *segments* whose maker is gone, and return their names.

    Only where this machine's kernel alone manages the locks: a file server may drop the lock of a maker that lives, and
    a lock may not be seen from another host at all. Never raises for a file that cannot be opened, locked or removed.
    """
    if not _locks_are_proof(directory):
        return []
    return [segment for segment in segments if segment.startswith(_LOCKED) and _sweep_one(directory, segment)]


def _sweep_one(directory: Directory, segment: str) -> bool:
    try:
        fd = _at.open_file(directory, segment, os.O_RDWR)
    except OSError:
        return False
    try:
        # Taken, not asked about: a maker between its open and its lock then finds it taken, and starts over.
        if stat.S_ISREG(os.fstat(fd).st_mode) and try_lock(fd):
            _at.unlink(directory, segment)
            return True
    except OSError:
        pass
    finally:
        close(fd)
    return False


def _locks_are_proof(directory: Directory) -> bool:
    with suppress(OSError):
        return _at.is_proof(directory)
    return False
