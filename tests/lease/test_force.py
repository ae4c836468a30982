"""Force release: the operator's way out breaks a hold that nobody can judge, and nothing else."""

from __future__ import annotations

import json
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest

from tenure import FencedError, RecordTooNewError, RefusedError, StoreUnavailableError, WriterBusyError, WriterLease
from tenure._lease import _keys
from tenure._store._memory import MemoryStore
from tests.helpers import holders, independent
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.lease.beats import taken
from tests.lease.stores import LONG, put, records


def unknown(fence: int = 1, **changes: Any) -> MemoryStore:
    """A store that somebody unknowable holds."""
    store = MemoryStore()
    put(store, _keys.claim(fence), holders.claim(fence, **changes))
    return store


def tombstone(store: MemoryStore, fence: int) -> dict[str, Any]:
    found = json.loads(records(store)[_keys.claim(fence)])
    assert isinstance(found, dict)
    return found


def test_an_unknowable_hold_is_broken_by_burning_a_fence() -> None:
    store = unknown()
    lease = WriterLease(store)
    done = lease.force_release(holders.NONCE)

    assert (done.before.state, done.before.fence, done.fence) == ("unknown", 1, 2)
    assert tombstone(store, 2)["tombstone"] is True
    assert records(store)[_keys.claim(1)] == holders.claim(), "the claim that was broken is kept"
    assert lease.inspect().state == "free"
    assert taken(lease) == 3


def test_it_takes_nothing() -> None:
    lease = WriterLease(unknown())
    lease.force_release(holders.NONCE)

    assert taken(WriterLease(lease.store)) == 3


@pytest.mark.parametrize("way", ["never taken", "released", "broken"])
def test_a_free_lease_is_left_as_it_is(way: str) -> None:
    """B100: no-op, and no error; whatever nonce is named."""
    store = unknown() if way == "broken" else MemoryStore()
    lease = WriterLease(store)
    if way == "released":
        lease.acquire().release()
    if way == "broken":
        lease.force_release(holders.NONCE)
    before = records(store)
    for nonce in (holders.NONCE, None, "x"):
        assert lease.force_release(nonce).fence is None
        assert lease.force_release(nonce, even_if_alive=True).fence is None

    assert records(store) == before


@NEEDS_LINUX_PROC
def test_a_holder_that_died_needs_no_force(tmp_path: Path) -> None:
    with holders.reaped(tmp_path / "store"):
        lease = WriterLease(tmp_path / "store")
        done = lease.force_release(lease.inspect().nonce)

        assert (done.before.state, done.fence) == ("free", None)


@pytest.mark.parametrize("nonce", ["f" * 32, "", None, holders.NONCE.upper(), holders.NONCE[:8]])
@pytest.mark.parametrize("even_if_alive", [False, True])
def test_another_nonce_than_the_one_looked_at_is_refused(nonce: str | None, even_if_alive: bool) -> None:
    """B100: the lease changed hands between the look and the force."""
    store = unknown()
    before = records(store)
    with pytest.raises(RefusedError) as refused:
        WriterLease(store).force_release(nonce, even_if_alive=even_if_alive)

    assert (refused.value.fence, refused.value.nonce, refused.value.exit_code) == (1, holders.NONCE, 1)
    assert records(store) == before


def test_a_successor_of_the_one_looked_at_is_not_broken() -> None:
    store = unknown()
    seen = WriterLease(store).inspect()
    put(store, _keys.claim(2), holders.claim(2, nonce="e" * 32))

    with pytest.raises(RefusedError):
        WriterLease(store).force_release(seen.nonce)
    assert WriterLease(store).inspect().nonce == "e" * 32


