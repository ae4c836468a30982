"""What every store says about a record's bytes: how many there may be, and which version they are."""

from __future__ import annotations

import hashlib

MAX_SIZE_BYTES = 1 << 20
"""
No record is larger. Claims, beats and log entries are a few hundred bytes to a few KiB; whatever is a thousand times
that was not written by us, and reading it whole would let a stranger choose how much memory we use.
"""


def check_data(data: bytes) -> None:
    """Raise `ValueError` unless *data* may be stored."""
    if len(data) > MAX_SIZE_BYTES:
        raise ValueError(f"too large for a record. size_bytes={len(data)}, limit_bytes={MAX_SIZE_BYTES}")


def version_of(data: bytes) -> str:
    """
    The version of a record that is known by its content alone: equal bytes, equal version.

    Not the time stamp or the inode: two writes within one tick of the file system's clock have the same time stamp, and
    an inode number is given out again as soon as its file is gone.
    """
    return hashlib.sha256(data).hexdigest()
