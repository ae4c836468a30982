"""The heartbeat: in place on a directory, by compare-and-swap elsewhere, and honest about lost replies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure import FencedError, StoreError, StoreUnavailableError, WriterLease
from tenure._lease import _keys
from tenure._lease._beat import Beat, SwappedBeat, make_file, read_beat
from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore
from tests.helpers import holders, tracing
from tests.helpers.capabilities import NEEDS_STRACE
from tests.lease.stores import LONG, LateStore, put, records

NONCE = holders.NONCE
KEY = _keys.beat(1)
GOLDEN = Path(__file__).parents[1] / "golden" / "beat-v1.json"
SYNCS = "?fsync,?fdatasync,?sync,?syncfs,?sync_file_range,?msync"


def test_a_beat_of_the_first_schema_is_read_for_ever() -> None:
    assert Beat.decode(GOLDEN.read_bytes(), "00112233445566778899aabbccddeeff") == Beat(41, False)


def test_a_beat_of_another_claim_is_no_beat() -> None:
    """A collected number can be taken again, and its old beat may still lie there."""
    assert Beat.decode(holders.beat(9, nonce="f" * 32), NONCE) == Beat()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 160,
        b"{",
        b"[]",
        b"1",
        b'"v"',
        b"null",
        b"[" * 50_000,
        holders.beat(1)[:40],
        holders.beat(1).replace(b'"v": 1', b'"v": 2'),
        holders.beat(1).replace(b'"00000000000000000001"', b'"one"'),
        holders.beat(1).replace(b'"00000000000000000001"', b"null"),
        holders.beat(1).replace(b'"00000000000000000001"', b"NaN"),
        holders.beat(1).replace(b'"00000000000000000001"', b"[]"),
        holders.beat(1).replace(b'"00000000000000000001"', b'"' + b"9" * 5000 + b'"'),
    ],
)
def test_what_is_no_beat_counts_as_none_seen(data: bytes) -> None:
    assert Beat.decode(data, NONCE) == Beat()


@pytest.mark.parametrize("number", [b"Infinity", b"-Infinity", b"1e400"])
def test_an_endless_number_is_no_beat(number: bytes) -> None:
    assert Beat.decode(holders.beat(1).replace(b'"00000000000000000001"', number), NONCE) == Beat()


@given(st.binary(max_size=200))
def test_no_bytes_make_a_beat_fail(data: bytes) -> None:
    assert Beat.decode(data, NONCE) == Beat()


def test_in_place_every_beat_has_one_length(tmp_path: Path) -> None:
    """A reader never sees two lengths, and a full disk cannot stop a renewal."""
    store = FileStore(tmp_path / "store")
    hold = WriterLease(store, ttl=LONG).acquire()
    seen = set()
    for _ in range(12):
        hold.renew()
        seen.add((store.path_of(KEY).stat().st_size, store.path_of(KEY).stat().st_ino))
    hold.release()
    seen.add((store.path_of(KEY).stat().st_size, store.path_of(KEY).stat().st_ino))

    assert len(seen) == 1
    found = read_beat(store, 1, hold.nonce)
    assert (found.number, found.released) == (13, True)


@NEEDS_STRACE
def test_a_renewal_on_a_directory_syncs_nothing(tmp_path: Path) -> None:
    """Measured as a count: after a power cut the holder is dead, so nothing of a beat need survive one."""
    with holders.holding(tmp_path / "store") as agent:
        assert agent.ask("renew_hold") == "ok"
        with tracing.traced(
            agent, "-e", f"trace={SYNCS},?pwrite64,?rename,?renameat,?renameat2,?link,?linkat"
        ) as trace:
            for _ in range(10):
                assert agent.ask("renew_hold") == "ok"

    assert trace.calls["pwrite64"] == 10
    assert set(trace.calls) == {"pwrite64"}


def test_what_lies_at_the_name_of_a_beat_is_emptied_before_the_first(tmp_path: Path) -> None:
    """Illegible beats are silence, and a silent holder on another host is replaced after ttl + skew, alive as it is."""
    store = FileStore(tmp_path / "store")
    path = holders.plant(tmp_path / "store", b"x" * 1000, key=KEY)

    make_file(store, 1)

    assert path.read_bytes() == b""


@pytest.mark.parametrize("doing", ["renew", "release"])
def test_a_holder_whose_descriptors_were_closed_writes_into_no_other_file(tmp_path: Path, doing: str) -> None:
    """Daemon libraries close every descriptor; the numbers are given out again, to the owner's own files."""
    hold = WriterLease(tmp_path / "store", ttl=LONG).acquire()
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    of_the_store = []
    for number in numbers:
        try:
            target = str(Path(f"/proc/self/fd/{number}").readlink())
        except OSError:
            continue
        if target.startswith(str(tmp_path)):
            of_the_store.append(number)
    for number in of_the_store:
        os.close(number)
    theirs = [(tmp_path / f"precious-{number}") for number in range(len(of_the_store) + 4)]
    for path in theirs:
        path.write_bytes(b"precious" * 64)
    opened = [os.open(path, os.O_RDWR) for path in theirs]
    try:
        try:
            getattr(hold, doing)()
        except FencedError:
            pass
        assert [path.read_bytes() == b"precious" * 64 for path in theirs] == [True] * len(theirs)
        for fd in opened:
            os.fstat(fd)
    finally:
        hold.release()
        for fd in opened:
            try:
                os.close(fd)
            except OSError:
                pass


