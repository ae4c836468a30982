"""
The outbox: commits that were prepared, so that whoever comes next can land what their writer did not get to.

There are two strengths. What has *landed* is never lost. What is *prepared* survives the crash of its writer and of its host,
and is landed later exactly once, or reported; never dropped, and never put in front of newer commits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import TracebackType

from tenure._clock import SystemClock
from tenure._commit._author import Author
from tenure._commit._database import Database
from tenure._commit._entry import check_id
from tenure._commit._outbox_recovery import Landing, RecoveryReport, recover
from tenure._commit._outbox_table import SCHEMA, VERSION, OutboxEntry, Settled, State, Table
from tenure._commit._standing import Standings
from tenure._failpoints import reach
from tenure._lease._hold import Hold


class Outbox:
    """
    Prepared commits, in a SQLite file that the writers of one checkout share.

    An entry is bytes, and landing it is your function: the outbox knows nothing of what a commit is. The order is: `prepare`,
    put the commit into your log, `landed`; if the log has refused it, `withdraw`. The next writer calls `recover` under its
    hold, before it reads anything.

    Each change of state is durable when the method returns, and happens only from the states it names. So a writer that
    withdraws and a recovery that lands exclude each other: exactly one of them is told that it may.

    Args:
        file: where it lies, or a `Database` to keep it in, which stays its maker's to close.

    Raises:
        RecordTooNewError: a newer tenure wrote the file.
        RecordError: it is damaged or no database of ours; it is kept.
        StoreError: it cannot be read or written.

    Example:
        >>> import tempfile
        >>> outbox = Outbox(tempfile.mkdtemp() + "/outbox.db")
        >>> lease = WriterLease("memory:payments")
        >>> with lease.acquire() as hold:  # a writer prepares, and gets no further
        ...     outbox.prepare("order-17", b"pay 12", author=hold)
        'prepared'
        >>> ledger = {}
        >>> def land(entry):
        ...     ledger.setdefault(entry.commit_id, entry.data)
        ...     return "landed"
        >>> with lease.acquire() as hold:  # the next one
        ...     outbox.recover(hold, land).landed
        1
        >>> ledger
        {'order-17': b'pay 12'}
        >>> outbox.close()
    """

    def __init__(self, file: str | os.PathLike[str] | Database) -> None:
        self._owned: Database | None = None
        if isinstance(file, Database):
            self._table = Table(file)
            self._table.make()
        else:
            self._owned = Database(file, schema=SCHEMA, version=VERSION)
            self._table = Table(self._owned)

    def prepare(self, commit_id: str, data: bytes, *, author: Hold | Author, slot: int | None = None) -> State:
        """
        Write an entry, durably, before anything of the commit is sent; and say what state it is in then.

        `prepared`: go on and put it. Any other state is that of an earlier attempt with this id, of the same data: `landing`
        or `conflicted` are a recovery's to decide, and `landed` needs nothing more. One that was withdrawn is prepared anew,
        with whatever data.

        When this raises a `StoreError` whose `applied` is None, the entry may be there: `withdraw` it before you report that
        the commit has failed.

        Args:
            commit_id: 1 to 100 letters, digits and ``. _ : -``; a commit that is tried again has the same one.
            data: what `land` will need.
            author: the hold it is written under.
            slot: the place in the log that it is meant for; `undecided_floor` keeps the log from forgetting that place.

        Raises:
            ValueError: the id is not one, or stands for other data already.
            StoreError: it cannot be written.
        """
        check_id(commit_id)
        writer = Author.from_hold(author) if isinstance(author, Hold) else author
        now = SystemClock().wall()
        with self._table.transaction():
            state = self._prepare(commit_id, data, writer, slot, now)
        reach("outbox.prepared")
        return state

    def _prepare(self, commit_id: str, data: bytes, author: Author, slot: int | None, now: str) -> State:
        found = self._table.find(commit_id)
        if found is not None and found[0] == "withdrawn":
            self._table.forget([commit_id])
            found = None
        if found is None:
            self._table.insert(commit_id, data, author, slot, now)
            return "prepared"
        state, before = found
        if before != data:
            raise ValueError(f"this id stands for another commit already: {commit_id!r}, which is {state}")
        self._table.prepare_again(commit_id, author, slot, now)
        return state

    def landed(self, commit_id: str) -> bool:
        """Say that it is in the log. False if that is not to be believed: it was withdrawn, is conflicted, or is not here."""
        return self._table.landed(commit_id)

    def withdraw(self, commit_id: str) -> bool:
        """
        Take it back, once the log has refused it or nothing was sent. True: nobody lands it any more.

        False: a recovery has taken it on, or decided it (or there is no such entry). Do not report a failure then: ask the log
        for the commit's id.
        """
        return self._table.withdraw(commit_id)

    def mark_landing(self, commit_id: str, fence: int) -> bool:
        """Take it on, under the hold with *fence*: from `prepared`, or from a recovery with a lower fence. False: not yours."""
        return self._table.mark(commit_id, fence)

    def settle(self, commit_id: str, outcome: Settled, *, fence: int, note: str | None = None) -> bool:
        """Decide what was taken on with *fence*. False: a higher fence has taken it from you, or its writer has said `landed`."""
        return self._table.settle(commit_id, outcome, fence, note)

    def get(self, commit_id: str) -> OutboxEntry | None:
        """The entry with this id, or None."""
        heading = self._table.heading(commit_id)
        data = None if heading is None else self._table.data(heading.number)
        return None if heading is None or data is None else heading.entry(data)

    def entries(self, state: State | None = None) -> Iterator[OutboxEntry]:
        """All entries, or those in *state*, in the order of preparing; one at a time, so that memory does not grow."""
        for page in self._table.pages(state):
            for heading in page:
                data = self._table.data(heading.number)
                if data is not None:
                    yield heading.entry(data)

    def count(self, state: State) -> int:
        """How many entries are in *state*."""
        return self._table.count(state)

    def undecided_floor(self) -> int | None:
        """
        The lowest slot of any entry that is not decided; None if there is none.

        No log may collect this slot or one above it. An entry that was skipped, failed or not yet tried is undecided like any
        other; one that was prepared without a slot aims at none, and is not counted.
        """
        return self._table.floor()

    def recover(
        self,
        hold: Hold,
        land: Callable[[OutboxEntry], Landing],
        *,
        standings: Standings | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> RecoveryReport:
        """
        Land what other writers have prepared and not landed. Run it after the log was sealed, before anything is read.

        Entries of writers that live, or may, are skipped and stay landable. Each other one is marked with this hold's fence,
        durably, and then given to *land*, in the order of preparing. *land* looks first whether the log has the id already,
        and answers

        - `"landed"`: it is in the log, now or since before;
        - `"conflicted"`: what it changes has moved since; it is kept and reported;
        - `"undecided"`: nobody can tell yet; it is tried again by the next recovery;

        or one of them with a note for people, as ``("conflicted", "a.txt has moved")``.

        An error that says that nothing more can land now (fenced, the store, a commit whose outcome is unknown) ends the
        recovery, with everything before it settled. Any other is the entry's own: it is noted there, and the others go on,
        since one that can never land must not keep the rest from landing.

        It can be cut off anywhere and run again: *land* may meet an entry that it has landed already.

        Args:
            hold: a current one; asked again for each batch.
            land: puts one entry into the log, with this hold's fence.
            standings: who is alive; by default each writer's process is judged, and all below this fence count as replaced.
            progress: called after each batch with how many are done, and how many there were at the start.

        Raises:
            FencedError: another writer has taken over.
            StoreError: the outbox or the log failed.
            ValueError: *land* gave another answer.
        """
        return recover(self._table, hold, land, standings or Standings(fence=hold.fence), progress)

    def forget_decided(self, *, keep: int = 0) -> int:
        """Remove what has landed or was withdrawn, but for the newest *keep*; how many. What is conflicted stays."""
        removed = 0
        while done := self._table.done(keep):
            removed += self._table.forget(done)
        self._table.forget_writers()
        return removed

    def forget(self, commit_id: str) -> bool:
        """Remove one that is decided, as a conflicted one that somebody has looked at. False if there is none."""
        return self._table.forget([commit_id]) == 1

    def close(self) -> None:
        """Close the file, unless it was given as a database. A second close does nothing."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Outbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
