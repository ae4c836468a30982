"""When a holder is replaced: at once when proven gone, never while proven alive, after ttl + skew of watched silence else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure import FencedError, Hold, Judgement, ProcessIdentity, StoreError, Verdict, WriterBusyError, WriterLease
from tenure._judgement import Asker
from tenure._lease import _keys
from tenure._store._memory import MemoryStore
from tenure.testing import ManualClock
from tests.helpers import holders, independent, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.processes import Agent
from tests.helpers.records import OTHER_BOOT, OTHER_HOST, OTHER_NONCE, changed, later
from tests.lease.stores import LONG, planted, put, records

CLAIM, BEAT = _keys.claim(1), _keys.beat(1)


def identity(record: str) -> dict[str, Any]:
    """The record of a process, as a claim holds it."""
    fields = json.loads(record)
    assert isinstance(fields, dict)
    return fields


def watched_takeover(store: MemoryStore, *, patience: float, step: float = 1.0, **options: Any) -> Hold:
    """Look every *step*; it must be busy on each side of the limit until *patience* of silence has been watched."""
    clock = ManualClock()
    lease = WriterLease(store, clock=clock, ttl=LONG, **options)
    while clock.awake() < patience - 1e-9:
        with pytest.raises(WriterBusyError) as busy:
            lease.acquire()
        assert busy.value.retry_after_s == pytest.approx(patience - clock.awake())
        clock.advance(min(step, patience - clock.awake() - 0.001) if patience - clock.awake() > 0.001 else 0.001)
    return lease.acquire()


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("maker", [holders.reaped, holders.zombie, holders.executed])
def test_a_holder_that_is_gone_is_replaced_at_the_first_try(tmp_path: Path, maker: Callable[[Path], Any]) -> None:
    """B33 for the unreaped; one that has become another program is gone for its hold too, whatever its pid says."""
    store = tmp_path / "store"
    with maker(store):
        hold = WriterLease(store, ttl=LONG).acquire()
        assert hold.fence == 2
        hold.check()
        hold.release()


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("maker", [holders.reaped, holders.zombie, holders.executed])
def test_a_waiting_acquire_hears_of_a_death_without_polling_for_it(
    tmp_path: Path, maker: Callable[[Path], Any]
) -> None:
    store = tmp_path / "store"
    with maker(store, ttl=600.0):  # type: ignore[call-arg]
        assert WriterLease(store, ttl=LONG).acquire(timeout=60).fence == 2


@NEEDS_LINUX_PROC
def test_a_stopped_holder_is_never_replaced_and_never_woken(tmp_path: Path) -> None:
    """B51: it lives, so its silence means nothing. A manual clock lets ten times ttl + skew of it pass."""
    store = tmp_path / "store"
    clock = ManualClock()
    lease = WriterLease(store, clock=clock)
    with holders.stopped(store, ttl=30.0) as agent:
        for _ in range(400):
            clock.advance(1.0)
            assert lease.inspect().state == "held"
        with pytest.raises(WriterBusyError) as busy:
            lease.acquire(timeout=100.0)
        assert busy.value.retry_after_s is None
        assert independent.state(agent.pid) == "T"


@NEEDS_LINUX_PROC
def test_a_holder_whose_main_thread_ended_is_alive(tmp_path: Path) -> None:
    """B33, the other half: the leader shows Z and the process runs on."""
    store = tmp_path / "store"
    with holders.leader_exited(store):
        with pytest.raises(WriterBusyError):
            WriterLease(store).acquire()


@NEEDS_PID_NAMESPACE
@NEEDS_LINUX_PROC
def test_a_live_holder_in_another_pid_namespace_is_never_robbed(tmp_path: Path) -> None:
    """B04, B12, B16: same host name, another namespace, a pid that here is absent or somebody else's."""
    store = tmp_path / "store"
    with holders.in_own_pid_namespace(store) as agent:
        assert agent.pid_inside == 1
        for _ in range(20):
            with pytest.raises(WriterBusyError):
                WriterLease(store).acquire()
        assert agent.ask("check_hold") == "ok"
        agent.kill()
        agent.process.wait(processes.PATIENCE)
        assert WriterLease(store, ttl=LONG).acquire().fence == 2


