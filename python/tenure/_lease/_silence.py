"""How long one observer has watched a holder be silent: the only way in which time enters a takeover."""

from __future__ import annotations

import threading
from dataclasses import dataclass

# A gap between two looks counts for two polls of this length at most. So a pause that froze both sides (a suspended
# machine, a stopped virtual machine, a debugger) is not taken for silence of the holder, who will beat again.
_POLL_S = 1.0

# What is watched: fence, nonce, and the beat's number and stamp. A list, as JSON gives it back.
Seen = list[int | str | None]


@dataclass(frozen=True, slots=True)
class Watched:
    """What an observer has watched so far, and when it looked last (awake clock)."""

    seen: Seen
    seconds: float
    looked_at: float


class Silence:
    """
    The watch over one claim and its beat, in seconds of awake time. Any change starts again.

    It is the record's own ttl and skew that must pass, not the observer's. What an earlier process of this host has
    watched counts too, with the gap since, so that a short-lived command can take over; but whoever builds on that
    watches one whole renewal interval itself.
    """

    def __init__(self) -> None:
        # Threads may share a lease, and their looks may come in another order than their times.
        self._lock = threading.RLock()
        self._seen: Seen | None = None
        self._looked_at = 0.0
        self._here = 0.0
        self._before = 0.0

    def look(self, seen: Seen, now: float, *, ttl: float, skew: float, earlier: Watched | None = None) -> float:
        """
        Count a look that saw *seen* at *now* (awake clock), and say how many seconds are left until a takeover.

        *earlier* is what an earlier process remembers, and counts at the first look at *seen* only.
        """
        patience = ttl + skew
        poll = min(_POLL_S, patience / 10)
        with self._lock:
            if seen == self._seen:
                self._here += min(max(0.0, now - self._looked_at), 2 * poll)
                self._looked_at = max(now, self._looked_at)
            else:
                self._seen, self._looked_at, self._here, self._before = seen, now, 0.0, 0.0
                if earlier is not None and earlier.seen == seen:
                    self._before = earlier.seconds + max(0.0, now - earlier.looked_at)
            left = patience - self._here - self._before
            if self._before:
                left = max(left, ttl / 3 + 2 * poll - self._here)
            return left

    def forget(self) -> None:
        """Start again: nobody is silent."""
        with self._lock:
            self._seen = None

    def knows(self, seen: Seen) -> bool:
        """Whether *seen* is what is being watched already."""
        return seen == self._seen

    def watched(self) -> Watched | None:
        """What there is to remember for a later process."""
        with self._lock:
            if self._seen is None:
                return None
            return Watched(self._seen, self._here + self._before, self._looked_at)
