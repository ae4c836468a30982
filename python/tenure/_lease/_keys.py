"""Where the lease keeps what: the only place that spells its keys."""

from __future__ import annotations

PREFIX = "lease/"
BEATS = "lease/beat/"
_DIGITS = 20
# What 20 digits hold and SQL, JSON and file names can carry without a second thought.
MAX_FENCE = 2**63 - 1


def claim(fence: int) -> str:
    """The claim that takes *fence*."""
    return f"{PREFIX}{fence:0{_DIGITS}d}"


def beat(fence: int) -> str:
    """The heartbeat of the claim of *fence*."""
    return f"{BEATS}{fence:0{_DIGITS}d}"


def lifeline(nonce: str) -> str:
    """The lifeline of the claim with *nonce*; the nonce has been checked to be 32 hex digits."""
    return f"{PREFIX}lifeline/{nonce}"


def fence_of(key: str) -> int | None:
    """The fence that the claim under *key* takes, or None if it is no claim's key."""
    return _number(key.removeprefix(PREFIX))


def fence_of_beat(key: str) -> int | None:
    """The fence whose heartbeat lies under *key*, or None if it is no heartbeat's key."""
    return _number(key.removeprefix(BEATS))


def _number(digits: str) -> int | None:
    if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    fence = int(digits)
    return fence if 0 < fence <= MAX_FENCE else None