@NEEDS_PID_NAMESPACE
@NEEDS_LINUX_PROC
def test_two_containers_with_one_host_name_and_pid_exclude_each_other(tmp_path: Path) -> None:
    """B16: "same host, same pid" was taken for one's own stale lock."""
    store = tmp_path / "store"
    with holders.in_own_pid_namespace(store) as first, Agent(OWN_PROC) as second:
        assert first.pid_inside == second.pid_inside == 1
        answers = second.ask("try_often", store=str(store), times=20)
        assert answers == [["writer_busy", "alive", "lifeline_held"]] * 20
        first.kill()
        first.process.wait(processes.PATIENCE)
        assert second.ask("take", store=str(store))["fence"] == 2


@NEEDS_PID_NAMESPACE
@NEEDS_LINUX_PROC
def test_without_a_lifeline_a_holder_in_another_namespace_is_at_most_unknown(tmp_path: Path) -> None:
    """B11, B12: a cleaner took the lifeline away, so only the record is left; absent here means nothing."""
    store = tmp_path / "store"
    with holders.holding(store), Agent(OWN_PROC) as asker:
        (lifeline,) = (store / "lease" / "lifeline").iterdir()
        lifeline.unlink()
        answers = asker.ask("try_often", store=str(store), times=20)
        assert {kind for kind, _, _ in answers} == {"writer_busy"}
        assert {verdict for _, verdict, _ in answers} <= {"unknown", "alive"}


@NEEDS_LINUX_PROC
def test_a_child_that_carries_the_lifeline_keeps_the_lease_and_its_end_frees_it(tmp_path: Path) -> None:
    """A killed supervisor whose command still writes. The lifeline outranks the identity, which says gone."""
    store = tmp_path / "store"
    with holders.holding(store) as agent:
        child = agent.ask("carry_on")
        with holders.ended_with(child):
            agent.kill()
            agent.process.wait(processes.PATIENCE)
            with pytest.raises(WriterBusyError) as busy:
                WriterLease(store).acquire()
            assert busy.value.judgement is not None
            assert (busy.value.judgement.verdict, busy.value.judgement.reason) == (Verdict.ALIVE, "lifeline_held")
        assert WriterLease(store, ttl=LONG).acquire().fence == 2


