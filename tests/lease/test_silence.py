"""How silence is timed: by how long this observer has watched, on awake time, against the record's own ttl and skew."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from tenure import WriterBusyError, WriterLease
from tenure._lease import _keys
from tenure._lease._silence import Silence
from tenure._store._memory import MemoryStore
from tenure.testing import ManualClock
from tests.helpers import holders
from tests.lease.stores import LONG, LyingWall, planted, put, records

CLAIM, BEAT = _keys.claim(1), _keys.beat(1)


def test_the_records_ttl_counts_and_not_mine() -> None:
    """B62: a client configured with 10 s took a lease that its holder renews every 20 s."""
    store = planted(holders.claim(ttl=30.0, skew=10.0))
    clock = ManualClock()
    hasty = WriterLease(store, clock=clock, ttl=2.0, skew=0.0)
    for _ in range(39):
        with pytest.raises(WriterBusyError):
            hasty.acquire()
        clock.advance(1.0)
    with pytest.raises(WriterBusyError):
        hasty.acquire()
    clock.advance(1.0)

    assert hasty.acquire().fence == 2


def test_any_beat_starts_the_count_again() -> None:
    """B19: while it renews, somebody whom nobody can judge keeps the lease for as long as it likes."""
    store = planted(holders.claim(ttl=8.0, skew=2.0))
    clock = ManualClock()
    lease = WriterLease(store, clock=clock, ttl=LONG)
    for number in range(1, 8):
        put(store, BEAT, holders.beat(number))
        for _ in range(9):
            with pytest.raises(WriterBusyError):
                lease.acquire()
            clock.advance(1.0)
    lease.inspect()
    clock.advance(1.0)
    assert lease.inspect().state == "free"


def test_another_claim_starts_the_count_again() -> None:
    store = planted(holders.claim(ttl=8.0, skew=2.0))
    clock = ManualClock()
    lease = WriterLease(store, clock=clock, ttl=LONG)
    for _ in range(9):
        lease.inspect()
        clock.advance(1.0)
    put(store, _keys.claim(2), holders.claim(2, ttl=8.0, skew=2.0))

    assert lease.inspect().retry_after_s == 10.0


def test_the_first_sight_of_an_old_record_counts_for_nothing() -> None:
    """B61: whatever its time stamp says, and however long this process has been running."""
    clock = ManualClock()
    clock.advance(1e6)
    store = planted(holders.claim(acquired_at="1999-01-01T00:00:00+00:00"))

    assert WriterLease(store, clock=clock).inspect().retry_after_s == 40.0


@pytest.mark.parametrize("pause", ["advance", "suspend"])
def test_a_pause_of_both_sides_robs_nobody(pause: str) -> None:
    """A frozen machine or a closed lid: the waiter's gap is not the holder's silence. One gap counts two polls at most."""
    store = planted(holders.claim(ttl=30.0, skew=10.0))
    clock = ManualClock()
    lease = WriterLease(store, clock=clock, ttl=LONG)
    for _ in range(36):
        lease.inspect()
        clock.advance(1.0)
    lease.inspect()
    getattr(clock, pause)(300.0)

    assert lease.inspect().state == "unknown"
    put(store, BEAT, holders.beat(1))
    assert lease.inspect().retry_after_s == 40.0


def test_a_clock_that_goes_back_counts_for_nothing() -> None:
    silence = Silence()
    look(silence, 100.0)

    assert look(silence, 50.0) == 40.0
    assert look(silence, 51.0) >= 39.0


def test_two_waiting_threads_do_not_count_one_second_twice() -> None:
    """Threads that share a lease object read the clock before they count; the slower one counts last."""
    silence = Silence()
    look(silence, 100.0)
    look(silence, 101.0)
    look(silence, 100.2)

    assert look(silence, 101.0) == 39.0


def look(silence: Silence, now: float) -> float:
    return silence.look([1, holders.NONCE, 0, 0], now, ttl=30.0, skew=10.0)


@pytest.mark.parametrize(
    "jump", [timedelta(hours=1), timedelta(hours=-1), timedelta(minutes=10), timedelta(days=-9000)]
)
def test_the_time_of_day_decides_nothing(jump: timedelta) -> None:
    """B58, B61: holder and observer an hour apart, and the wall clock jumping at each look."""
    now = [datetime(2026, 10, 16, tzinfo=timezone.utc)]

    def jumping() -> str:
        now[0] += jump
        return now[0].isoformat()

    store = MemoryStore()
    held = WriterLease(store, clock=LyingWall(lambda: "1970-01-01T00:00:00+00:00"), ttl=LONG).acquire()
    claim = json.loads(records(store)[CLAIM]) | {"holder": None, "ttl": 8.0, "skew": 2.0}
    put(store, CLAIM, json.dumps(claim).encode())
    clock = LyingWall(jumping)
    lease = WriterLease(store, clock=clock, ttl=LONG)
    for number in range(1, 20):
        put(store, BEAT, holders.beat(number, nonce=held.nonce))
        assert lease.inspect().retry_after_s == 10.0
        clock.advance(2.0)
    for _ in range(4):
        assert lease.inspect().state == "unknown"
        clock.advance(2.0)
    clock.advance(2.0)

    assert lease.acquire().fence == 2
    held.release()


def test_a_waiting_acquire_takes_over_when_the_silence_is_long_enough() -> None:
    """B14: `acquire(timeout=ttl + skew + 1)` succeeds."""
    store = planted(holders.claim(ttl=30.0, skew=10.0))
    clock = ManualClock()

    assert WriterLease(store, clock=clock, ttl=LONG).acquire(timeout=41.0).fence == 2
    assert 40.0 <= clock.awake() <= 41.0


def test_a_waiting_acquire_takes_over_from_a_holder_with_a_short_ttl_too() -> None:
    """B14, for a lease of half a second: what `retry_after_s` says must be true."""
    store = planted(holders.claim(ttl=0.4, skew=0.1))

    assert WriterLease(store, clock=ManualClock(), ttl=LONG).acquire(timeout=1.5).fence == 2
