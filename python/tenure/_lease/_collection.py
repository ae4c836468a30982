"""
What a look would otherwise have to pass over for ever: claims far below the current one, their beats and lifelines, go.

Whoever takes a fence may remove what is KEPT below it, at any time and as often as it likes. The highest claim is never
among that, so the fence does not fall. A contender that stalled until its number was collected can create it again; it
looks above its own claim, finds a higher one, and goes back. A crash half-way leaves some for the next time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from tenure._lease import _keys, _log
from tenure._lease._lifelines import Lifelines
from tenure._lease._sight import read_claim
from tenure.errors import Error, RecordError
from tenure.stores import Store, as_directory

KEPT = 1000
# A directory is listed now and then, and what is too old goes at once. Where each removal is a request, every acquire removes
# the one claim that has just become too old, found without a list; and now and then one of them looks for what was left over.
_EVERY, _EVERY_REMOTE = 256, 16
_LEFT_OVER = 2
# So many are taken from a list: fewer than one request brings.
_SEEN = 500


def collect(store: Store, fence: int) -> None:
    """
    Remove what is too old to matter, for the new holder of *fence*. It costs at most three requests, and ten at every 16th fence.

    Never raises for a store that fails: what is left over costs time and nothing else.
    """
    oldest = fence - KEPT
    if oldest <= 0:
        return
    removal = _Removal(store)
    try:
        if removal.costs_requests:
            removal.of(oldest)
            if fence % _EVERY_REMOTE == 0:
                found = list(itertools.islice(_up_to(oldest, store), _SEEN))
                # By chance, so that those which have to stay hold up no other.
                for one in random.sample(found, min(_LEFT_OVER, len(found))):
                    removal.of(one)
        elif fence % _EVERY == 0:
            # Twice as many as were added since the last time, so that whatever was left over comes to its end too.
            left = 2 * _EVERY
            for one in _up_to(oldest, store):
                left -= removal.of(one)
                if not left:
                    break
    except Error as error:
        _log.debug("old claims were not collected: %s", error)


def _up_to(highest: int, store: Store) -> Iterator[int]:
    """The fences of claims that are there, the lowest first."""
    for key in store.list(_keys.PREFIX):
        if key > _keys.claim(highest):
            break
        fence = _keys.fence_of(key)
        if fence is not None:
            yield fence


class _Removal:
    """Removes claims, each with its beat and its lifeline."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lifelines = Lifelines(store)
        directory = as_directory(store)
        self.costs_requests = directory is None
        # Not synced in a directory: what a power cut brings back is as old as before.
        self._remove = store.delete if directory is None else directory.unlink

    def of(self, fence: int) -> bool:
        """Remove the claim of *fence*; False if there is none to remove."""
        try:
            claim = read_claim(self._store, fence)
        except RecordError:
            # Kept for the operator, like every record that we do not understand.
            return False
        if claim is None:
            return False
        self._lifelines.discard(claim.nonce, claim.lifeline)
        # Last the claim, by which the rest is found.
        self._remove(_keys.beat(fence))
        self._remove(_keys.claim(fence))
        return True
