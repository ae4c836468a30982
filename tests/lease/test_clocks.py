"""Clocks: who waits counts awake time only, who holds counts suspend too, and the time of day decides nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenure import FencedError, StoreUnavailableError, WriterBusyError, WriterLease
from tenure._lease import _keys
from tenure._lease._silence import Silence, Watched
from tenure._store._memory import MemoryStore
from tenure.testing import ManualClock
from tests.helpers import holders
from tests.lease.beats import state_of
from tests.lease.stores import LyingWall, planted, put, records

TTL, SKEW = 30.0, 10.0


def waiter(store: MemoryStore, **options: Any) -> tuple[WriterLease, ManualClock]:
    clock = ManualClock()
    return WriterLease(store, clock=clock, **options), clock


def watched(lease: WriterLease, clock: ManualClock, seconds: float, step: float = 1.0) -> str:
    """What a waiter sees that looks every *step* for *seconds*."""
    for _ in range(round(seconds / step)):
        lease.inspect()
        clock.advance(step)
    return lease.inspect().state


def test_a_waiter_takes_over_after_ttl_and_skew_of_awake_time_and_not_before() -> None:
    lease, clock = waiter(planted(holders.claim()))
    assert watched(lease, clock, TTL + SKEW - 1) == "unknown"
    clock.advance(1)
    assert lease.inspect().state == "free"


def test_a_suspended_waiter_has_watched_nobody() -> None:
    """Both sides slept; the holder will beat again as soon as both are awake."""
    lease, clock = waiter(planted(holders.claim()))
    for _ in range(10):
        lease.inspect()
        clock.suspend(3600)
    assert lease.inspect().retry_after_s == TTL + SKEW


def test_a_pause_counts_two_polls_and_no_more() -> None:
    """A stopped process or a frozen machine whose clock ran on."""
    lease, clock = waiter(planted(holders.claim()))
    lease.inspect()
    for pause in (3600.0, 86_400.0 * 365):
        before = lease.inspect().retry_after_s
        clock.advance(pause)
        left = lease.inspect().retry_after_s
        assert before is not None
        assert left == pytest.approx(before - 2)


def test_a_clock_that_goes_backwards_takes_nothing_away_and_gives_nothing() -> None:
    silence = Silence()
    seen: list[int | str | None] = [1, "n", 0, 0]
    assert silence.look(seen, 100.0, ttl=3, skew=1) == 4
    assert silence.look(seen, 50.0, ttl=3, skew=1) == 4
    assert silence.look(seen, 100.2, ttl=3, skew=1) == pytest.approx(3.8)


def test_a_beat_in_the_last_moment_starts_the_watch_again() -> None:
    store = planted(holders.claim())
    lease, clock = waiter(store)
    assert watched(lease, clock, TTL + SKEW - 1) == "unknown"
    put(store, _keys.beat(1), holders.beat(1))
    clock.advance(1)
    assert lease.inspect().retry_after_s == TTL + SKEW


@pytest.mark.parametrize(("ttl", "skew", "step"), [(3.0, 1.0, 0.5), (300.0, 100.0, 1.0)])
def test_the_records_terms_count_and_not_mine(ttl: float, skew: float, step: float) -> None:
    """B62: a waiter with a shorter ttl of its own robbed a holder that had promised less often."""
    for own in ({}, {"ttl": 1.0, "skew": 0.0}, {"ttl": 9000.0, "skew": 9.0}):
        lease, clock = waiter(planted(holders.claim(ttl=ttl, skew=skew)), **own)
        assert watched(lease, clock, ttl + skew - step, step) == "unknown"
        clock.advance(step)
        assert lease.inspect().state == "free"


@pytest.mark.parametrize("field", ["ttl", "skew"])
@pytest.mark.parametrize("value", [-1, 1e9, float("nan"), float("inf"), "30", None, True])
def test_absurd_terms_make_a_claim_of_nobody_and_ours_count_as_default(field: str, value: Any) -> None:
    lease, clock = waiter(planted(holders.claim(1, **{field: value})))
    status = lease.inspect()
    assert (status.state, status.retry_after_s) == ("unknown", TTL + SKEW)
    assert status.problem is not None
    assert watched(lease, clock, TTL + SKEW) == "free"


def test_what_an_earlier_process_watched_counts_once_with_the_gap_since() -> None:
    silence = Silence()
    seen: list[int | str | None] = [1, "n", 0, 0]
    earlier = Watched(seen, 20.0, looked_at=90.0)
    assert silence.look(seen, 100.0, ttl=TTL, skew=SKEW, earlier=earlier) == pytest.approx(12.0)
    assert silence.look(seen, 101.0, ttl=TTL, skew=SKEW, earlier=earlier) == pytest.approx(11.0)


def test_a_holder_that_slept_past_its_ttl_has_expired_and_renews_before_it_goes_on() -> None:
    """B54: expired is not lost."""
    store = MemoryStore()
    lease, clock = waiter(store)
    hold = lease.acquire()
    clock.suspend(TTL - 1)
    assert state_of(hold) == "held"
    clock.suspend(1)
    assert state_of(hold) == "expired", "the clock that counts suspend is the holder's"
    before = records(store).get(_keys.beat(1))
    hold.check()
    assert state_of(hold) == "held"
    assert records(store)[_keys.beat(1)] != before
    assert hold.fence == 1
    hold.release()


def test_a_holder_that_slept_and_cannot_renew_stays_expired() -> None:
    store = MemoryStore()
    lease, clock = waiter(store)
    hold = lease.acquire()
    clock.suspend(TTL)
    store.on("create", "lease/beat/").fail()
    with pytest.raises(StoreUnavailableError):
        hold.check()
    assert state_of(hold) == "expired"
    hold.check()
    assert state_of(hold) == "held"
    hold.release()


class SlowStore(MemoryStore):
    """A store whose answer to a heartbeat takes *delay* seconds of its clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.delay = 0.0

    def replace(self, key: str, data: bytes, version: str) -> str | None:
        try:
            return super().replace(key, data, version)
        finally:
            self.clock.advance(self.delay)


