"""
Pid files for everybody: the same judgement behind a file that old tools can still read.

The file holds a number and a newline, and nothing else, since that is all that gunicorn, Celery and shell scripts
understand. Who that number was is in a lease beside it, in the directory `NAME.tenure`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from types import TracebackType

from tenure._clock import Clock, SystemClock
from tenure._descriptors import open_file
from tenure._identity import Judgement, Verdict
from tenure._lease._hold import Hold
from tenure._lease._lease import WriterLease
from tenure._lease._sight import DEFAULT_SKEW, DEFAULT_TTL, LeaseStatus
from tenure._store._failures import told
from tenure.errors import Error, HoldError, StoreError, WriterBusyError

# What a pid file of any program looks like; more is not read.
_MAX_BYTES = 64
# What tells a file that was written from every other: content, inode, time of the write. A list, as JSON gives it back.
# The content alone would not do: an old tool can have written the same number since, into the same file.
_Mark = list[object]
_BY_HAND = Judgement(Verdict.UNKNOWN, "no_identity", "record", "a pid file that says no more than a number")


class PidFile:
    r"""
    One process at a time behind a pid file, whatever has become of the last one.

    A file left by tenure is judged like every lease: a holder proven gone is replaced at once, one that lives never. A
    plain old file names nobody that could be judged: in a container every number lives. It is taken over when it is older
    than ttl + skew by the clock of its own file system, and never before.

    Args:
        path: the pid file; its directory must exist.
        ttl, skew, label: as for `WriterLease`.
        mode: of the file; by default everybody may read it.

    Example:
        >>> import os, tempfile
        >>> with PidFile(os.path.join(tempfile.mkdtemp(), "app.pid")) as pid_file:
        ...     pid_file.path.read_text() == f"{os.getpid()}\n"
        True
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        ttl: float = DEFAULT_TTL,
        skew: float = DEFAULT_SKEW,
        label: str | None = None,
        mode: int = 0o644,
        clock: Clock | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        self._mode = mode
        self._patience = ttl + skew
        self._clock: Clock = SystemClock() if clock is None else clock
        beside = self.path.with_name(f"{self.path.name}.tenure")
        self._lease = WriterLease(beside, ttl=ttl, skew=skew, label=label, clock=self._clock)
        self._written_at = beside / "written"
        self._hold: Hold | None = None
        self._written: _Mark | None = None

    def acquire(self, timeout: float = 0.0, *, pid: int | None = None) -> Hold:
        """
        Take the file, waiting up to *timeout* seconds, and write *pid* into it; by default our own.

        A second call while we have it writes anew and gives the same hold.

        Raises:
            WriterBusyError: somebody has it, or may have.
            StoreError: it cannot be read or written; a link or a directory of that name is left alone.
        """
        deadline = self._clock.awake() + timeout
        hold = self._lease.acquire(timeout)
        if self._hold is not None and self._hold.state != "released" and self._hold.nonce == hold.nonce:
            # Joined, and counted once: one release ends it.
            hold.release()
            self.write(os.getpid() if pid is None else pid)
            return self._hold
        try:
            self._outwait_an_old_file(hold, deadline)
            self._hold = hold
            self.write(os.getpid() if pid is None else pid)
        except BaseException:
            self._hold = None
            hold.release()
            raise
        return hold

    def write(self, pid: int) -> None:
        """
        Write another number into the file that we have: of a command that was started under it.

        Raises:
            HoldError: we do not have it.
            FencedError: we have lost it.
            StoreError: it cannot be written.
        """
        if self._hold is None:
            raise HoldError(f"the pid file is not ours. path=`{self.path}`", hint="acquire it first")
        self._hold.check()
        record = f"{pid}\n".encode()
        fresh = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        with told(str(self.path), "write a pid file"):
            fd = open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self._mode)
            try:
                with os.fdopen(fd, "wb") as file:
                    if hasattr(os, "fchmod"):
                        # Whatever the umask: a pid file is for others to read.
                        os.fchmod(fd, self._mode)
                    file.write(record)
                    file.flush()
                    os.fsync(fd)
                    mark = _mark(record, os.fstat(fd))
                # Before it is there, and with what is there now: whoever is killed at any point leaves a file that is
                # known to be a tenure's.
                self._remember([mark, *self._there_already()])
                self._refuse_odd()
                # Replaced in one step: whoever reads it finds the old number or the new one, never half of one.
                fresh.replace(self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    fresh.unlink()
                raise
        self._written = mark

    def release(self) -> None:
        """Remove the file, if it still is the one that we wrote, and let go. A second release does nothing."""
        hold, self._hold = self._hold, None
        if hold is None:
            return
        try:
            # Asked anew: the file of a successor may hold the very same number, as in containers; a forked child has none.
            hold.check()
            if self._written is not None and self._there() == self._written:
                self.path.unlink()
        except (Error, OSError):
            # It stays, and is judged with its lease.
            pass
        finally:
            hold.release()

    def inspect(self) -> LeaseStatus:
        """Who has the file, by its lease. Writes nothing."""
        return self._lease.inspect()

    def __enter__(self) -> PidFile:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _outwait_an_old_file(self, hold: Hold, deadline: float) -> None:
        began = self._clock.awake()
        while (left := self._to_wait(self._clock.awake() - began)) > 0:
            if self._clock.awake() + left > deadline:
                raise self._busy(left)
            self._clock.sleep(min(left, 1.0))
            hold.check()

    def _to_wait(self, watched: float) -> float:
        """Seconds until a file that tenure has not written, and that was *watched* so long, may be taken over."""
        with told(str(self.path), "read a pid file"):
            content = self._content()
            if content is None or self._is_ours(content):
                return 0.0
            # By the file system's own clock: that of a file which was made there a moment ago.
            age = self._now_by_the_file_system() - os.stat(self.path, follow_symlinks=False).st_mtime
        # A file from the future would be young for ever: it is as old as we have seen it be there.
        return max(0.0, self._patience - max(watched, age))

    def _content(self) -> bytes | None:
        self._refuse_odd()
        try:
            fd = open_file(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read(_MAX_BYTES)

    def _refuse_odd(self) -> None:
        if os.path.lexists(self.path) and (self.path.is_symlink() or not self.path.is_file()):
            raise StoreError(
                f"what stands at the pid file's name is no file. path=`{self.path}`",
                hint="it was not followed, read or changed; find out who put it there, and remove it",
            )

    def _is_ours(self, content: bytes) -> bool:
        """Whether a tenure wrote it, and nobody since: then the lease, which we have, has judged whoever did."""
        return _mark(content, os.stat(self.path, follow_symlinks=False)) in self._remembered()

    def _there(self) -> _Mark | None:
        content = self._content()
        return None if content is None else _mark(content, os.stat(self.path, follow_symlinks=False))

    def _there_already(self) -> list[_Mark]:
        """The mark of the file that is there, if a tenure wrote it."""
        mark = self._there()
        return [mark] if mark is not None and mark in self._remembered() else []

    def _remembered(self) -> list[_Mark]:
        try:
            marks = json.loads(self._written_at.read_bytes())
        except (OSError, ValueError, RecursionError):
            return []
        return marks if isinstance(marks, list) else []

    def _remember(self, marks: list[_Mark]) -> None:
        fresh = self._written_at.with_name(f".{secrets.token_hex(8)}")
        fresh.write_text(json.dumps(marks))
        fresh.replace(self._written_at)

    def _now_by_the_file_system(self) -> float:
        fresh = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        fd = open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            return os.fstat(fd).st_mtime
        finally:
            os.close(fd)
            fresh.unlink()

    def _busy(self, left: float) -> WriterBusyError:
        return WriterBusyError(
            f"a pid file that tenure has not written is too young to be taken over. path=`{self.path}`, "
            f"verdict=`unknown`, reason=`no_identity`, retry_after_s=`{left:.1f}`",
            hint="if you know that its process has ended, remove the file",
            holder=str(self.path),
            judgement=_BY_HAND,
            fence=0,
            label=None,
            since=None,
            retry_after_s=left,
        )


def _mark(content: bytes, status: os.stat_result) -> _Mark:
    return [content.decode("ascii", "replace"), status.st_ino, status.st_mtime_ns]