def test_a_beat_that_nobody_can_see_is_no_renewal(tmp_path: Path) -> None:
    """Somebody removed the file. To whoever cannot judge the holder it falls silent, and it would never know."""
    store = FileStore(tmp_path / "store")
    hold = WriterLease(store, ttl=LONG).acquire()
    hold.renew()
    store.path_of(KEY).unlink()
    try:
        hold.renew()
        found = store.read(KEY)
        assert found is not None
        assert Beat.decode(found.data, hold.nonce).number > 0
    except StoreError:
        pass
    finally:
        hold.release()


class Clones:
    """Two holders with one claim: a machine was copied while it held the lease."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.one = SwappedBeat(self.store, 1, NONCE)
        assert self.one.write("held")
        self.other = SwappedBeat(self.store, 1, NONCE)
        self.other._version, self.other._number = self.one._version, self.one._number


def test_by_swap_the_second_of_two_clones_has_lost() -> None:
    clones = Clones()

    assert clones.one.write("held")
    assert not clones.other.write("held")


def test_a_clone_whose_reply_was_lost_does_not_take_the_others_beat_for_its_own() -> None:
    """Both write the same number under the same nonce; only the tag tells whose bytes landed."""
    clones = Clones()
    assert clones.one.write("held")
    clones.store.on("replace").lose_reply()
    with pytest.raises(StoreUnavailableError):
        clones.other.write("held")

    assert not clones.other.write("held")
    assert clones.one.write("held"), "the first one's hold is untouched"


@pytest.mark.parametrize("operation", ["create", "replace"])
@pytest.mark.parametrize("what", ["lose_reply", "fail"])
def test_by_swap_an_unclear_renewal_is_settled_by_the_next(operation: Any, what: str) -> None:
    """B63: applied or not, a missing answer is no loss."""
    store = MemoryStore()
    hold = WriterLease(store, ttl=LONG).acquire()
    if operation == "replace":
        hold.renew()
    getattr(store.on(operation, "lease/beat/"), what)()
    with pytest.raises(StoreUnavailableError):
        hold.renew()

    hold.renew()
    hold.renew()
    hold.check()
    hold.release()


def test_a_beat_by_swap_rises_and_ends_with_released() -> None:
    store = MemoryStore()
    hold = WriterLease(store, ttl=LONG).acquire()
    numbers = []
    for _ in range(3):
        hold.renew()
        numbers.append(Beat.decode(records(store)[KEY], hold.nonce).number)
    hold.release()

    assert numbers == [1, 2, 3]
    assert Beat.decode(records(store)[KEY], hold.nonce) == Beat(4, released=True)


def test_a_swapped_beat_of_somebody_else_is_a_loss_for_good() -> None:
    """B63: "not the owner" is not a blip."""
    store = MemoryStore()
    hold = WriterLease(store, ttl=LONG).acquire()
    hold.renew()
    put(store, KEY, holders.beat(7, nonce="f" * 32))

    for _ in range(3):
        with pytest.raises(FencedError):
            hold.renew()
    assert records(store)[KEY] == holders.beat(7, nonce="f" * 32)


def test_a_beat_that_arrives_late_is_still_ours() -> None:
    """A read that shows the old state proves nothing: the request may still be on its way. Nobody else was here."""
    store = LateStore()
    hold = WriterLease(store, ttl=LONG).acquire()
    hold.renew()
    store.delay_next = True
    with pytest.raises(StoreUnavailableError):
        hold.renew()

    hold.renew()
    hold.check()
