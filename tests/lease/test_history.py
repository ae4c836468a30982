"""History: each claim that is still there, and how it ended; nothing is written, and nothing in it is believed blindly."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import PastHold, StoreUnavailableError, WriterLease
from tenure._lease import _keys
from tenure._store._memory import MemoryStore
from tests.helpers import holders
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.lease.beats import taken
from tests.lease.stores import put, records


def told(lease: WriterLease) -> list[tuple[int, str]]:
    return [(past.fence, past.ended) for past in lease.history()]


@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_a_lease_that_was_never_taken_has_none(tmp_path: Path, kind: str) -> None:
    store = tmp_path / "store"
    assert list(WriterLease(store if kind == "directory" else MemoryStore()).history()) == []
    assert not store.exists()


@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_each_hold_is_told_with_how_it_ended(tmp_path: Path, kind: str) -> None:
    lease = WriterLease(tmp_path / "store" if kind == "directory" else MemoryStore(), label="import")
    lease.acquire().release()
    broken = lease.acquire()
    lease.force_release(broken.nonce, even_if_alive=True)
    last = lease.acquire()

    assert told(lease) == [(1, "released"), (2, "forced"), (4, "last")], "the tombstone is no hold"
    past = list(lease.history())
    assert [one.label for one in past] == ["import"] * 3
    assert past[1].nonce == broken.nonce
    assert past[1].until is not None
    assert past[2].until is None
    assert past[0].until is not None
    assert past[2].holder is not None
    assert past[2].holder.pid == os.getpid()
    last.release()
    assert told(lease)[-1] == (4, "released")
    broken.release()


@NEEDS_LINUX_PROC
def test_a_killed_holder_was_taken_over_and_one_that_nobody_followed_is_the_last(tmp_path: Path) -> None:
    store = tmp_path / "store"
    lease = WriterLease(store)
    with holders.reaped(store):
        assert told(lease) == [(1, "last")]
        hold = lease.acquire()
        past = list(lease.history())

    assert [(one.fence, one.ended) for one in past] == [(1, "taken_over"), (2, "last")]
    assert past[0].until == past[1].since
    hold.release()


def test_what_cannot_be_read_is_an_entry_and_no_end_of_the_story() -> None:
    store = MemoryStore()
    put(store, _keys.claim(1), holders.claim(1))
    put(store, _keys.claim(2), b"torn")
    put(store, _keys.claim(3), holders.claim(3, v=2))
    put(store, _keys.claim(5), holders.claim(5, label="fifth"))
    put(store, "lease/what is this", b"?")
    put(store, "lease/zzz", b"?")

    assert told(WriterLease(store)) == [(1, "taken_over"), (2, "unreadable"), (3, "unreadable"), (5, "last")]


def test_a_hostile_claim_shows_nothing_that_steers_a_terminal() -> None:
    store = MemoryStore()
    put(
        store, _keys.claim(1), holders.claim(1, label="\x1b[2Jx\r\n", host_name="\x9b31m", acquired_at="\x07", holder=7)
    )
    (past,) = WriterLease(store).history()

    for words in (past.label, past.host_name, past.since):
        assert words is not None
        assert words.isprintable()
    assert past.holder is None


@pytest.fixture
def keeps_odd_times(tmp_path: Path) -> Iterator[Path]:
    """A directory whose file system keeps any time stamp, as tmpfs does; others cut them to what they can hold."""
    for base in ("/dev/shm", tmp_path):
        if not os.access(base, os.W_OK):
            continue
        with tempfile.TemporaryDirectory(dir=base) as directory:
            os.utime(directory, (10**12, 10**12))
            if os.stat(directory).st_mtime == 10**12:
                yield Path(directory)
                return
    pytest.skip("needs odd-time-stamps")


@pytest.mark.parametrize("stamp", [-(10**11), -1, 0, 10**12, 2**33 * 1000])
def test_a_heartbeat_from_no_year_that_people_know_stops_no_look(keeps_odd_times: Path, stamp: int) -> None:
    """A time stamp is whatever somebody has set it to; it is for people, and one that they cannot read is not shown."""
    store = keeps_odd_times / "store"
    lease = WriterLease(store)
    lease.acquire().release()
    os.utime(store / _keys.beat(1), (stamp, stamp))

    assert lease.inspect().state == "free"
    assert told(lease) == [(1, "released")]
    assert taken(lease) == 2


def test_it_writes_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    lease = WriterLease(store)
    lease.acquire().release()
    before = holders.everything_below(store)
    assert told(lease) == [(1, "released")]

    assert holders.everything_below(store) == before


def test_claims_that_a_collector_removes_meanwhile_are_left_out() -> None:
    store = MemoryStore()
    for fence in (1, 2, 3):
        put(store, _keys.claim(fence), holders.claim(fence))
    telling = WriterLease(store).history()
    assert next(telling).fence == 1
    store.delete(_keys.claim(2))

    assert [past.fence for past in telling][-1] == 3


def test_a_store_that_does_not_answer_is_an_error_and_no_short_history() -> None:
    store = MemoryStore()
    put(store, _keys.claim(1), holders.claim(1))
    store.on("list").fail()
    with pytest.raises(StoreUnavailableError):
        list(WriterLease(store).history())


def test_it_tells_of_many_in_order() -> None:
    store = MemoryStore()
    lease = WriterLease(store)
    for _ in range(12):
        lease.acquire().release()

    assert told(lease) == [(fence, "released") for fence in range(1, 13)]
    assert all(isinstance(past, PastHold) for past in lease.history())
    assert json.loads(records(store)[_keys.claim(12)])["fence"] == "12"
