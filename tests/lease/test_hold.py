"""The hold: check, renew, release, and the ways in which it is lost."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenure import (
    FencedError,
    Hold,
    HoldError,
    ProcessIdentity,
    StoreError,
    StoreUnavailableError,
    WriterBusyError,
    WriterLease,
)
from tenure._lease import _keys
from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore
from tenure.testing import ManualClock
from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.lease.stores import LONG, interrupt, put, records

CLAIM, BEAT = _keys.claim(1), _keys.beat(1)
METHODS = ["check", "renew", "lifeline_fileno"]
# As fast as a lease may be, where the pulse's own time must pass.
QUICK = 0.3


class Owner:
    """Takes the lease of a memory store and hears of its loss."""

    def __init__(self, *, ttl: float = LONG, clock: ManualClock | None = None) -> None:
        self.store = MemoryStore()
        self.clock = clock or ManualClock()
        self.heard: list[Hold] = []
        self.lost = threading.Event()
        self.hold = WriterLease(self.store, ttl=ttl, on_lost=self._on_lost, clock=self.clock).acquire()

    def _on_lost(self, hold: Hold) -> None:
        self.heard.append(hold)
        self.lost.set()

    def replaced(self, fence: int = 2) -> None:
        put(self.store, _keys.claim(fence), holders.claim(fence))


def test_a_hold_that_is_held_passes(tmp_path: Path) -> None:
    with WriterLease(tmp_path / "store", ttl=LONG).acquire() as hold:
        for _ in range(3):
            hold.check()
            hold.renew()
        assert hold.fence == 1
        assert "held" in repr(hold)


@pytest.mark.parametrize("method", METHODS)
def test_after_its_release_a_hold_is_none(method: str) -> None:
    owner = Owner()
    owner.hold.release()
    owner.hold.release()

    with pytest.raises(HoldError):
        getattr(owner.hold, method)()
    assert "released" in repr(owner.hold)
    assert owner.heard == [], "let go is not lost"


@pytest.mark.parametrize("method", METHODS)
def test_a_lost_hold_says_ours_and_current_for_good(method: str) -> None:
    """B18, B73: whichever door notices, and at every later call."""
    owner = Owner()
    owner.replaced(5)
    with pytest.raises(FencedError):
        owner.hold.check()
    owner.store.delete(_keys.claim(5))

    for _ in range(2):
        with pytest.raises(FencedError) as fenced:
            getattr(owner.hold, method)()
        assert (fenced.value.ours, fenced.value.current, fenced.value.exit_code) == (1, 5, 1)
    assert owner.heard == [owner.hold]
    assert "lost" in repr(owner.hold)


def test_the_callback_is_called_once_whoever_notices() -> None:
    """B55, B73: eight threads are past their first question, and hear the same answer at the same moment."""
    owner = Owner()
    owner.replaced()
    together = threading.Barrier(8, timeout=30)
    fenced: list[FencedError] = []

    def meet() -> None:
        together.wait()

    owner.store.on("list", nth=0).run(meet)

    def ask(door: str) -> None:
        with pytest.raises(FencedError) as raised:
            getattr(owner.hold, door)()
        fenced.append(raised.value)

    threads = [threading.Thread(target=ask, args=(door,)) for door in ["renew"] + ["check"] * 7]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(fenced) == 8
    assert owner.heard == [owner.hold]


def test_a_callback_that_raises_is_logged_once_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def failing(hold: Hold) -> None:
        calls.append(hold.fence)
        raise RuntimeError("the owner's own fault")

    store = MemoryStore()
    hold = WriterLease(store, ttl=LONG, on_lost=failing).acquire()
    put(store, _keys.claim(2), holders.claim(2))
    with caplog.at_level(logging.DEBUG, "tenure.lease"):
        for _ in range(2):
            with pytest.raises(FencedError):
                hold.check()

    assert calls == [1]
    assert len([record for record in caplog.records if record.exc_info]) == 1


@pytest.mark.xfail(
    strict=True, reason="the callback runs while the lock of the heartbeat is held, and release waits for it"
)
def test_a_callback_may_release_the_hold() -> None:
    """The first thing that many will write into it. Found by the pulse, or by a renew of the owner."""
    store = MemoryStore()
    hold = WriterLease(store, ttl=LONG, on_lost=lambda lost: lost.release()).acquire()
    put(store, _keys.claim(2), holders.claim(2))

    def renew() -> None:
        with pytest.raises(FencedError):
            hold.renew()

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    thread.join(5)

    assert not thread.is_alive()


def test_being_fenced_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    owner = Owner()
    owner.replaced()
    with caplog.at_level(logging.DEBUG, "tenure.lease"):
        for _ in range(3):
            with pytest.raises(FencedError):
                owner.hold.renew()

    assert [record.levelno for record in caplog.records] == [logging.WARNING]


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
    with pytest.raises(WriterBusyError):
        WriterLease(store).acquire()
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


@pytest.mark.xfail(
    strict=True,
    reason="the lifeline's file goes although no release could be written: what is left names a living process",
)
def test_a_release_that_cannot_be_written_frees_a_directory_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = WriterLease(tmp_path / "store", ttl=LONG).acquire()

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", full)
        hold.release()

    assert WriterLease(tmp_path / "store", ttl=LONG).acquire().fence == 2


@pytest.mark.xfail(
    strict=True,
    reason="without a lifeline an unwritten release leaves a claim of a living process: its own next acquire is busy",
)
@pytest.mark.parametrize("what", ["fail", "lose_reply"])
def test_a_release_that_cannot_be_written_elsewhere_does_not_lock_the_process_out(what: str) -> None:
    """`release` promises that others find the hold free. With a lost reply it is so only by luck of the store."""
    owner = Owner()
    owner.store.on("create", "lease/beat/").fail()
    owner.hold.release()
    if what == "lose_reply":
        owner.store.heal()

    assert WriterLease(owner.store, ttl=LONG).acquire().fence == 2


@pytest.mark.xfail(
    strict=True, reason="a release that was cut off counts as done: the lifeline stays locked until the process ends"
)
def test_a_release_that_ctrl_c_cut_off_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a renewal that is under way, which is where people lose their patience."""
    hold = WriterLease(tmp_path / "store", ttl=LONG).acquire()
    with monkeypatch.context() as patched:
        patched.setattr(hold._pulse, "stop", interrupt)
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
    owner = Owner(ttl=QUICK)
    owner.hold.release()
    before = len(owner.store.calls)
    threading.Event().wait(2 * QUICK)

    assert len(owner.store.calls) == before


