"""A log whose writers are replaced while they sleep, as real ones are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tenure import CommitLog, Hold, LogWriter, WriterLease
from tenure._commit import _keys
from tenure._store._memory import MemoryStore
from tenure.stores import Store
from tenure.testing import ManualClock


class Desk:
    """One store, and writers that take it from each other by force, so that none of them is asked and none has let go."""

    def __init__(self, store: Store | None = None, *, patience_s: float = 0.0) -> None:
        self.store: Store = MemoryStore() if store is None else store
        self.clock = ManualClock()
        self.patience_s = patience_s
        self.lease = WriterLease(self.store, ttl=3600.0, clock=self.clock)
        self.holds: list[Hold] = []

    @property
    def memory(self) -> MemoryStore:
        assert isinstance(self.store, MemoryStore)
        return self.store

    def log(self) -> CommitLog:
        """A log that remembers nothing of earlier looks."""
        return CommitLog(self.store, patience_s=self.patience_s, clock=self.clock)

    def hold(self) -> Hold:
        """The lease, taken from whoever has it; who does not notice."""
        status = self.lease.inspect()
        if status.state != "free":
            self.lease.force_release(status.nonce, even_if_alive=True)
        hold = self.lease.acquire()
        self.holds.append(hold)
        return hold

    def writer(self) -> LogWriter:
        """A new writer, whose log is open."""
        return self.log().open(self.hold())

    def bodies(self) -> list[Any]:
        """What a reader sees."""
        return [entry.body for entry in self.log().read() if entry.kind == "commit"]

    def slots(self) -> list[int]:
        """The slots that are filled in the store, ghosts included."""
        return [slot for key in self.store.list("log/") if (slot := _keys.slot_of(key)) is not None]

    def record(self, slot: int) -> dict[str, Any]:
        stored = self.store.read(_keys.entry(slot))
        assert stored is not None
        found = json.loads(stored.data)
        assert isinstance(found, dict)
        return found

    def let_go(self) -> None:
        for hold in self.holds:
            hold.release()


@contextmanager
def desk(store: Store | None = None, *, patience_s: float = 0.0) -> Iterator[Desk]:
    made = Desk(store, patience_s=patience_s)
    try:
        yield made
    finally:
        made.let_go()
