"""
What a look would otherwise have to pass over for ever: claims far below the current one, their beats and lifelines, go.

Whoever takes a fence may remove what is KEPT below it, at any time and as often as it likes. The highest claim is never
among that, so the fence does not fall. A contender that stalled until its number was collected can create it again; it
looks above its own claim, finds a higher one, and goes back. A crash half-way leaves some for the next time.
"""

from __future__ import annotations

from tenure._lease import _keys, _log
from tenure._lease._lifelines import Lifelines
from tenure._lease._sight import read_claim
from tenure.errors import Error, RecordError
from tenure.stores import Store, as_directory

KEPT = 1000
# Not at each acquire, since it takes a list of all claims; and fewer at a time where each removal is a request.
_EVERY, _EVERY_REMOTE = 256, 16


def collect(store: Store, fence: int) -> None:
    """
    Remove what is too old to matter, if *fence*, which is ours, is one of those at which that is done.

    Never raises for a store that fails: what is left over costs time and nothing else.
    """
    every = _EVERY_REMOTE if as_directory(store) is None else _EVERY
    if fence <= KEPT or fence % every:
        return
    try:
        # Twice as many as were added since the last time, so that whatever was left over comes to its end too.
        _collect(store, up_to=fence - KEPT, at_most=2 * every)
    except Error as error:
        _log.debug("old claims were not collected: %s", error)


def _collect(store: Store, *, up_to: int, at_most: int) -> None:
    lifelines, directory = Lifelines(store), as_directory(store)
    # Not synced in a directory: what a power cut brings back is as old as before.
    remove = store.delete if directory is None else directory.unlink
    removed = 0
    for key in store.list(_keys.PREFIX):
        fence = _keys.fence_of(key)
        if removed == at_most or key > _keys.claim(up_to):
            break
        if fence is None:
            continue
        try:
            claim = read_claim(store, fence)
        except RecordError:
            # Kept for the operator, like every record that we do not understand.
            continue
        if claim is not None:
            lifelines.discard(claim.nonce, claim.lifeline)
        # Last the claim, by which the rest is found.
        remove(_keys.beat(fence))
        remove(key)
        removed += 1
