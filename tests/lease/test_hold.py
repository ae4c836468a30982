"""The hold: check, renew, release, and the ways in which it is lost."""

from __future__ import annotations

import logging
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
from tests.lease.owners import BEAT, QUICK, Owner, pulses
from tests.lease.stores import LONG, put

METHODS = ["check", "renew", "lifeline_fileno"]


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


@NEEDS_LINUX_PROC
def test_expired_with_a_taker_is_lost_and_the_owner_hears_of_it_by_callback(tmp_path: Path) -> None:
    """B55: no exception in a background thread (pytest would turn one into a failure), and the next call raises."""
    heard: list[int] = []
    lost = threading.Event()

    def on_lost(hold: Hold) -> None:
        heard.append(hold.fence)
        lost.set()

    store = FileStore(tmp_path / "store")
    before = pulses()
    hold = WriterLease(store, ttl=QUICK, on_lost=on_lost).acquire()
    processes.until(lambda: len(pulses() - before) == 1, "no pulse has started")
    store.create(_keys.claim(2), holders.claim(2))

    assert lost.wait(30), "B73: told within one renewal interval, with nobody asking"
    with pytest.raises(FencedError):
        hold.check()
    hold.release()
    assert heard == [1]
    processes.until(lambda: pulses() <= before, "the pulse of a lost hold runs on")


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
    store = MemoryStore()
    hold = WriterLease(store, ttl=QUICK).acquire()
    store.on("create", BEAT, nth=0).fail()
    processes.until(lambda: store.count("create", BEAT) > 8, "the pulse gave up")
    store.heal()
    processes.until(lambda: store.count("replace", BEAT) > 1, "the pulse does not renew again")

    hold.check()
    hold.release()


def test_a_process_that_is_not_the_one_in_its_claim_is_fenced() -> None:
    """A restored checkpoint, or a copied machine: the same memory, another process."""
    owner = Owner()
    with processes.sleeping() as other:
        pulse: Any = owner.hold._tenancy._pulse
        pulse._claim = replace(pulse._claim, holder=ProcessIdentity.from_json(other.record))
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