@NEEDS_LINUX_PROC
def test_a_living_holder_is_refused_with_its_verdict_and_broken_by_a_second_word(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with holders.holding(store) as agent:
        lease = WriterLease(store)
        nonce = lease.inspect().nonce
        before = holders.everything_below(store / "lease")
        with pytest.raises(RefusedError):
            lease.force_release(nonce, dry_run=True)
        with pytest.raises(RefusedError) as refused:
            lease.force_release(nonce)
        assert refused.value.judgement is not None
        assert (refused.value.judgement.verdict.value, refused.value.nonce) == ("alive", nonce)
        assert "lifeline_held" in str(refused.value)
        assert f"/{agent.pid}" in str(refused.value)
        assert pickle.loads(pickle.dumps(refused.value)).nonce == nonce
        assert holders.everything_below(store / "lease") == before
        assert agent.ask("check_hold") == "ok"

        assert lease.force_release(nonce, even_if_alive=True).fence == 2
        assert independent.state(agent.pid) in "SR", "nobody is stopped"
        assert agent.ask("check_hold") == "fenced"
        assert agent.ask("renew_hold") == "fenced"
        assert agent.ask("release_hold") == "ok"
        assert taken(lease) == 3


@NEEDS_LINUX_PROC
def test_it_works_while_the_holder_is_stopped_and_fences_it_when_it_goes_on(tmp_path: Path) -> None:
    """B100: the verb must not need what the holder has."""
    store = tmp_path / "store"
    with holders.stopped(store) as agent:
        lease = WriterLease(store)
        assert lease.force_release(lease.inspect().nonce, even_if_alive=True).fence == 2
        taken = lease.acquire()
        assert independent.state(agent.pid) == "T"
        os.kill(agent.pid, signal.SIGCONT)
        assert agent.ask("check_hold") == "fenced"
        taken.check()
        taken.release()


def test_ones_own_hold_can_be_broken(tmp_path: Path) -> None:
    lease = WriterLease(tmp_path / "store", ttl=LONG)
    hold = lease.acquire()
    with pytest.raises(RefusedError):
        lease.force_release(hold.nonce)
    lease.force_release(hold.nonce, even_if_alive=True)

    with pytest.raises(FencedError) as fenced:
        hold.check()
    assert (fenced.value.ours, fenced.value.current) == (1, 2)
    hold.release()


def test_a_dry_run_says_what_would_be_done_and_writes_nothing() -> None:
    store = unknown()
    before = records(store)
    done = WriterLease(store).force_release(holders.NONCE, dry_run=True)

    assert (done.before.state, done.before.fence, done.fence) == ("unknown", 1, None)
    assert records(store) == before


@pytest.mark.parametrize("data", [b"", b"{", b"\0" * 300, b"1", b" " * 100_000, holders.claim()[:-9]])
def test_a_claim_that_cannot_be_read_is_broken_by_no_nonce(data: bytes) -> None:
    store = MemoryStore()
    put(store, _keys.claim(1), data)
    lease = WriterLease(store)
    with pytest.raises(RefusedError):
        lease.force_release(holders.NONCE)
    with pytest.raises(WriterBusyError):
        lease.acquire()

    assert lease.force_release(None).fence == 2
    assert records(store)[_keys.claim(1)] == data, "its bytes are kept"
    assert taken(lease) == 3


def test_a_newer_claim_is_not_broken_by_an_older_tenure() -> None:
    store = unknown(v=2)
    for nonce in (holders.NONCE, None):
        with pytest.raises(RecordTooNewError):
            WriterLease(store).force_release(nonce, even_if_alive=True)

    assert set(records(store)) == {_keys.claim(1)}


def test_the_burnt_fence_is_above_every_heartbeat_too() -> None:
    """Claims may have been deleted; their beats remember the numbers."""
    store = unknown(3)
    put(store, _keys.beat(7), holders.beat(1))

    assert WriterLease(store).force_release(holders.NONCE).fence == 8
    assert taken(WriterLease(store)) == 9


def test_whoever_takes_the_lease_at_the_same_moment_is_not_broken() -> None:
    class Racing(MemoryStore):
        def create(self, key: str, data: bytes) -> Any:
            if key == _keys.claim(2) and key not in records(self):
                put(self, key, holders.claim(2, nonce="e" * 32))
            return super().create(key, data)

    store = Racing()
    put(store, _keys.claim(1), holders.claim())
    with pytest.raises(RefusedError) as refused:
        WriterLease(store).force_release(holders.NONCE)

    assert (refused.value.fence, refused.value.nonce) == (2, "e" * 32)
    assert WriterLease(store).inspect().state == "unknown"


def test_a_store_that_does_not_answer_breaks_nothing() -> None:
    store = unknown()
    store.on("create").fail()
    with pytest.raises(StoreUnavailableError):
        WriterLease(store).force_release(holders.NONCE)

    assert WriterLease(store).inspect().state == "unknown"
    assert WriterLease(store).force_release(holders.NONCE).fence == 2


def test_after_a_lost_reply_a_second_force_finds_the_lease_free() -> None:
    store = unknown()
    store.on("create").lose_reply()
    with pytest.raises(StoreUnavailableError):
        WriterLease(store).force_release(holders.NONCE)

    assert WriterLease(store).force_release(holders.NONCE).fence is None
    assert taken(WriterLease(store)) == 3


def test_a_tombstone_reads_as_a_released_claim() -> None:
    """An older reader takes it for a claim whose holder has ended; ours says by force."""
    store = unknown()
    WriterLease(store).force_release(holders.NONCE)
    status = WriterLease(store).inspect()

    assert status.judgement is not None
    assert (status.state, status.fence, status.judgement.verdict.value) == ("free", 2, "gone")
    assert (status.judgement.reason, status.judgement.detail) == ("released", "by force")
