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
from tenure._lifeline import filesystem_of
from tenure.errors import StoreCannotLockError
from tenure.stores import as_directory

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
    _refuse_where_names_are_seen_late(log.store)
    hold.check()
    there = log.at(below) if below > log.floor else None
    # Asked again: a successor may have collected past us since.
    floor = log.floor
    if below > floor:
        if there is None or there.kind != "snapshot":
            raise ValueError(f"there is no snapshot at slot {below} of {log.store.url}: a floor needs one to stand on")
        putter.put_clearly(_keys.snapshot(below), _keys.NOTE)
        putter.put_clearly(_keys.floor(below), _keys.NOTE)
        floor = below
    reach("log.floor")
    return _remove_below(log.store, floor)


def _refuse_where_names_are_seen_late(store: Store) -> None:
    """A reader or a writer that is shown yesterday's directory would not see the floor, and take a ghost for an entry."""
    directory = as_directory(store)
    if directory is not None and filesystem_of(directory.path_of("x").parent) is None:
        raise StoreCannotLockError(
            f"this directory may be on a network file system, where others see names late: nothing is collected. "
            f"store=`{store.url}`",
            hint="keep everything there, or move the store to a local file system, a bucket or a database",
        )


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