def test_a_renewal_counts_from_before_it_was_sent() -> None:
    """B57: 10 s between request and reply must not lengthen what the holder believes."""
    clock = ManualClock()
    store = SlowStore(clock)
    hold = WriterLease(store, clock=clock).acquire()
    hold.renew()
    store.delay = 10.0
    hold.renew()
    clock.advance(TTL - 10 - 0.5)
    assert state_of(hold) == "held"
    clock.advance(0.5)
    assert state_of(hold) == "expired"
    hold.release()


def test_a_renewal_that_took_longer_than_its_ttl_leaves_the_hold_expired() -> None:
    """B65: never a hold that passes for good on a reply that came too late."""
    clock = ManualClock()
    store = SlowStore(clock)
    hold = WriterLease(store, clock=clock).acquire()
    hold.renew()
    store.delay = 2 * TTL
    hold.renew()
    assert state_of(hold) == "expired"
    hold.release()


class LateGrant(MemoryStore):
    """A store whose answer to a claim takes longer than the claim is good for."""

    clock: ManualClock
    taker: bool

    def create(self, key: str, data: bytes) -> Any:
        created = super().create(key, data)
        if key == _keys.claim(2):
            self.clock.advance(2 * TTL)
            if self.taker:
                put(self, _keys.claim(3), holders.claim(3))
        return created


@pytest.mark.parametrize("taker", [False, True])
def test_a_grant_that_arrives_after_its_ttl_passes_its_check_or_is_none(taker: bool) -> None:
    """B65: the wait outlived the waiter's own lease."""
    store = LateGrant()
    store.clock, store.taker = ManualClock(), taker
    put(store, _keys.claim(1), holders.claim())
    lease = WriterLease(store, clock=store.clock)
    if taker:
        with pytest.raises(WriterBusyError) as busy:
            lease.acquire(timeout=2 * TTL)
        assert busy.value.fence == 3
        return
    hold = lease.acquire(timeout=2 * TTL)
    hold.check()
    assert state_of(hold) == "held"
    hold.release()


WALLS = ["2001-01-01T01:00:00+00:00", "1970-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00", "not a time"]


@pytest.mark.parametrize("wall", WALLS)
def test_the_time_of_day_of_neither_side_decides_anything(wall: str) -> None:
    """B61: the clock of one node was set an hour forward, and two led."""
    store = MemoryStore()
    holder = WriterLease(store, clock=(held := LyingWall(lambda: wall)))
    hold = holder.acquire()
    claim = json.loads(records(store)[_keys.claim(1)])
    assert claim["acquired_at"] == wall
    put(store, _keys.claim(1), json.dumps(claim | {"holder": None}).encode())
    other = LyingWall(lambda: "2031-01-01T00:00:00+00:00")
    lease = WriterLease(store, clock=other)
    assert lease.inspect().retry_after_s == TTL + SKEW, "an old time is no silence"
    held.advance(TTL - 1)
    assert state_of(hold) == "held"
    with pytest.raises(FencedError):
        hold.check()
    hold.release()


def test_a_wait_costs_no_more_than_ttl_and_skew_also_where_both_are_short(tmp_path: Path) -> None:
    """The steps of a waiter are a tenth of what it waits for."""
    for ttl, skew in ((1.0, 0.2), (5.0, 1.0), (30.0, 10.0)):
        store = tmp_path / f"store-{ttl}"
        holders.plant(store, holders.claim(ttl=ttl, skew=skew))
        clock = ManualClock()
        with WriterLease(store, clock=clock).acquire(timeout=1000) as hold:
            assert hold.fence == 2
        assert ttl + skew <= clock.awake() <= (ttl + skew) * 1.2
