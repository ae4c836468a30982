"""A process of ours that holds a lease in memory, and hears of its loss."""

from __future__ import annotations

import threading
from pathlib import Path

from tenure import Hold, WriterLease
from tenure._lease import _keys
from tenure._store._memory import MemoryStore
from tenure.testing import ManualClock
from tests.helpers import holders
from tests.lease.stores import LONG, put

CLAIM, BEAT = _keys.claim(1), _keys.beat(1)
# As fast as a lease may be, where the pulse's own time must pass.
QUICK = 0.3


def pulses() -> set[str]:
    """The threads of this process that are a pulse, by the kernel's account."""
    found = set()
    for path in Path("/proc/self/task").glob("*/comm"):
        try:
            if path.read_text() == "tenure-pulse\n":
                found.add(path.parent.name)
        except OSError:
            # It has just ended.
            pass
    return found


class Owner:
    """Takes the lease of a memory store and hears of its loss."""

    def __init__(self, *, ttl: float = LONG, clock: ManualClock | None = None) -> None:
        self.store = MemoryStore()
        self.clock = clock or ManualClock()
        self.heard: list[Hold] = []
        self.lost = threading.Event()
        self.hold = WriterLease(self.store, ttl=ttl, on_lost=self._on_lost, clock=self.clock).acquire()

    def _on_lost(self, hold: Hold) -> None:
        self.heard.append(hold)
        self.lost.set()

    def replaced(self, fence: int = 2) -> None:
        put(self.store, _keys.claim(fence), holders.claim(fence))