@pytest.mark.parametrize("operation", ["list", "read"])
def test_an_authority_that_does_not_answer_is_never_a_yes(operation: Any) -> None:
    owner = Owner()
    owner.store.on(operation, nth=0).fail()
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            owner.hold.check()
    owner.store.heal()

    owner.hold.check()
    assert owner.heard == [], "no answer is no loss"


def test_an_unreadable_directory_is_never_a_yes(tmp_path: Path) -> None:
    store = tmp_path / "store"
    hold = WriterLease(store, ttl=LONG).acquire()
    (store / "lease").rename(store / "elsewhere")
    (store / "lease").write_bytes(b"")

    with pytest.raises(StoreError):
        hold.check()
    (store / "lease").unlink()
    with pytest.raises(StoreError):
        hold.check()
    (store / "elsewhere").rename(store / "lease")
    hold.check()
    hold.release()


def test_a_list_without_ones_own_claim_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket gateway answered "nothing above" from a broken list; a stale directory cache does the same."""
    owner = Owner()
    monkeypatch.setattr(owner.store, "list", lambda prefix="", after="": iter(()))

    with pytest.raises(StoreUnavailableError):
        owner.hold.check()
    assert owner.heard == []


def test_expired_is_not_lost() -> None:
    """B54: the laptop slept for three ttl and nobody took over: same fence, one renewal."""
    owner = Owner(ttl=LONG)
    owner.clock.suspend(3 * LONG)
    beats = owner.store.count("create", "lease/beat/") + owner.store.count("replace", "lease/beat/")

    owner.hold.check()

    after = owner.store.count("create", "lease/beat/") + owner.store.count("replace", "lease/beat/")
    assert (owner.hold.fence, after) == (1, beats + 1)
    owner.hold.check()
    assert owner.store.count("replace", "lease/beat/") == 0, "renewed once and no more"
    assert owner.heard == []


def test_expired_without_a_renewal_does_not_pass() -> None:
    owner = Owner(ttl=LONG)
    owner.clock.suspend(LONG)
    owner.store.on("create", "lease/beat/", nth=0).fail()

    with pytest.raises(StoreUnavailableError):
        owner.hold.check()


def test_the_holders_deadline_counts_from_before_the_request_was_sent() -> None:
    """B57: a pause between sending a renewal and its reply must not lengthen what the holder believes."""
    owner = Owner(ttl=LONG)
    owner.store.on("create", "lease/beat/").run(lambda: owner.clock.advance(10.0))
    owner.hold.renew()
    assert owner.clock.elapsed() == 10.0

    owner.clock.advance(LONG - 10.0)
    owner.hold.check()

    assert owner.store.count("replace", "lease/beat/") == 1, "the ttl was over, so this check had to renew"


def test_the_first_deadline_counts_from_before_the_claim_was_sent() -> None:
    store, clock = MemoryStore(), ManualClock()
    store.on("create", _keys.PREFIX).run(lambda: clock.advance(10.0))
    hold = WriterLease(store, ttl=LONG, clock=clock).acquire()
    clock.advance(LONG - 10.0)

    hold.check()

    assert store.count("create", "lease/beat/") == 1


def test_expired_with_a_taker_is_lost_and_the_owner_hears_of_it_by_callback(tmp_path: Path) -> None:
    """B55: no exception in a background thread (pytest would turn one into a failure), and the next call raises."""
    heard: list[int] = []
    lost = threading.Event()

    def on_lost(hold: Hold) -> None:
        heard.append(hold.fence)
        lost.set()

    store = FileStore(tmp_path / "store")
    hold = WriterLease(store, ttl=QUICK, on_lost=on_lost).acquire()
    store.create(_keys.claim(2), holders.claim(2))

    assert lost.wait(30), "B73: told within one renewal interval, with nobody asking"
    with pytest.raises(FencedError):
        hold.check()
    hold.release()
    assert heard == [1]
    assert not hold._pulse._thread.is_alive()


def test_renewals_that_fail_for_a_while_are_no_loss() -> None:
    """B63: one failed renewal ended all; here several in a row fail, then the store comes back."""
    clock = ManualClock()
    owner = Owner(ttl=LONG, clock=clock)
    owner.store.on("create", "lease/beat/", nth=0).fail()
    for _ in range(6):
        clock.advance(LONG / 10)
        with pytest.raises(StoreUnavailableError):
            owner.hold.renew()
    owner.store.heal()

    owner.hold.renew()
    clock.advance(LONG * 0.9)
    owner.hold.check()
    assert (owner.hold.fence, owner.heard) == (1, [])


def test_the_pulse_outlives_failing_renewals() -> None:
    """B63: it tries more often after a failure, and goes on after it."""
    owner = Owner(ttl=QUICK)
    owner.store.on("list", nth=0).fail()
    processes.until(lambda: owner.store.count("list") > 8, "the pulse gave up")
    owner.store.heal()
    processes.until(lambda: owner.store.count("replace", BEAT) > 1, "the pulse does not renew again")

    owner.hold.check()
    owner.hold.release()


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


def test_a_process_that_is_not_the_one_in_its_claim_is_fenced() -> None:
    """A restored checkpoint, or a copied machine: the same memory, another process."""
    owner = Owner()
    with processes.sleeping() as other:
        owner.hold._claim = replace(owner.hold._claim, holder=ProcessIdentity.from_json(other.record))
        with pytest.raises(FencedError) as fenced:
            owner.hold.check()

    assert (fenced.value.ours, fenced.value.current) == (1, 1)
    assert owner.heard == [owner.hold]


def test_a_lost_hold_is_never_joined() -> None:
    """B73: a second component that asks for the lease gets one of its own or none, never the lost one."""
    owner = Owner()
    owner.replaced()

    with pytest.raises(WriterBusyError):
        WriterLease(owner.store, clock=owner.clock).acquire()
    with pytest.raises(FencedError):
        owner.hold.check()
