"""What a system error means for a caller: the class, and what to do about it. One table."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, TypeVar

from tenure._store import _at
from tenure._store._at import Directory
from tenure.errors import StoreCannotLockError, StoreError, StoreUnavailableError

Result = TypeVar("Result")


class _Meaning(NamedTuple):
    error: type[StoreError]
    hint: str


_STALE = "the file server lost track of an open file, as when another client removed it; try again"
_WITHOUT = "the file system lacks an operation that a lease needs; use another one"
_MEANINGS: dict[int, _Meaning] = {
    # What may pass.
    errno.ENOSPC: _Meaning(StoreUnavailableError, "free some space, or inodes (`df -i`), and try again"),
    errno.EDQUOT: _Meaning(StoreUnavailableError, "the disk quota is used up; free some space and try again"),
    errno.ESTALE: _Meaning(StoreUnavailableError, _STALE),
    errno.EINTR: _Meaning(StoreUnavailableError, "try again"),
    errno.EAGAIN: _Meaning(StoreUnavailableError, "try again"),
    errno.EBUSY: _Meaning(StoreUnavailableError, "try again"),
    errno.ENOMEM: _Meaning(StoreUnavailableError, "the system is out of memory; try again"),
    errno.ETIMEDOUT: _Meaning(StoreUnavailableError, "the file server did not answer; try again"),
    errno.EHOSTDOWN: _Meaning(StoreUnavailableError, "the file server did not answer; try again"),
    errno.ENOTCONN: _Meaning(StoreUnavailableError, "the file system's server is gone; mount it again"),
    errno.EMFILE: _Meaning(StoreUnavailableError, "this process has too many open files; see `ulimit -n`"),
    errno.ENFILE: _Meaning(StoreUnavailableError, "the system has too many open files"),
    # What stays until somebody does something.
    errno.EIO: _Meaning(StoreError, "the disk or the file server reports damage; see the kernel log"),
    errno.EROFS: _Meaning(StoreError, "the file system is mounted read-only; reading works, writing does not"),
    errno.EACCES: _Meaning(StoreError, "check owner and mode of the directories on the path"),
    errno.EPERM: _Meaning(StoreError, "check owner, mode and attributes (`lsattr`) of the directories on the path"),
    errno.ENOENT: _Meaning(StoreError, "make the parent directory first; if it belongs to a mount, mount it"),
    errno.ENOTDIR: _Meaning(StoreError, "a file stands where a directory is needed; move it away"),
    errno.EISDIR: _Meaning(StoreError, "a directory stands where a record is needed; move it away"),
    errno.EXDEV: _Meaning(StoreError, "the store spans several file systems; give it a directory on one"),
    errno.ELOOP: _Meaning(StoreError, "a symbolic link stands inside the store and is not followed; remove it"),
    errno.ENAMETOOLONG: _Meaning(StoreError, "choose a shorter path for the store"),
    # What no waiting helps: the promises cannot be kept here. ENOLCK: an NFS mount without a lock service.
    errno.ENOLCK: _Meaning(
        StoreCannotLockError, "the file system gives no locks (NFS without lockd?); use another one"
    ),
    errno.ENOSYS: _Meaning(StoreCannotLockError, _WITHOUT),
    errno.EOPNOTSUPP: _Meaning(StoreCannotLockError, _WITHOUT),
}
_UNHEARD_OF = _Meaning(StoreError, "see `errno` for what the system said")


def store_error(cause: OSError, path: str, doing: str) -> StoreError:
    """*cause*, while *doing* something with *path*, as the error that a caller can act on."""
    number = cause.errno or 0
    meaning = _MEANINGS.get(number, _UNHEARD_OF)
    words = (cause.strerror or str(cause)).lower()
    slug = errno.errorcode.get(number, str(number))
    return meaning.error(
        f"cannot {doing}: {words}. path=`{path}`, errno=`{slug}`",
        hint=meaning.hint,
        applied=getattr(cause, "applied", False),
        errno=number,
        filename=path,
    )


def odd_file(mode: int, path: str) -> StoreError:
    """What to say of something at a name of ours that is no record or directory of ours. It is never opened or followed."""
    found, number = next(
        ((words, number) for test, words, number in _KINDS if test(mode)), ("something that is no file", errno.EINVAL)
    )
    return StoreError(
        f"{found} stands where the store keeps its own files. path=`{path}`",
        hint="it was not followed, read or changed; find out who put it there, and remove it",
        errno=number,
        filename=path,
    )


_KINDS: tuple[tuple[Callable[[int], bool], str, int], ...] = (
    (stat.S_ISLNK, "a symbolic link", errno.ELOOP),
    (stat.S_ISDIR, "a directory", errno.EISDIR),
    (stat.S_ISREG, "a file", errno.ENOTDIR),
    (stat.S_ISFIFO, "a pipe", errno.EINVAL),
    (stat.S_ISSOCK, "a socket", errno.EINVAL),
    (stat.S_ISCHR, "a device", errno.EINVAL),
    (stat.S_ISBLK, "a device", errno.EINVAL),
)


def too_large(size: int, limit: int, path: str) -> StoreError:
    """A record that none of us can have written. Not a `RecordError`: nothing was read that could be kept or judged."""
    return StoreError(
        f"a record is larger than any record may be. path=`{path}`, size_bytes=`{size}`, limit_bytes=`{limit}`",
        hint="nothing was read; find out who wrote it, and move it away",
        errno=errno.EFBIG,
        filename=path,
    )


class told:  # noqa: N801  reads as the function that it is to callers
    """Turn the system's errors into ours, with the path and what was being done. A class: it is passed for every file."""

    __slots__ = ("_doing", "_path")

    def __init__(self, path: str, doing: str) -> None:
        self._path = path
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise store_error(error, self._path, self._doing) from error


@contextmanager
def unclear() -> Iterator[None]:
    """From here on an error no longer means that nothing was changed: `applied` becomes None."""
    try:
        yield
    except OSError as exc:
        exc.applied = None  # type: ignore[attr-defined]
        raise


def again_if_stale(work: Callable[[], Result]) -> Result:
    """
    Run *work*, and once more if it met ESTALE: on NFS that is how "another client changed this under you" arrives.

    Not once something may have been applied: the second attempt would then meet the first one's success and take it for
    somebody else's. Source: Linux NFS FAQ, A10, on ESTALE.
    """
    try:
        return work()
    except OSError as exc:
        if exc.errno != errno.ESTALE or getattr(exc, "applied", False) is None:
            raise
    return work()


def kind_of(directory: Directory, name: str) -> int | None:
    """The mode of what is at *name*, not followed; None when there is nothing."""
    try:
        return _at.status(directory, name).st_mode
    except FileNotFoundError:
        return None
