"""A checkout: a directory that mirrors the datastore, with room for one writer at a time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tenure._commit._author import Author
from tenure._commit._marker import CrashMarker, Run
from tenure._commit._outbox import Outbox
from tenure._commit._standing import Standings, treatment
from tenure._commit._writer import LogWriter
from tenure._datastore._apply import Progress
from tenure._datastore._catalog import Catalog
from tenure._datastore._landing import Lander
from tenure._datastore._lock import CheckoutLock
from tenure._datastore._names import RESERVED
from tenure._datastore._recovery import Recovered, interrupted_runs, restore
from tenure._datastore._retention import Retained
from tenure._datastore._workspace import Workspace
from tenure._datastore._worktree import Worktree
from tenure._datastore._writer import CheckoutWriter
from tenure._judgement import LIFELINE_HELD
from tenure._lease._claim import WorksIn
from tenure._lease._hold import Hold
from tenure._lease._lease import WriterLease
from tenure._lease._sight import LeaseStatus
from tenure._store._failures import told
from tenure.errors import RecordError, WriterBusyError

if TYPE_CHECKING:
    from tenure._datastore._datastore import Datastore

# A reader that is this far behind a snapshot begins there.
_FAR = 1000
# How long a catch-up waits for another one, which is at work on the same files and soon done.
_LOCK_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class CheckoutStatus:
    """
    A checkout at one moment.

    Attributes:
        id: names the checkout; drawn when it was made.
        path: where it lies.
        url: of the datastore.
        position: the version that its files are in.
        newest: the newest version there is.
        lease: who may write now.
        runs: the writers that have, or had, files under way here.
        prepared: commits that are prepared and not decided.
        conflicted: commits that could not land any more; `tenure recover --json` shows them.
    """

    id: str
    path: Path
    url: str
    position: int
    newest: int
    lease: LeaseStatus
    runs: tuple[Run, ...]
    prepared: int
    conflicted: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """
    What a catch-up did.

    Attributes:
        before, after: the version of the files, before and after it.
        files: how many were changed.
        moved_aside: where files are now that somebody had changed and not committed, relative to the checkout.
        recovered: what had to be put right first, or None.
    """

    before: int
    after: int
    files: int
    moved_aside: tuple[str, ...] = ()
    recovered: Recovered | None = None


class Checkout:
    """
    One directory with the datastore's files in it. Made by `Datastore.checkout`; a context manager.

    Reading its files needs nothing of tenure. What tenure keeps there is in `.tenure`.
    """

    def __init__(self, datastore: Datastore, path: str | os.PathLike[str], *, label: str | None = None) -> None:
        self.path = Path(path).absolute()
        self._datastore = datastore
        own = self.path / RESERVED
        with told(str(own), "make the checkout"):
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
        worktree, catalog = Worktree(self.path), Catalog(own / "catalog.db")
        _belong_to(catalog, datastore, self.path)
        self.outbox = Outbox(catalog.database)
        """The commits that are under way here, and those that could not land."""
        self._workspace = Workspace(
            datastore.commits, datastore.blobs, worktree, catalog, self.outbox, CrashMarker(own), label
        )
        self._lock = CheckoutLock(own)
        self._lease: WriterLease = datastore.lease(WorksIn(catalog.id, str(self.path)), label)

    @property
    def id(self) -> str:
        """Names the checkout; drawn when it was made."""
        return self._workspace.catalog.id

    @property
    def position(self) -> int:
        """The version that its files are in; 0 before the first catch-up."""
        return self._workspace.catalog.position

    def writer(self, timeout: float = 0.0, *, progress: Progress | None = None) -> CheckoutWriter:
        """
        Become the writer, waiting up to *timeout* seconds; 0 tries once.

        Lands or reports what a dead writer of this checkout had prepared, puts right what it left half-done, and brings the files to
        the newest version.

        Raises:
            WriterBusyError: somebody else writes, or is at work in this checkout.
            FencedError: we were replaced before we began.
            RecordTooNewError: a newer tenure wrote here.
            StoreError: the datastore or the checkout cannot be read or written.
        """
        clock = self._datastore.clock
        deadline = clock.elapsed() + timeout
        hold = self._lease.acquire(timeout)
        try:
            # A catch-up may be at it, and is soon done.
            self._take_lock(max(deadline - clock.elapsed(), min(timeout, _LOCK_PATIENCE_S)))
            return self._begin(hold, progress)
        except BaseException:
            self._leave(hold)
            raise

    def _begin(self, hold: Hold, progress: Progress | None) -> CheckoutWriter:
        log = self._workspace.log.open(hold)
        writer = CheckoutWriter(self._workspace, hold, log, self._leave)
        try:
            writer.recovered = self._recover(writer, log, hold, progress)
        except BaseException:
            writer.close()
            raise
        return writer

    def _recover(self, writer: CheckoutWriter, log: LogWriter, hold: Hold, progress: Progress | None) -> Recovered:
        workspace, standings = self._workspace, Standings(self._lease, fence=hold.fence)
        runs = interrupted_runs(workspace.marker, standings)
        if runs:
            # To recover is to change files, and who dies in it has died like any other.
            writer.begin()
        lander = Lander(workspace.log, log, workspace.blobs, workspace.outbox)
        landed = workspace.outbox.recover(hold, lander.land, standings=standings, progress=progress)
        died = max((run.author.fence or 0 for run in runs), default=0)
        applier = workspace.applier(aside=f"interrupted/{died}" if died else "aside", progress=progress)
        applier.follow(workspace.log.read(after=self._start()))
        workspace.snapshot = workspace.log.newest_snapshot()
        restored = restore(runs, workspace, hold, applier)
        fences = tuple(run.author.fence or 0 for run in runs)
        return Recovered(landed, fences, tuple(applier.moved_aside), restored)

    def catch_up(self, *, progress: Progress | None = None) -> CaughtUp:
        """
        Bring the files to the newest version, if nobody is at work on them.

        Never touches files while a writer of this checkout is alive or may be. After one that died it takes the lease itself and
        recovers first.

        Raises:
            WriterBusyError: a writer is at work in this checkout, or may be; the files are left alone.
            RecordTooNewError, RecordError: an entry cannot be read; everything before it is applied.
            StoreError: the datastore cannot be read, or the checkout not written.
        """
        before = self.position
        self._take_lock(_LOCK_PATIENCE_S)
        try:
            if self._is_clear():
                applier = self._workspace.applier(
                    aside="aside", before_batch=self._refuse_if_not_clear, progress=progress
                )
                files = applier.follow(self._workspace.log.read(after=self._start()))
                return CaughtUp(before, self.position, files, tuple(applier.moved_aside))
        finally:
            self._lock.release()
            self._workspace.worktree.forget()
        # In-place changes cannot be fenced: only under a claim of our own is it certain that nobody is at it.
        with self.writer(progress=progress) as writer:
            recovered = writer.recovered
        return CaughtUp(before, self.position, recovered.restored, recovered.moved_aside, recovered)

    def recover(self, timeout: float = 0.0, *, progress: Progress | None = None) -> Recovered:
        """
        Put right what a dead writer of this checkout left: its prepared commits, its half-done files.

        Raises:
            As `writer`.
        """
        with self.writer(timeout, progress=progress) as writer:
            return writer.recovered

    def retain(self, *, keep: int | None = None, older_than: float | None = None, timeout: float = 0.0) -> Retained:
        """
        Give up versions that are older than the newest *keep* and than *older_than* seconds, and content that only they had.

        A version is kept if either asks for it. Old versions go as far as the last snapshot before them, and blobs in two steps, so
        that the space of a pass is free after the next one. Skipped, and said so, when the hold is lost.

        Raises:
            WriterBusyError: somebody else writes.
            ValueError: neither is given, or one is out of range.
            StoreError: the store failed; what was not removed is removed next time.
        """
        with self.writer(timeout) as writer:
            return writer.retain(keep=keep, older_than=older_than)

    def status(self) -> CheckoutStatus:
        """
        How the checkout stands. Changes nothing, waits for nobody.

        Raises:
            StoreError: the datastore cannot be read.
        """
        return CheckoutStatus(
            id=self.id,
            path=self.path,
            url=self._datastore.url,
            position=self.position,
            newest=self._workspace.log.head,
            lease=self._lease.inspect(),
            runs=tuple(self._workspace.marker.runs(Standings(self._lease))),
            prepared=self.outbox.count("prepared") + self.outbox.count("landing"),
            conflicted=self.outbox.count("conflicted"),
        )

    def close(self) -> None:
        """Close its files. A writer of it is closed first, by whoever has it."""
        self._workspace.worktree.forget()
        self._workspace.catalog.close()

    def __enter__(self) -> Checkout:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Checkout {self.path} of {self._datastore.url}>"

    def _leave(self, hold: Hold) -> None:
        """Let go of the files, and then of the lease."""
        self._workspace.worktree.forget()
        self._lock.release()
        hold.release()

    def _take_lock(self, timeout: float) -> None:
        if not self._lock.take(self._datastore.clock, timeout):
            raise self._locked()

    def _start(self) -> int:
        """After which slot to read on."""
        position = self.position
        newest = self._workspace.log.newest_snapshot()
        return newest - 1 if newest and (position == 0 or newest > position + _FAR) else position

    def _is_clear(self) -> bool:
        """
        Whether nothing is under way in these files, nor can come to be: False if it takes a claim to know.

        Raises:
            WriterBusyError: somebody is at work on them, or may be.
        """
        standings = Standings(self._lease)
        clear = not interrupted_runs(self._workspace.marker, standings)
        seen = self._lease.inspect()
        if seen.checkout is None or seen.checkout.id != self.id or _has_let_go(seen):
            return clear
        standing = standings.of(Author(seen.fence, seen.nonce, seen.holder))
        what = treatment(standing).catch_up
        if what == "refused":
            raise self._at_work(seen)
        # One that is gone, and left no marker, had not begun to change anything.
        return clear and what == "after_recovery"

    def _refuse_if_not_clear(self) -> None:
        if not self._is_clear():
            raise self._at_work(self._lease.inspect())

    def _at_work(self, seen: LeaseStatus) -> WriterBusyError:
        reason = None if seen.judgement is None else seen.judgement.reason
        return WriterBusyError(
            f"the writer works in this checkout, or may. holder=`{seen.holder_for_people()}`, fence=`{seen.fence}`, "
            f"doing=`{seen.label}`, reason=`{reason}`, checkout=`{self.path}`",
            hint="wait until it ends; its files are left alone",
            fence=seen.fence,
            holder=seen.holder_for_people(),
            judgement=seen.judgement,
            label=seen.label,
            since=seen.since,
            retry_after_s=seen.retry_after_s,
        )

    def _locked(self) -> WriterBusyError:
        return WriterBusyError(
            f"another process is changing the files of this checkout. checkout=`{self.path}`",
            hint="try again; `tenure status` on the checkout shows who",
            fence=0,
            holder="somebody on this machine",
            judgement=LIFELINE_HELD,
            label=None,
            since=None,
            retry_after_s=None,
        )


def _has_let_go(seen: LeaseStatus) -> bool:
    return seen.judgement is not None and seen.judgement.reason == "released"


def _belong_to(catalog: Catalog, datastore: Datastore, path: Path) -> None:
    found = catalog.about("datastore")
    if found is None:
        catalog.note("datastore", datastore.id)
        catalog.note("url", datastore.url)
    elif found != datastore.id:
        catalog.close()
        raise RecordError(
            f"this checkout is one of another datastore. checkout=`{path}`, its datastore=`{found}`, "
            f"this one=`{datastore.id}`",
            hint="choose another directory, or the datastore that it was made from",
            key=str(path),
            reason="another datastore",
        )
