"""
A writer or a reader of a datastore that is going to be killed:
`python -m tests.torture.datastore_worker ROLE STORE CHECKOUT EVENTS TTL`.

Says what it begins and what it was told, a line each, before anything can happen to it.
"""

from __future__ import annotations

import itertools
import os
import random
import secrets
import sys
import time

from tenure import Checkout, CheckoutWriter, CommitUnknownError, Datastore, Error, FencedError, StoreUnavailableError
from tenure._store._file import FileStore
from tenure.stores import Created

NAMES = ("a", "b", "dir/c")


def content(commit_id: str, name: str) -> bytes:
    """What this commit puts under this name, and no other ever does; some of it larger than what travels inline."""
    return f"{commit_id} {name} ".encode() * (2000 if commit_id[0] in "01234567" else 1)


def write(checkout: Checkout, events: int, patience_s: float) -> None:
    for _ in itertools.count():
        try:
            with checkout.writer(timeout=random.choice((0.0, 0.5, patience_s))) as writer:
                for _ in range(random.randrange(1, 6)):
                    commit(checkout, writer, events)
                if random.random() < 0.2:
                    writer.retain(keep=1000)
        except Error:
            pass
        time.sleep(random.uniform(0.0, 0.05))


def commit(checkout: Checkout, writer: CheckoutWriter, events: int) -> None:
    commit_id = secrets.token_hex(8)
    names = random.sample(NAMES, random.randrange(1, len(NAMES) + 1))
    for name in names:
        writer.put(name, content(commit_id, name))
    for name in names:
        if (checkout.path / name).read_bytes() != content(commit_id, name) and writer.hold.state == "held":
            say(events, f"changed {commit_id}")
    say(events, f"begun {commit_id}")
    try:
        done = writer.commit(id=commit_id)
    except CommitUnknownError:
        raise
    except FencedError:
        say(events, f"refused {commit_id}")
        raise
    assert done is not None
    say(events, f"landed {commit_id} {done.slot}")


def read(checkout: Checkout, _: int, __: float) -> None:
    while True:
        try:
            checkout.catch_up()
        except Error:
            pass
        time.sleep(random.uniform(0.0, 0.1))


def say(events: int, line: str) -> None:
    os.write(events, f"{line}\n".encode())


def opened(datastore: Datastore, place: str) -> Checkout | None:
    """The checkout; None if the store cannot be reached now."""
    try:
        return datastore.checkout(place)
    except StoreUnavailableError:
        return None


class CheckThenPut(FileStore):
    """A store that is wrong: it looks whether a place in the log is free, and then writes there, whatever has come since."""

    def create(self, key: str, data: bytes) -> Created:
        if not key.startswith("log/0"):
            return super().create(key, data)
        found = self.read(key)
        if found is not None:
            return Created(False, found.data)
        # Longer than it takes to be broken by force and followed by the next one.
        time.sleep(random.choice((0.0, 0.6)))
        path = self.path_of(key)
        path.parent.mkdir(exist_ok=True)
        beside = path.with_name(f".{secrets.token_hex(8)}")
        beside.write_bytes(data)
        beside.replace(path)
        return Created(True, data)


def main(role: str, store: str, place: str, log: str, ttl: str) -> None:
    events = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    kind = CheckThenPut if "CHECK_THEN_PUT" in os.environ else FileStore
    datastore = Datastore(store if "://" in store else kind(store), ttl=float(ttl), skew=float(ttl) / 4)
    while (checkout := opened(datastore, place)) is None:
        time.sleep(0.1)
    {"write": write, "read": read}[role](checkout, events, 5 * float(ttl))


if __name__ == "__main__":
    main(*sys.argv[1:])
