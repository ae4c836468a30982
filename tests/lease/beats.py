"""The heartbeat as a file, for tests of what writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tenure import Hold, WriterLease
from tenure._lease import _keys
from tenure._lease._beat import read_beat
from tenure._store._file import FileStore
from tests.helpers import processes
from tests.helpers.records import OTHER_BOOT


def beat_of(store: Path, nonce: str) -> tuple[int, bool, int]:
    beat = read_beat(FileStore(store), 1, nonce)
    return beat.number, beat.released, beat.stamp


def nonce_of(store: Path, fence: int = 1) -> str:
    return str(json.loads((store / _keys.claim(fence)).read_bytes())["nonce"])


def until_beaten(store: Path, times: int = 1) -> None:
    nonce = nonce_of(store)
    first = beat_of(store, nonce)[0]
    processes.until(lambda: beat_of(store, nonce)[0] >= first + times, "no beat comes")


@contextmanager
def unknowable(store: Path) -> Iterator[None]:
    """
    Meanwhile the claim, in its own file, is one from another machine, as an observer there would see it.

    Its holder must not look while it is: a claim that says something else is not its own.
    """
    path = store / _keys.claim(1)
    original = path.read_bytes()
    claim = json.loads(original)
    claim["holder"]["boot"], claim["lifeline"] = OTHER_BOOT, None
    path.write_text(json.dumps(claim))
    try:
        yield
    finally:
        path.write_bytes(original)


def taken(lease: WriterLease) -> int:
    """The fence of a hold that is given back at once."""
    with lease.acquire() as hold:
        return hold.fence


def state_of(hold: Hold) -> str:
    """Its state, which changes behind the back of whoever remembers what it was."""
    return hold.state
