"""Where the commit log keeps what: the only place that spells its keys."""

from __future__ import annotations

PREFIX = "log/"
# Which snapshots there are; written after the entry itself, so it may lag behind and never runs ahead.
SNAPSHOTS = "log/snapshot/"
# Below which slot entries may be gone. Written before the first of them is removed.
FLOORS = "log/floor/"
# What a snapshot or a floor says is its key; inside there is only the schema.
NOTE = b'{"v":1}\n'
_DIGITS = 20
MAX_SLOT = 2**63 - 1


def entry(slot: int) -> str:
    """The entry at *slot*."""
    return f"{PREFIX}{slot:0{_DIGITS}d}"


def snapshot(slot: int) -> str:
    """The note that the entry at *slot* is a snapshot."""
    return f"{SNAPSHOTS}{slot:0{_DIGITS}d}"


def floor(slot: int) -> str:
    """The note that entries below *slot* may be gone."""
    return f"{FLOORS}{slot:0{_DIGITS}d}"


def slot_of(key: str, directory: str = PREFIX) -> int | None:
    """The slot that *key* ends in; None if it is not the key of one that lies right in *directory*."""
    digits = key.removeprefix(directory)
    if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    slot = int(digits)
    return slot if slot <= MAX_SLOT else None
