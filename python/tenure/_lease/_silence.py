"""How long one observer has watched a holder be silent: the only way in which time enters a takeover."""

from __future__ import annotations

# A gap between two looks counts for two polls of this length at most. So a pause that froze both sides (a suspended
# machine, a stopped virtual machine, a debugger) is not taken for silence of the holder, who will beat again.
_POLL_S = 1.0


class Silence:
    """
    The watch over one claim and its beat, in seconds of awake time.

    Any change starts again. It is the record's own ttl and skew that must pass, not the observer's.
    """

    def __init__(self) -> None:
        self._seen: object = None
        self._looked_at = 0.0
        self._watched = 0.0

    def look(self, seen: object, now: float, *, patience: float) -> float:
        """
        Count a look that saw *seen* at *now* (awake clock), and say how long it has been watched unchanged.

        *patience* is ttl + skew of the record; a short one shrinks what a gap may count for.
        """
        if seen == self._seen:
            self._watched += min(max(0.0, now - self._looked_at), 2 * min(_POLL_S, patience / 10))
        else:
            self._seen, self._watched = seen, 0.0
        self._looked_at = now
        return self._watched
