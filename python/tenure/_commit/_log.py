"""
The commit log: who may write is decided here, by the slot, and not in the writer's conscience.

Each entry is a write-once record at the next free slot. A new writer first puts a *seal* there, in the very slot where the one
before it would write next; from then on that one is refused. No clock is read and nobody is asked whether anybody lives.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal

from tenure._clock import Clock, SystemClock
from tenure._commit import _keys, _positions
from tenure._commit._entry import Entry
from tenure._commit._put import PATIENCE_S, Putter
from tenure._commit._seal import Burnt, seal
from tenure._commit._writer import LogWriter, Prepared
from tenure._lease._hold import Hold
from tenure.errors import FencedError, RecordError
from tenure.stores import Store, open_store

# How many entries are read between two looks at the floor.
_BATCH = 256

Resolution = Literal["landed", "not_applied", "unknown"]


class CommitLog:
    """
    The log of one store. Reading needs no lease; writing needs a hold of the store's lease.

    Args:
        store: a store, or a URL or path for `open_store`.
        patience_s: seconds for which an unclear answer is asked again, before a commit is called unknown.
        clock: where time comes from; for tests.

    Example:
        >>> log = CommitLog("memory:ledger")
        >>> with WriterLease(log.store).acquire() as hold:
        ...     writer = log.open(hold)
        ...     done = writer.commit({"paid": 12})
        >>> [entry.body for entry in log.read() if entry.kind == "commit"]
        [{'paid': 12}]
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        *,
        patience_s: float = PATIENCE_S,
        clock: Clock | None = None,
    ) -> None:
        self.store: Store = open_store(store) if isinstance(store, (str, os.PathLike)) else store
        self._putter = Putter(self.store, SystemClock() if clock is None else clock, patience_s)
        # A floor that was seen is one that every later list must show; and the end is not before one that was seen.
        self._floor = 0
        self._head = 0

    @property
    def head(self) -> int:
        """
        The newest slot that is filled; 0 while there is no log. A few reads, however long the log is.

        Raises:
            StoreError: the store cannot be read.
        """
        self._floor, self._head = _positions.ends(self.store, known=self._head, at_least=self._floor)
        return self._head

    @property
    def floor(self) -> int:
        """
        The oldest slot that is certainly there; those below may be gone, but for seals. A snapshot stands at it, unless 0.

        Raises:
            StoreError: the store cannot be read.
        """
        self._floor = _positions.floor(self.store, at_least=self._floor) or 0
        return self._floor

    def snapshots(self) -> list[int]:
        """
        The slots of the snapshots that are noted and not collected, oldest first: where reading can begin.

        Raises:
            StoreError: the store cannot be read.
        """
        return _positions.snapshots(self.store, self.floor)

    def newest_snapshot(self) -> int:
        """
        The slot of the newest of them; 0 if there is none.

        Raises:
            StoreError: the store cannot be read.
        """
        return max(self.snapshots(), default=0)

    def open(self, hold: Hold) -> LogWriter:
        """
        Open the log for writing: seal it with the fence of *hold*, so that no earlier writer can put anything there any more.

        State is to be read, and recovery to run, only after this.

        Raises:
            FencedError: somebody has taken over.
            StoreCannotLockError: this store can leave torn records.
            StoreError: the store cannot be read or written.
        """
        sealed = seal(self._putter, hold, known=self._head)
        self._floor, self._head = max(self._floor, sealed.floor), sealed.slot
        return LogWriter(self, self._putter, hold, sealed)

    def shut_out(self, burnt: int) -> bool:
        """
        Seal the log with the fence *burnt*, which `WriterLease.force_release` returned: no earlier holder lands anything after it.

        Without it one that does not notice its loss can land until the next writer seals. False where there is no log, or
        somebody has taken the lease since and sealed it.

        Raises:
            StoreError: the store cannot be read or written; call it again.
        """
        if _positions.floor(self.store) is None:
            return False
        try:
            seal(self._putter, Burnt(self.store, burnt), known=self._head)
        except FencedError:
            return False
        return True

    def read(self, after: int = 0) -> Iterator[Entry]:
        """
        The entries above the slot *after*, oldest first; each is durable before it is handed out.

        Where entries above *after* have been collected, the first is the snapshot that stands at the floor: it replaces all
        that came before it. So a follower that meets a `snapshot` starts over from its body.

        Raises:
            RecordTooNewError: a newer tenure wrote an entry.
            RecordError: an entry is damaged; nothing after it is read.
            StoreError: the store cannot be read.
        """
        position = max(after, self._floor - 1, 0)
        while True:
            batch, more = self._batch(position)
            floor = self.floor
            if floor > position + 1:
                # Overtaken: slots that were just read had been collected, and what stands in a collected slot may be the ghost
                # of an entry, put there by a writer that slept through it all.
                position = floor - 1
                continue
            yield from batch
            position += len(batch)
            if not more:
                return

    def _batch(self, position: int) -> tuple[list[Entry], bool]:
        entries: list[Entry] = []
        more = True
        while more and len(entries) < _BATCH:
            try:
                entry = self._at(position + len(entries) + 1)
            except RecordError:
                if not entries:
                    raise
                # What comes before it is handed out first.
                break
            if entry is None:
                more = False
            else:
                entries.append(entry)
        if entries:
            # Visible is not yet durable: a power cut may still take back the newest. Those before it went first.
            self._at(entries[-1].slot, durable=True)
        return entries, more

    def at(self, slot: int) -> Entry | None:
        """
        The entry at *slot*; None if there is none, or it has been collected.

        Raises:
            RecordError, StoreError: as `read`.
        """
        if slot < 1:
            return None
        found = self._at(slot, durable=True)
        # The floor is asked last: what was read before it rose is what stood there.
        return None if slot < self.floor else found

    def _at(self, slot: int, *, durable: bool = False) -> Entry | None:
        key = _keys.entry(slot)
        stored = self.store.read(key, durable=durable)
        return None if stored is None else Entry.decode(key, stored.data)

    def find(self, commit_id: str) -> int | None:
        """
        The slot of the commit with this id, or of the snapshot that says it replaces it; None if it is not to be found.

        Looks through the log from its newest snapshot on, and through the ids that this one names. An older one is not found.

        Raises:
            RecordError, StoreError: as `read`.
        """
        for entry in self.read(after=self.newest_snapshot() - 1):
            if entry.id == commit_id or commit_id in entry.replaces:
                return entry.slot
        return None

    def resolve(self, attempt: Prepared) -> Resolution:
        """
        Whether *attempt*, which `CommitUnknownError` and an outbox carry, landed.

        `landed` and `not_applied` are final. `unknown`: its slot is still free, so that the request may yet arrive, until a
        later writer seals the log; or the slot was collected, and nobody can tell any more.

        Raises:
            RecordError, StoreError: as `read`.
        """
        mine = Entry.decode(_keys.entry(attempt.slot), attempt.data)
        there = self.at(attempt.slot)
        if there == mine:
            return "landed"
        if there is None and attempt.slot >= self.floor:
            return "unknown"
        # A later writer's recovery may have landed it anew, under its own fence.
        later = self._landed_above(attempt.slot, attempt.id)
        if later:
            return "landed"
        if there is not None and later is False:
            return "not_applied"
        # Nothing else was ever sent to that slot by its writer; so whatever of its reign stood there was this.
        return "landed" if self._reign(attempt.slot) == mine.fence else "unknown"

    def _landed_above(self, slot: int, commit_id: str) -> bool | None:
        """None where the entries that would tell have been collected."""
        expected = slot + 1
        complete = True
        for entry in self.read(after=slot):
            if entry.id == commit_id or commit_id in entry.replaces:
                return True
            complete = complete and entry.slot == expected
            expected = entry.slot + 1
        return False if complete else None

    def _reign(self, slot: int) -> int | None:
        """
        The fence that wrote at *slot*, which was collected: that of the newest seal below it. None if a seal stood there.

        Only seals are believed: what else stands below the floor may be a ghost.
        """
        listed = (_keys.slot_of(key) for key in self.store.list(_keys.PREFIX))
        for found in sorted((one for one in listed if one is not None and one <= slot), reverse=True):
            entry = self._at(found)
            if entry is not None and entry.kind == "seal":
                return None if found == slot else entry.fence
        return None
