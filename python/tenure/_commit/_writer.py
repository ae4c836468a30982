"""Writing to the log: prepare an entry, put it into the next slot, and believe only what the slot holds."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenure._commit import _keys
from tenure._commit._collect import collect
from tenure._commit._entry import Entry, Kind, check_id
from tenure._commit._put import Found, Putter, Unclear
from tenure._commit._seal import Sealed
from tenure._failpoints import reach
from tenure._lease._hold import Hold
from tenure.errors import CommitUnknownError, FencedError, RecordError, StoreError

if TYPE_CHECKING:
    from tenure._commit._log import CommitLog

# How many ids a snapshot names: a commit that is tried again is known as long as no more have followed it.
REMEMBERED_IDS = 4096


@dataclass(frozen=True, slots=True)
class Committed:
    """
    A commit that landed: acknowledged, and never lost.

    Attributes:
        id: the commit's.
        slot: where it stands in the log; also the version of the state that it made.
    """

    id: str
    slot: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """
    A commit before it is put: keep it durably, and it can be landed by whoever finds it.

    Attributes:
        id: the commit's.
        slot: the slot that it is meant for; nothing else is sent there until this is decided.
        data: the entry's bytes.
    """

    id: str
    slot: int
    data: bytes

    @property
    def entry(self) -> Entry:
        """What it says."""
        return Entry.decode(_keys.entry(self.slot), self.data)


class LogWriter:
    """
    One holder's right to append, made by `CommitLog.open`. Its methods may be called from any thread, one at a time.

    After a `FencedError` nothing lands through it any more. After a `CommitUnknownError` the next commit first settles the
    one that is unknown, by sending the very same bytes to the very same slot again.
    """

    def __init__(self, log: CommitLog, putter: Putter, hold: Hold, sealed: Sealed) -> None:
        self._log = log
        self._putter = putter
        self._hold = hold
        self._lock = threading.RLock()
        self._undecided: Prepared | None = None
        self._fenced: FencedError | None = None
        self._ids: deque[str] | None = None
        self.seal = sealed.slot
        self.head = sealed.slot

    @property
    def fence(self) -> int:
        """That of the hold."""
        return self._hold.fence

    def commit(self, body: Any, *, id: str | None = None, base: int | None = None) -> Committed:  # noqa: A002  the field's name
        """
        Append *body*, anything that JSON can carry, and return once it is durable.

        To commit again what may have landed, give the same *id*: it lands once. It is recognised among the newest entries;
        see `CommitLog.find`.

        Args:
            body: what to write. Larger than some 1 MB: put it elsewhere first, and its name in here.
            id: of the commit; 1 to 100 letters, digits and ``. _ : -``. Drawn at random if None.
            base: the newest slot that was read when it was made; the newest there is if None.

        Raises:
            FencedError: somebody has taken over, and `applied` is False.
            CommitUnknownError: no clear answer in time; `CommitLog.resolve(error.attempt)` before anything else.
            StoreError: refused before anything was sent; nothing is applied.
            ValueError: the body is no JSON or too large, or the id is not one.
        """
        with self._lock:
            self.settle()
            if id is not None:
                landed = self.known(id)
                if landed is not None:
                    return landed
            return self.put(self.prepare(body, id=id, base=base))

    def prepare(self, body: Any, *, id: str | None = None, base: int | None = None) -> Prepared:  # noqa: A002
        """
        The commit as it would be put into the next slot; nothing is sent. For an outbox, which keeps it before `put`.

        Raises:
            ValueError: as `commit`.
        """
        return self._prepare("commit", body, id, base)

    def _prepare(
        self, kind: Kind, body: Any, commit_id: str | None, base: int | None, replaces: tuple[str, ...] = ()
    ) -> Prepared:
        with self._lock:
            name = secrets.token_hex(16) if commit_id is None else commit_id
            check_id(name)
            slot = self.head + 1
            read = self.head if base is None else base
            at = self._putter.clock.wall()
            entry = Entry(slot, self.fence, self._hold.nonce, kind, name, read, body, at, replaces)
            return Prepared(name, slot, entry.encode())

    def put(self, prepared: Prepared) -> Committed:
        """
        Put *prepared*, the newest thing this writer prepared, into its slot.

        Raises:
            FencedError, CommitUnknownError, StoreError: as `commit`.
            ValueError: it was prepared for another slot than the next.
        """
        with self._lock:
            self._refuse_if_fenced()
            if self._undecided is not None and self._undecided != prepared:
                self.settle()
            if prepared.slot != self.head + 1:
                raise ValueError(
                    f"prepared for slot {prepared.slot}, but the next one is {self.head + 1}: prepare it anew"
                )
            # A hold that expired or a process that is no longer itself starts nothing; whether we were replaced, the slot says.
            self._hold.check_here()
            reach("log.putting")
            # From here on an interruption leaves it undecided too.
            again, self._undecided = self._undecided is not None, prepared
            try:
                found = self._putter.put(_keys.entry(prepared.slot), prepared.data)
            except Exception:
                # Refused before it was sent, if it never was before.
                self._undecided = prepared if again else None
                raise
            return self._decide(prepared, found, again=again)

    def settle(self) -> Committed | None:
        """
        Decide the commit that is unknown, if there is one, by sending it to its slot again. None if there was none.

        Raises:
            FencedError, CommitUnknownError: as `commit`.
        """
        with self._lock:
            self._refuse_if_fenced()
            if self._undecided is None:
                return None
            prepared = self._undecided
            found = self._putter.put(_keys.entry(prepared.slot), prepared.data)
            return self._decide(prepared, found, again=True)

    def _decide(self, prepared: Prepared, found: Found | Unclear, *, again: bool) -> Committed:
        if isinstance(found, Unclear):
            raise self._unknown(prepared) from found.cause
        reach("log.put")
        if found.data == prepared.data:
            self._undecided = None
            return self._landed(prepared)
        try:
            # Where the only request that was ever sent has been refused, it does not matter what stood there before.
            collected = (again or not found.at_once) and prepared.slot < self._log.floor
            landed = collected and self._log.resolve(prepared) == "landed"
        except StoreError as error:
            raise self._unknown(prepared) from error
        if not collected:
            self._undecided = None
            self._fenced = self._why_fenced(prepared, found.data)
            raise self._fenced
        # We slept so long that the slot was collected. What stands there now may be a ghost, such as the seal of somebody who
        # slept as well, and says nothing about what stood there.
        self._fenced = self._overtaken(prepared)
        if not landed:
            raise self._unknown(prepared) from self._fenced
        self._undecided = None
        return self._landed(prepared)

    def _landed(self, prepared: Prepared) -> Committed:
        self.head = prepared.slot
        if self._ids is not None and prepared.entry.kind == "commit":
            self._ids.append(prepared.id)
        return Committed(prepared.id, prepared.slot)

    def _unknown(self, prepared: Prepared) -> CommitUnknownError:
        return CommitUnknownError(
            f"no clear answer: the commit may have landed, or may yet. commit_id=`{prepared.id}`, slot=`{prepared.slot}`, "
            f"store=`{self._log.store.url}`",
            hint="ask `CommitLog.resolve(error.attempt)` before anything else, or commit again with the same id",
            applied=None,
            commit_id=prepared.id,
            attempt=prepared,
        )

    def _overtaken(self, prepared: Prepared) -> FencedError:
        return FencedError(
            f"the log was written on and collected past our slot. ours=`{self.fence}`, slot=`{prepared.slot}`, "
            f"store=`{self._log.store.url}`",
            hint="stop writing, read again, and acquire anew",
            ours=self.fence,
            current=self.fence,
        )

    def _why_fenced(self, prepared: Prepared, found: bytes) -> FencedError:
        there = Entry.decode(_keys.entry(prepared.slot), found)
        if there.fence < self.fence:
            raise RecordError(
                f"an entry of a lower fence stands behind our seal: somebody writes to the log without this protocol. "
                f"slot=`{there.slot}`, its fence=`{there.fence}`, ours=`{self.fence}`, store=`{self._log.store.url}`",
                hint="stop every writer, and find out which one it is",
                key=_keys.entry(prepared.slot),
                reason="lower fence behind a seal",
            )
        if there.fence > self.fence:
            what = "another writer has taken over and sealed the log"
        else:
            what = "an entry that we never sent stands under our own name: this process was cloned, or restored from a checkpoint"
        return FencedError(
            f"{what}. ours=`{self.fence}`, current=`{there.fence}`, slot=`{there.slot}`, store=`{self._log.store.url}`",
            hint="stop writing, read again, and acquire anew",
            applied=False,
            ours=self.fence,
            current=there.fence,
        )

    def snapshot(self, body: Any) -> Committed:
        """
        Append a snapshot: *body* says all that the entries before it said, so that readers may begin here.

        Raises:
            As `commit`.
        """
        with self._lock:
            self.settle()
            replaces = tuple(self._remembered())
            done = self.put(self._prepare("snapshot", body, None, self.head, replaces))
            reach("log.snapshot")
            # After the entry: whoever finds the note finds the snapshot. Without it, readers begin further back.
            self._putter.put_clearly(_keys.snapshot(done.slot), _keys.NOTE)
            return done

    def collect(self, below: int, *, undecided: int | None) -> int:
        """
        Give up the entries below the slot *below*, at which a snapshot stands; seals stay. Returns how many were removed.

        May be cut off at any point; the next call goes on.

        Args:
            below: the new floor.
            undecided: the lowest slot that any outbox beside this log still has to decide (`Outbox.undecided_floor`), or
                None: no floor passes it, or nobody could say any more what became of that entry.

        Raises:
            FencedError: somebody has taken over; nothing is removed.
            StoreCannotLockError: the store is a directory that may be on a network file system; nothing is removed.
            StoreError: the store cannot be asked or written.
            ValueError: there is no snapshot at *below*, or an undecided entry is below it.
        """
        with self._lock:
            self.settle()
            return collect(self._log, self._putter, self._hold, below, undecided=undecided)

    def known(self, commit_id: str) -> Committed | None:
        """The commit with this id, if it has landed and is recent enough to be found; see `CommitLog.find`."""
        if commit_id not in self._remembered():
            return None
        slot = self._log.find(commit_id)
        return None if slot is None else Committed(commit_id, slot)

    def _remembered(self) -> deque[str]:
        """The ids of the newest commits, oldest first. Read when first asked for; kept up by every commit."""
        if self._ids is None:
            ids: deque[str] = deque(maxlen=REMEMBERED_IDS)
            for entry in self._log.read(after=self._log.newest_snapshot() - 1):
                ids.extend(entry.replaces)
                if entry.kind == "commit":
                    ids.append(entry.id)
            self._ids = ids
        return self._ids

    def _refuse_if_fenced(self) -> None:
        if self._fenced is not None:
            raise FencedError(
                str(self._fenced), hint=self._fenced.hint, ours=self._fenced.ours, current=self._fenced.current
            )
