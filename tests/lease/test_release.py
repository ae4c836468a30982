"""Letting go: what is written, what stays, and that a successor's bytes are never touched; forked children let go of nothing."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tenure import WriterBusyError, WriterLease
from tenure._lease import _keys
from tenure._store._memory import MemoryStore
from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.lease.owners import CLAIM, QUICK, Owner
from tests.lease.stores import LONG, interrupt, records


def test_releasing_a_lost_hold_leaves_every_byte_of_the_successor(tmp_path: Path) -> None:
    """B45: the late release deleted the successor's lock, and a third one came in."""
    store = tmp_path / "store"
    first = WriterLease(store, ttl=LONG).acquire()
    fd = first.lifeline_fileno()
    assert fd is not None
    # Gone to everybody else, and it does not know.
    os.close(fd)
    second = WriterLease(store, ttl=LONG).acquire()
    names = [_keys.claim(2), _keys.beat(2), _keys.lifeline(second.nonce), _keys.claim(1)]
    before = {name: (store / name).stat().st_ino for name in names}
    content = {name: (store / name).read_bytes() for name in names}

    first.release()
    first.release()
    del first

    assert {name: (store / name).stat().st_ino for name in names} == before
    assert {name: (store / name).read_bytes() for name in names} == content
    second.check()
    with processes.Agent() as third:
        assert third.ask("take", store=str(store))["kind"] == "writer_busy"
    second.release()


def test_a_release_leaves_the_claim_and_says_released() -> None:
    owner = Owner()
    claim = records(owner.store)[CLAIM]
    owner.hold.release()

    assert records(owner.store)[CLAIM] == claim
    status = WriterLease(owner.store).inspect()
    assert status.judgement is not None
    assert (status.state, status.judgement.reason) == ("free", "released")
    assert owner.store.count("delete") == 0


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("who", ["another process", "this one"])
def test_a_release_that_cannot_be_written_frees_a_directory_all_the_same(tmp_path: Path, who: str) -> None:
    """What is left names a living process; the lifeline's file stays, free, to say that the hold is over."""
    store = tmp_path / "store"
    hold = WriterLease(store, ttl=LONG).acquire()
    (store / _keys.beat(1)).unlink()
    hold.release()

    assert (store / _keys.lifeline(hold.nonce)).exists()
    if who == "this one":
        assert WriterLease(store, ttl=LONG).acquire().fence == 2
    else:
        with processes.Agent() as other:
            assert other.ask("take", store=str(store))["fence"] == 2


def test_a_release_that_cannot_be_written_elsewhere_does_not_lock_the_process_out() -> None:
    """`release` promises that others find the hold free; here not even its own process does."""
    owner = Owner()
    owner.store.on("create", "lease/beat/").fail()
    owner.hold.release()

    assert WriterLease(owner.store, ttl=LONG).acquire().fence == 2


def test_a_release_whose_reply_was_lost_is_a_release() -> None:
    owner = Owner()
    owner.store.on("create", "lease/beat/").lose_reply()
    owner.hold.release()

    assert WriterLease(owner.store, ttl=LONG).acquire().fence == 2


def test_a_release_that_ctrl_c_cut_off_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a renewal that is under way, which is where people lose their patience."""
    hold = WriterLease(tmp_path / "store", ttl=LONG).acquire()
    with monkeypatch.context() as patched:
        patched.setattr(hold._tenancy._pulse, "stop", interrupt)
        with pytest.raises(KeyboardInterrupt):
            hold.release()
    hold.release()

    assert WriterLease(tmp_path / "store", ttl=LONG).acquire().fence == 2


def test_leaving_the_block_releases_also_by_an_exception(tmp_path: Path) -> None:
    lease = WriterLease(tmp_path / "store", ttl=LONG)
    with pytest.raises(ZeroDivisionError):
        with lease.acquire():
            raise ZeroDivisionError

    assert lease.acquire().fence == 2


def test_nothing_is_written_once_release_has_returned() -> None:
    store = MemoryStore()
    WriterLease(store, ttl=QUICK).acquire().release()
    before = len(store.calls)
    threading.Event().wait(2 * QUICK)

    assert len(store.calls) == before


@NEEDS_LINUX_PROC
def test_in_a_forked_child_a_hold_is_none(tmp_path: Path) -> None:
    """B46: the child's methods raise; its release lets go of nothing, and says nothing, since `with` blocks end there."""
    with holders.holding(tmp_path / "store") as agent:
        assert agent.ask("in_a_fork", call="check_hold") == "not_the_holder"
        assert agent.ask("in_a_fork", call="renew_hold") == "not_the_holder"
        assert agent.ask("in_a_fork", call="release_hold") == "ok"
        assert agent.ask("check_hold") == "ok"


@NEEDS_LINUX_PROC
@pytest.mark.parametrize(
    ("how", "code"), [("release", 0), ("collected", 0), ("with", 0), ("exit", 3), ("exception", 1), ("", 0)]
)
def test_a_forked_child_frees_nothing_however_it_leaves(tmp_path: Path, how: str, code: int) -> None:
    """B46: its exit freed the parent's lock while the parent still believed."""
    store = tmp_path / "store"
    with holders.holding(store) as agent:
        before = holders.everything_below(store / "lease" / "lifeline")
        assert agent.ask("leave_by", how=how) == code
        assert agent.ask("check_hold") == "ok"
        assert holders.everything_below(store / "lease" / "lifeline") == before
        with pytest.raises(WriterBusyError):
            WriterLease(store).acquire()


@NEEDS_LINUX_PROC
def test_in_a_forked_child_the_lease_is_busy_and_afterwards_to_be_had(tmp_path: Path) -> None:
    """B46: to the child its parent is another process, as to everybody."""
    store = str(tmp_path / "store")
    with holders.holding(store) as agent:
        assert agent.ask("taken_in_a_fork", store=store) == "writer_busy"
        agent.ask("release_hold")
        assert agent.ask("taken_in_a_fork", store=store) == "2"
        assert agent.ask("take", store=store)["fence"] == 3, "the child's end freed its hold"
