"""
Where the log begins, where it ends, and where its newest snapshot is.

Slots above the floor are filled without a gap, so the end is found by doubling steps and halving them: a few reads, whatever the
length. A list of a directory or bucket with a million keys would take longer than everything else.
"""

from __future__ import annotations

from tenure._commit import _keys
from tenure.errors import StoreUnavailableError
from tenure.stores import Store

# Each time round, somebody must have collected the very slots that were looked at.
_ATTEMPTS = 10


def floor(store: Store, *, at_least: int = 0) -> int | None:
    """
    The slot below which entries may be gone; None where there is no log.

    Raises:
        StoreUnavailableError: a floor that must be there, the first one or *at_least*, is not in the list: the list is not
            to be believed.
    """
    found = [slot for key in store.list(_keys.FLOORS) if (slot := _keys.slot_of(key, _keys.FLOORS)) is not None]
    if found and found[0] == 0 and found[-1] >= at_least:
        return found[-1]
    if not found and not at_least and store.read(_keys.floor(0)) is None:
        return None
    raise StoreUnavailableError(
        f"the store's list lacks a record that is there. store=`{store.url}`, key=`{_keys.floor(at_least)}`",
        hint="a stale directory cache, or a cleaner that removes records",
    )


def snapshots(store: Store, floor_: int) -> list[int]:
    """The slots of the snapshots that are noted, oldest first: that at *floor_*, unless it is 0, and those above it."""
    after = _keys.snapshot(floor_) if floor_ else ""
    slots = (_keys.slot_of(key, _keys.SNAPSHOTS) for key in store.list(_keys.SNAPSHOTS, after=after))
    return [floor_] * (floor_ > 0) + [slot for slot in slots if slot is not None]


def ends(store: Store, *, known: int = 0, at_least: int = 0) -> tuple[int, int]:
    """
    The floor and the newest slot that is filled; (0, 0) where there is no log.

    Args:
        store: where the log is.
        known: a slot that was filled when it was last seen: the search begins there.
        at_least: a floor that has been seen before.
    """
    low = floor(store, at_least=at_least)
    if low is None:
        return 0, 0
    for _ in range(_ATTEMPTS):
        head = _end(store, max([known, low, *snapshots(store, low)]))
        now = floor(store, at_least=low)
        # A slot that was collected meanwhile looked like the end, and one that was collected before may hold a ghost.
        if now == low:
            return low, head
        assert now is not None
        low = now
    raise StoreUnavailableError(
        f"the log is collected as fast as it is read. store=`{store.url}`", hint="try again in a moment"
    )


def _end(store: Store, filled: int) -> int:
    step = 1
    while store.read(_keys.entry(filled + step)) is not None:
        filled += step
        step *= 2
    # Filled at `filled`, free at `filled + step`.
    while step > 1:
        step //= 2
        if store.read(_keys.entry(filled + step)) is not None:
            filled += step
    return filled
