"""For the tests of programs that use tenure, and of stores: a clock that only you move, and what every store promises."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tenure._clock import wait_readable
from tenure._store._kit import Promise, check_store
from tenure._store._memory import MemoryStore

__all__ = ["ManualClock", "MemoryStore", "Promise", "check_store"]


class ManualClock:
    """
    A clock that stands still until it is told to go on, for `WriterLease(clock=…)`.

    Its two monotonic times move together, or apart where a test suspends the machine. `sleep` moves it on, so that a
    waiting acquire comes to its end at once.

    Example:
        >>> clock = ManualClock()
        >>> clock.advance(5.0)
        >>> clock.suspend(60.0)
        >>> clock.awake(), clock.elapsed()
        (5.0, 65.0)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._awake = 0.0
        self._elapsed = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass for everybody."""
        with self._lock:
            self._awake += seconds
            self._elapsed += seconds

    def suspend(self, seconds: float) -> None:
        """Let time pass while the machine sleeps: only the clock that counts suspend moves."""
        with self._lock:
            self._elapsed += seconds

    def awake(self) -> float:
        """Seconds; stands still while the machine is suspended."""
        with self._lock:
            return self._awake

    def elapsed(self) -> float:
        """Seconds; goes on while the machine is suspended."""
        with self._lock:
            return self._elapsed

    def sleep(self, seconds: float, *, unless: Sequence[int] = ()) -> None:
        """Move on by *seconds*, unless one of the descriptors is readable."""
        if not unless or not wait_readable(unless, 0.0):
            self.advance(seconds)

    def wall(self) -> str:
        """Always the same moment."""
        return "2001-01-01T00:00:00+00:00"
