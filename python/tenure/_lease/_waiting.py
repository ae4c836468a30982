"""Waiting for a lease, within a time."""

from __future__ import annotations

from tenure._clock import Clock
from tenure._identity import Watch
from tenure._lease._sight import LeaseStatus
from tenure.errors import IdentityError


class Waiting:
    """Waits between two looks, no longer than until the holder's end where that can be watched, and keeps the time."""

    def __init__(self, clock: Clock, timeout: float) -> None:
        self._clock = clock
        self._deadline = clock.awake() + timeout
        self._watch: Watch | None = None
        self._fence = 0

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()

    def is_over(self) -> bool:
        """Whether there is no time left."""
        return self._clock.awake() >= self._deadline

    def left(self, seconds: float) -> float:
        """At most *seconds*, and no more than is left."""
        return max(0.0, min(seconds, self._deadline - self._clock.awake()))

    def a_while(self, seconds: float, seen: LeaseStatus | None) -> None:
        """Wait at most *seconds* for the end of the holder that was *seen*."""
        if seen is not None and seen.fence != self._fence:
            self._let_go()
            self._fence = seen.fence
            self._watch = _watch(seen)
        self._clock.sleep(self.left(seconds), unless=self._watch)
        if self._watch is not None and not self._watch.alive():
            # Heard once. The lease may be held on: by a command that carries the lifeline.
            self._let_go()

    def _let_go(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


def _watch(seen: LeaseStatus) -> Watch | None:
    try:
        return None if seen.holder is None else Watch(seen.holder)
    except IdentityError:
        return None