@NEEDS_LINUX_PROC
def test_a_child_that_carries_the_lifeline_outlasts_a_release(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with holders.holding(store) as agent:
        with holders.ended_with(agent.ask("carry_on")):
            assert agent.ask("release_hold") == "ok"
            assert WriterLease(store).inspect().state == "held"
        assert WriterLease(store).inspect().state == "free"


UNKNOWABLE: dict[str, Callable[[str], Any]] = {
    "an older record without identity": lambda mine: None,
    "an identity of a wrong type": lambda mine: 4242,
    "a newer identity": lambda mine: identity(changed(mine, v=9)),
    "another host (B19)": lambda mine: identity(changed(mine, host=OTHER_HOST, nonce=OTHER_NONCE)),
    "my own pid and start on another host (B22)": lambda mine: identity(changed(mine, host=OTHER_HOST)),
    "another boot (B06)": lambda mine: identity(changed(mine, boot=OTHER_BOOT, nonce=OTHER_NONCE)),
    "another namespace, pid present here (B01, B11)": lambda mine: identity(
        changed(mine, ns="4026539999", ns_id=None, uniq=None, nonce=OTHER_NONCE)
    ),
    "another namespace, pid absent here (B05, B11, B14)": lambda mine: identity(
        changed(mine, ns="4026539999", ns_id=None, uniq=None, pid=2**22 - 3, nonce=OTHER_NONCE)
    ),
}


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("holder", UNKNOWABLE.values(), ids=UNKNOWABLE.keys())
def test_an_unknowable_holder_is_replaced_after_ttl_and_skew_of_silence_and_not_before(
    holder: Callable[[str], Any],
) -> None:
    """B01, B05, B06, B11, B14, B19, B22: never "already running" for ever, and never gone by a host name or a pid."""
    store = planted(holders.claim(holder=holder(ProcessIdentity.current().to_json()), ttl=8.0, skew=4.0))

    hold = watched_takeover(store, patience=12.0)

    assert hold.fence == 2
    hold.release()


@pytest.mark.parametrize("data", [b"", b"1", b"{", b"\0" * 324, holders.claim()[:-9], holders.claim(ttl=315_360_000)])
def test_a_claim_that_nobody_can_read_is_passed_after_the_default_patience_and_kept(data: bytes) -> None:
    """B02, B38, B62: the number is used, the owner unknown, the bytes the operator's."""
    store = planted(data)

    hold = watched_takeover(store, patience=40.0)

    assert hold.fence == 2
    assert records(store)[CLAIM] == data
    hold.release()


@NEEDS_LINUX_PROC
def test_a_recycled_pid_is_a_stranger_and_is_left_alone(tmp_path: Path) -> None:
    """B07, B32: the number is now a live sibling's. At once, without a word to the sibling."""
    with processes.sleeping() as sibling:
        dead = changed(later(later(sibling.record, "start", -5), "uniq", -5), nonce=OTHER_NONCE)
        store = planted(holders.claim(holder=identity(dead)))

        assert WriterLease(store, ttl=LONG).acquire().fence == 2
        assert independent.state(sibling.pid) == "S"


@NEEDS_LINUX_PROC
def test_another_users_process_with_the_recorded_number_is_judged_without_an_exception() -> None:
    """B30, B32: a permission error is neither a death nor a crash of whoever looks."""
    with processes.of_another_user() as stranger, Agent() as asker:
        asker.ask("set_uid", uid=65533)
        assert asker.judge(stranger.record)[0] == "alive"
        assert asker.judge(later(later(stranger.record, "start"), "uniq"))[0] == "gone"


@NEEDS_LINUX_PROC
def test_a_live_process_outlives_any_age_of_its_record() -> None:
    """B51: age was tested before, or instead of, life. Here the last beat is ten times ttl + skew ago."""
    with processes.sleeping() as writer:
        store = planted(holders.claim(holder=identity(writer.record), ttl=2.0, skew=1.0))
        clock = ManualClock()
        lease = WriterLease(store, clock=clock)
        for _ in range(60):
            clock.advance(0.5)
            with pytest.raises(WriterBusyError) as busy:
                lease.acquire()
            assert busy.value.retry_after_s is None


@NEEDS_LINUX_PROC
def test_a_holder_that_was_proven_alive_a_moment_ago_is_not_robbed_by_one_unknown_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A probe may fail once (no descriptors, a blocked call). A stopped writer would be replaced at that very look."""
    with processes.stopped() as writer:
        store = planted(holders.claim(holder=identity(writer.record), ttl=2.0, skew=1.0))
        clock = ManualClock()
        lease = WriterLease(store, clock=clock)
        for _ in range(20):
            clock.advance(0.5)
            assert lease.inspect().state == "held"
        monkeypatch.setattr(Asker, "judge", lambda *_, **__: Judgement(Verdict.UNKNOWN, "no_fds"))

        assert lease.inspect().state == "unknown"


def test_a_deleted_lease_record_never_hands_its_fence_out_again(tmp_path: Path) -> None:
    """B18, B102: "just rm the pid file". The starter cannot know, but the fence goes on and the old holder is told."""
    store = tmp_path / "store"
    first = WriterLease(store, ttl=LONG).acquire()
    (store / CLAIM).unlink()
    with pytest.raises(OSError):
        first.check()

    second = WriterLease(store, ttl=LONG).acquire()

    assert second.fence == 2
    with pytest.raises((FencedError, StoreError)):
        first.check()
    second.check()
    first.release()
    second.release()


@pytest.mark.parametrize("doing", ["check", "renew"])
def test_a_higher_claim_is_proof_of_loss_also_when_ones_own_was_collected(doing: str) -> None:
    """B18, B73: a stalled holder is told to try again, for ever, and its owner is never told that it was replaced."""
    store = MemoryStore()
    heard: list[int] = []
    hold = WriterLease(store, ttl=LONG, on_lost=lambda lost: heard.append(lost.fence)).acquire()
    put(store, _keys.claim(2), holders.claim(2))
    store.delete(CLAIM)

    with pytest.raises(FencedError) as fenced:
        getattr(hold, doing)()

    assert (fenced.value.ours, fenced.value.current) == (1, 2)
    assert heard == [1]


def test_every_record_of_the_lease_deleted_still_stops_the_old_holder(tmp_path: Path) -> None:
    """B18, with nothing left to count from: the same number, but never two that both pass their check."""
    store = tmp_path / "store"
    first = WriterLease(store, ttl=LONG).acquire()
    (store / CLAIM).unlink()
    (store / BEAT).unlink()
    second = WriterLease(store, ttl=LONG).acquire()

    with pytest.raises(FencedError):
        first.check()
    second.check()
    first.release()
    second.check()
    second.release()
