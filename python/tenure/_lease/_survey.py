"""
The fences of a lease by one list, for stores where each question is a request.

A list can lie: stale caches and services that answered with nothing have been seen. So it starts just below a claim that
is known to be there, and one that lacks it is a fault and not an empty lease.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tenure._lease import _keys
from tenure.errors import StoreUnavailableError
from tenure.stores import Store

# What one request brings, with room for what else may lie there. Where there is more, the end is searched for.
_LISTED = 900


class Fences(NamedTuple):
    """The highest fence of any claim, and of any heartbeat; 0 where there is none."""

    claim: int
    beat: int


class Survey:
    """Surveys of one store, each of which knows what the ones before have seen."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known = 0

    def expect(self, fence: int) -> None:
        """Note that the claim of *fence* was there a moment ago."""
        self._known = max(self._known, fence)

    def look(self) -> Fences:
        """
        What is there now.

        Raises:
            StoreUnavailableError: the list is not to be believed.
            StoreError: the store cannot be read.
        """
        found = self._list()
        if found.claim < self._known:
            if self._store.read(_keys.claim(self._known)) is not None:
                raise list_lacks(self._store, self._known)
            # Really gone, with everything above it: somebody has emptied the store.
            self._known = 0
            found = self._list()
        self._known = found.claim
        return found

    def _list(self) -> Fences:
        claim = beat = 0
        keys = self._store.list(_keys.PREFIX, after=_keys.claim(self._known - 1) if self._known else "")
        for number, key in enumerate(keys):
            if (fence := _keys.fence_of(key)) is not None:
                if number >= _LISTED:
                    claim = self._search(claim)
                    return Fences(claim, self._beat_from(claim))
                claim = fence
            elif (fence := _keys.fence_of_beat(key)) is not None:
                if number >= _LISTED:
                    return Fences(claim, self._beat_from(claim))
                beat = fence
            elif key > _keys.beat(_keys.MAX_FENCE):
                break
        return Fences(claim, beat)

    def _search(self, low: int) -> int:
        """The highest fence of any claim, from *low* on, by some short lists: a lease may have been taken for years."""
        step = _LISTED
        while (found := self._first_above(low + step)) is not None:
            low, step = found, 2 * step
        while step > _LISTED // 2:
            step //= 2
            low = self._first_above(low + step) or low
        # None is above low + step, all along.
        return max(_claims_of(self._store, low), default=low)

    def _first_above(self, fence: int) -> int | None:
        return next(_claims_of(self._store, fence), None)

    def _beat_from(self, claim: int) -> int:
        # A heartbeat is made after its claim: below the highest claim there is nothing to learn.
        after = _keys.beat(claim - 1) if claim else ""
        beats = (_keys.fence_of_beat(key) for key in self._store.list(_keys.BEATS, after=after))
        return max((fence for fence in beats if fence is not None), default=0)


def _claims_of(store: Store, above: int) -> Iterator[int]:
    for key in store.list(_keys.PREFIX, after=_keys.claim(above) if above else ""):
        fence = _keys.fence_of(key)
        if fence is None:
            return
        yield fence


def list_lacks(store: Store, fence: int) -> StoreUnavailableError:
    """The error for a list without a claim that is there."""
    return StoreUnavailableError(
        f"the store's list lacks a claim that is there. store=`{store.url}`, fence=`{fence}`",
        hint="a stale cache, or a cleaner that removes records; see `tenure status`",
    )
