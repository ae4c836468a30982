"""
Giving up old entries: first the floor, durably; then what lies below it, except the seals.

A collector that stalls here and goes on under a successor does no harm: its snapshot is a true entry of the log, every reader
looks at the floor after it has read, and the seals that refuse late writers are never removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure._commit import _keys
from tenure._commit._entry import Entry
from tenure._commit._put import Putter
from tenure._failpoints import reach
from tenure._lease._hold import Hold

if TYPE_CHECKING:
    from tenure._commit._log import CommitLog
    from tenure.stores import Store


def collect(log: CommitLog, putter: Putter, hold: Hold, below: int, *, undecided: int | None) -> int:
    """See `LogWriter.collect`."""
    if undecided is not None and below > undecided:
        raise ValueError(
            f"an entry that is not decided was sent to slot {undecided}: the floor cannot pass it, and so not be {below}. "
            "Recover the outbox first"
        )
    hold.check()
    floor = log.floor
    if below > floor:
        there = log.at(below)
        if there is None or there.kind != "snapshot":
            raise ValueError(f"there is no snapshot at slot {below} of {log.store.url}: a floor needs one to stand on")
        putter.put_clearly(_keys.snapshot(below), _keys.NOTE)
        putter.put_clearly(_keys.floor(below), _keys.NOTE)
        floor = below
    reach("log.floor")
    return _remove_below(log.store, floor)


def _remove_below(store: Store, floor: int) -> int:
    removed = 0
    for key in store.list(_keys.PREFIX):
        slot = _keys.slot_of(key)
        if slot is None or slot >= floor:
            break
        if not _is_seal(store, key):
            store.delete(key)
            removed += 1
    # The first floor stays: it says that there is a log.
    for directory in (_keys.SNAPSHOTS, _keys.FLOORS):
        for key in store.list(directory):
            if 0 < (_keys.slot_of(key, directory) or 0) < floor:
                store.delete(key)
    return removed


def _is_seal(store: Store, key: str) -> bool:
    stored = store.read(key)
    return stored is not None and Entry.decode(key, stored.data).kind == "seal"
