"""Trying again: only where nothing was applied, and the load with the write, since the old load is what was refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tenure.sql._errors import FenceError
from tenure.sql._pin import Pin

_applied: ContextVar[list[Pin] | None] = ContextVar("tenure_sql_applied", default=None)


def record(pin: Pin) -> None:
    """A commit took effect within the current attempt, if there is one."""
    applied = _applied.get()
    if applied is not None:
        applied.append(pin)


@contextmanager
def recording(applied: list[Pin]) -> Iterator[None]:
    """One attempt, whose commits are noted in *applied*."""
    reset = _applied.set(applied)
    try:
        yield
    finally:
        _applied.reset(reset)
        for pin in applied:
            record(pin)


class Attempts:
    """
    The attempts of one call, at most *tries*, with pauses that grow from *pause* to *longest* seconds.

    A pause is a random part of its limit, so that those who met once do not meet again.
    """

    def __init__(self, tries: int, pause: float, longest: float) -> None:
        if tries < 1 or not 0 <= pause <= longest:
            raise ValueError(f"tries must be at least 1, and 0 <= pause <= longest, not {tries}, {pause}, {longest}")
        self._tries, self._limit, self._longest = tries, pause, longest

    def pause(self, error: FenceError, applied: list[Pin]) -> float | None:
        """How long to wait before the next one; None if there must be none."""
        self._tries -= 1
        if self._tries < 1 or error.applied is not False or error.retry == "never":
            return None
        if applied:
            # The call has several transactions, and an earlier one has committed: all of it again would apply that twice.
            return None
        limit, self._limit = self._limit, min(self._longest, self._limit * 2)
        return random.uniform(0, limit)
