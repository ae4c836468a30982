"""
The only reader of time.

Two clocks, because a lease needs one that is too slow and one that is too fast. Whoever *waits* for a holder to fall
silent uses the slow one (awake time: a machine that slept has not watched anybody); whoever *holds* uses the fast one
(it counts suspend), so that a holder stops believing before a waiter starts. Wall time is for people. Python's own
`time.monotonic` differs between systems on what it does in suspend, hence the core's clocks.
"""

from __future__ import annotations

import math
import select
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Protocol

from tenure._core import awake_ns, boottime_ns


class Clock(Protocol):
    """Time as the lease sees it, in seconds; a test brings its own."""

    def awake(self) -> float:
        """Seconds on a clock that stands still while the machine sleeps."""

    def elapsed(self) -> float:
        """Seconds on a clock that counts while the machine sleeps."""

    def sleep(self, seconds: float, *, unless: Sequence[int] = ()) -> None:
        """Wait, interruptibly; no longer than until one of the descriptors *unless* is readable."""

    def wall(self) -> str:
        """The time of day in UTC, ISO 8601, for people only."""


class SystemClock:
    """The machine's clocks."""

    def awake(self) -> float:
        return awake_ns() / 1e9

    def elapsed(self) -> float:
        return boottime_ns() / 1e9

    def sleep(self, seconds: float, *, unless: Sequence[int] = ()) -> None:
        if unless:
            wait_readable(unless, seconds)
        else:
            time.sleep(seconds)

    def wall(self) -> str:
        return datetime.now(timezone.utc).isoformat(timespec="seconds")


def wait_readable(descriptors: Sequence[int], seconds: float) -> bool:
    """Whether one of *descriptors* is readable within *seconds*."""
    if sys.platform == "win32":
        # Nothing there hands out such descriptors.
        time.sleep(seconds)
        return False
    # Not select.select: it cannot take a descriptor above 1023.
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    # Rounded up, or the last millisecond would be waited for in circles.
    return bool(poll.poll(math.ceil(seconds * 1000)))


def iso(nanoseconds: int) -> str | None:
    """A file's time stamp as people read it: UTC, ISO 8601; None if it is of no year that they know."""
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, timezone.utc).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        # Anybody who may write the file may set its times, also to before the year 1 or after 9999.
        return None


def seconds_since(moment: str) -> float:
    """How long ago *moment* was, as `iso` or `Clock.wall` wrote it, by this machine's clock. For people only."""
    return (datetime.now(timezone.utc) - datetime.fromisoformat(moment)).total_seconds()
