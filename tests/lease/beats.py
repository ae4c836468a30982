"""The heartbeat as a file, for tests of what writes it."""

from __future__ import annotations

import json
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


def make_unknowable(store: Path) -> None:
    """Change the claim, in its own file, into one from another machine: its holder does not notice."""
    path = store / _keys.claim(1)
    claim = json.loads(path.read_bytes())
    claim["holder"]["boot"], claim["lifeline"] = OTHER_BOOT, None
    path.write_text(json.dumps(claim))


def taken(lease: WriterLease) -> int:
    """The fence of a hold that is given back at once."""
    with lease.acquire() as hold:
        return hold.fence


def state_of(hold: Hold) -> str:
    """Its state, which changes behind the back of whoever remembers what it was."""
    return hold.state
