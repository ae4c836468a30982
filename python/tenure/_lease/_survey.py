"""
The fences of a lease by one list, for stores where each question is a request.

A list can lie: stale caches and services that answered with nothing have been seen. So it starts just below a claim that
is known to be there, and one that lacks it is a fault and not an empty lease.
"""

from __future__ import annotations

from typing import NamedTuple

from tenure._lease import _keys
from tenure.errors import StoreUnavailableError
from tenure.stores import Store


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
        for key in self._store.list(_keys.PREFIX, after=_keys.claim(self._known - 1) if self._known else ""):
            if (fence := _keys.fence_of(key)) is not None:
                claim = fence
            elif (fence := _keys.fence_of_beat(key)) is not None:
                beat = fence
            elif key > _keys.beat(_keys.MAX_FENCE):
                break
        return Fences(claim, beat)


def list_lacks(store: Store, fence: int) -> StoreUnavailableError:
    """The error for a list without a claim that is there."""
    return StoreUnavailableError(
        f"the store's list lacks a claim that is there. store=`{store.url}`, fence=`{fence}`",
        hint="a stale cache, or a cleaner that removes records; see `tenure status`",
    )
