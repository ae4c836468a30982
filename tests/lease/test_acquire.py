"""Acquire: fences rise by one, one wins, waits end when they should, and what is cut off blocks nobody."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure import Error, Hold, ProcessIdentity, StoreError, StoreUnavailableError, WriterBusyError, WriterLease
from tenure._lease import _keys
from tenure._lease._attempt import Attempt
from tenure._lease._pulse import Pulse
from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore, Operation
from tenure.stores import Store
from tenure.testing import ManualClock
from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.lease.racing import die_with
from tests.lease.stores import LONG, TickingClock, put, records

CLAIM = _keys.claim(1)


def busy_store(**changes: Any) -> MemoryStore:
    store = MemoryStore()
    put(store, CLAIM, holders.claim(**changes))
    return store


def store_of(kind: str, directory: Path) -> Store:
    return FileStore(directory / "store") if kind == "file" else MemoryStore()


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_fences_rise_by_one_and_every_claim_stays(tmp_path: Path, kind: str) -> None:
    store = store_of(kind, tmp_path)
    lease = WriterLease(store, ttl=LONG)
    first = b""
    for fence in range(1, 6):
        with lease.acquire() as hold:
            assert hold.fence == fence
        found = store.read(CLAIM)
        assert found is not None
        first = first or found.data
        assert found.data == first

    assert [key for key in store.list(_keys.PREFIX) if _keys.fence_of(key)] == [_keys.claim(n) for n in range(1, 6)]


def test_whoever_takes_the_lease_between_our_look_and_our_claim_has_it() -> None:
    """B41, step by step: we saw a dead record; another took its place, and beat; only the fence that we saw may be passed."""
    store = busy_store()
    put(store, _keys.beat(1), holders.beat(1, state="released"))
    theirs = holders.claim(2, nonce="f" * 32, holder=json.loads(ProcessIdentity.current().to_json()))

    def other_takes_it() -> None:
        store.heal()
        put(store, _keys.claim(2), theirs)
        put(store, _keys.beat(2), holders.beat(1, nonce="f" * 32))

    # Wherever a taker may look next, and at the latest when it creates its claim.
    store.on("list", "lease/beat/").run(other_takes_it)
    store.on("create", _keys.claim(2)).run(other_takes_it)
    with pytest.raises(WriterBusyError) as busy:
        WriterLease(store, ttl=LONG).acquire()

    assert busy.value.fence == 2
    assert records(store)[_keys.claim(2)] == theirs
    assert _keys.claim(3) not in records(store)


@NEEDS_LINUX_PROC
def test_of_sixteen_processes_at_one_dead_record_one_wins_each_fence(tmp_path: Path) -> None:
    """B41: two saw one stale lock, and the slower deleted the faster one's new one. Round after round."""
    rounds = 100
    out = tmp_path / "out"
    out.mkdir()
    command = [sys.executable, "-m", "tests.lease.racing", str(tmp_path / "store"), str(out), str(rounds)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=processes.ROOT) for _ in range(16)]
    won = []
    for racer in racers:
        said, _ = racer.communicate(timeout=100)
        won.append(int(said or -rounds))

    assert not (out / "failed").exists(), "two were inside at once"
    assert sorted(int(path.name) for path in out.iterdir()) == list(range(1, sum(won) + 1))
    assert sum(won) >= rounds


@pytest.mark.parametrize("shared", [True, False], ids=["one lease object", "one each"])
def test_of_eight_threads_at_one_dead_record_one_takes_the_next_fence_and_the_others_join_it(
    tmp_path: Path, shared: bool
) -> None:
    """B43: names built from the pid alone let one thread delete another's live lock. Round after round."""
    one = WriterLease(tmp_path / "store", ttl=LONG)
    leases = [one if shared else WriterLease(tmp_path / "store", ttl=LONG) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for dead in range(1, 40, 2):
            die_with(one.acquire())
            together = threading.Barrier(8, timeout=30)

            def take(lease: WriterLease, together: threading.Barrier = together) -> Hold:
                together.wait()
                return lease.acquire(timeout=30)

            holds = list(pool.map(take, leases))
            assert {hold.fence for hold in holds} == {dead + 1}
            assert len({hold.nonce for hold in holds}) == 1
            for hold in holds:
                hold.check()
                hold.release()
            assert one.inspect().fence == dead + 1
            assert one.inspect().state == "free"


def test_an_acquire_that_another_thread_is_about_to_finish_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks with no time to wait, while the first hold of this process is being made."""
    store = MemoryStore()
    start, refused = Attempt.start_pulse, list[WriterBusyError]()

    def second() -> None:
        try:
            WriterLease(store, ttl=LONG).acquire().release()
        except WriterBusyError as busy:
            refused.append(busy)

    def meanwhile(attempt: Attempt) -> Pulse:
        thread = threading.Thread(target=second)
        thread.start()
        # It may as well wait for the first to be there.
        thread.join(0.5)
        return start(attempt)

    monkeypatch.setattr(Attempt, "start_pulse", meanwhile)
    with WriterLease(store, ttl=LONG).acquire():
        assert refused == []


def test_timeout_zero_is_one_attempt() -> None:
    """B108."""
    store, clock = busy_store(), ManualClock()
    with pytest.raises(WriterBusyError):
        WriterLease(store, clock=clock).acquire(timeout=0)

    assert (clock.awake(), store.count("read", CLAIM), store.count("create")) == (0.0, 1, 0)


def test_timeout_zero_takes_what_is_free() -> None:
    assert WriterLease(MemoryStore(), ttl=LONG, clock=ManualClock()).acquire(timeout=0).fence == 1


@pytest.mark.parametrize("timeout", [0.1, 1.0, 3.0, 12.5])
def test_a_wait_ends_exactly_at_its_timeout_with_a_last_look(timeout: float) -> None:
    """B108: an outer retry repeated the inner wait, and 10 s became 100 s."""
    store, clock = busy_store(), ManualClock()
    with pytest.raises(WriterBusyError):
        WriterLease(store, clock=clock).acquire(timeout=timeout)

    assert clock.awake() == pytest.approx(timeout)
    assert store.count("read", CLAIM) <= timeout + 2, "once a second, and at the end"


def test_a_wait_of_the_systems_clock_lasts_as_long_as_asked(tmp_path: Path) -> None:
    store = tmp_path / "store"
    holders.plant(store, holders.claim())
    clock = tenure._clock.SystemClock()
    started = clock.awake()
    with pytest.raises(WriterBusyError):
        WriterLease(store).acquire(timeout=0.4)

    assert 0.4 <= clock.awake() - started < 10


@pytest.mark.parametrize("timeout", [-1, float("nan"), -0.001])
def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        WriterLease(MemoryStore()).acquire(timeout=timeout)


def test_a_release_during_the_wait_is_seen(tmp_path: Path) -> None:
    with holders.holding(tmp_path / "store", ttl=LONG) as agent:
        timer = threading.Timer(0.2, agent.ask, ["release_hold"])
        timer.start()
        second = WriterLease(tmp_path / "store", ttl=LONG).acquire(timeout=60)
        timer.join()

    assert second.fence == 2


def test_a_slow_store_costs_at_most_one_look_beyond_the_timeout() -> None:
    """B108: each request takes 5 s. What bounds a single request is the store's own affair."""
    store, clock = busy_store(), ManualClock()
    for operation in ("list", "read"):
        store.on(operation, nth=0).run(lambda: clock.advance(5.0))
    with pytest.raises(WriterBusyError):
        WriterLease(store, clock=clock).acquire(timeout=3)

    assert len(store.calls) <= 3


@pytest.mark.parametrize("timeout", [0, 2.0])
@pytest.mark.parametrize("operation", ["list", "read"])
def test_a_store_that_never_answers_is_asked_for_the_timeout_and_no_longer(
    timeout: float, operation: Operation
) -> None:
    """B49: an error was taken for progress, and the loop span. A few looks, then the store's own error."""
    store, clock = busy_store(), ManualClock()
    store.on(operation, nth=0).fail()
    with pytest.raises(StoreUnavailableError):
        WriterLease(store, clock=clock).acquire(timeout=timeout)

    assert clock.awake() == pytest.approx(timeout)
    assert store.count(operation) <= timeout + 2


def test_a_store_that_fails_for_good_is_not_waited_for() -> None:
    """B49."""
    store, clock = MemoryStore(), ManualClock()
    store.on("list", nth=0).fail(StoreError("permission denied"))
    with pytest.raises(StoreError, match="permission denied"):
        WriterLease(store, clock=clock).acquire(timeout=60)

    assert clock.awake() == 0.0


@NEEDS_LINUX_PROC
def test_a_directory_that_cannot_be_used_is_said_to_be_so(tmp_path: Path) -> None:
    """B49: unreadable, and a file in place of it."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError):
        WriterLease(tmp_path / "file").acquire(timeout=60)
    with processes.Agent() as agent:
        tmp_path.chmod(0o700)
        # What it has to import it can read now only.
        agent.ask("take", store=str(tmp_path / "another"))
        agent.ask("set_uid", uid=65534)
        refused = agent.ask("take", store=str(tmp_path / "store"), timeout=60)
    assert (refused["kind"], refused["exit_code"]) == ("store_failed", 1)


def test_a_deadline_that_passes_while_the_store_fails_ends_in_the_stores_error() -> None:
    store = MemoryStore()
    store.on("list", nth=0).fail()
    with pytest.raises(StoreUnavailableError):
        WriterLease(store, clock=TickingClock(0.1)).acquire(timeout=0.15)


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_ctrl_c_ends_a_wait_at_once(tmp_path: Path, kind: str) -> None:
    """B108. The looks are put half a minute apart, so that only an interrupted sleep ends in time."""
    script = """
import sys, tenure
from tenure._lease import _lease, _keys, _waiting
from tenure._store._memory import MemoryStore
_waiting._WOKEN_S = _waiting._HALF_WOKEN_S = _waiting._REMOTE_S = 30.0
store = tenure.open_store(sys.argv[1])
store.create(_keys.claim(1), sys.argv[2].encode())
sleep = _lease.SystemClock.sleep
def told(self, *args, **kwargs):
    print("waiting", flush=True)
    sleep(self, *args, **kwargs)
_lease.SystemClock.sleep = told
try:
    tenure.WriterLease(store).acquire(timeout=60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    url = str(tmp_path / "store") if kind == "file" else "memory:ctrl-c"
    holder = tenure.ProcessIdentity.current().to_json() if kind == "memory" else "null"
    claim = holders.claim(holder="HERE").replace(b'"HERE"', holder.encode()).decode()
    with subprocess.Popen(
        [sys.executable, "-c", script, url, claim], stdout=subprocess.PIPE, text=True, cwd=processes.ROOT
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "waiting\n"
        waiting.send_signal(2)
        said, _ = waiting.communicate(timeout=15)

    assert said == "interrupted\n"


def test_the_last_fence_is_not_passed() -> None:
    """A tombstone at the end of the numbers, as one would leave for software that must not go on."""
    store = MemoryStore()
    last = _keys.claim(_keys.MAX_FENCE)
    put(store, last, holders.claim(_keys.MAX_FENCE))
    put(store, _keys.beat(_keys.MAX_FENCE), holders.beat(1, state="released"))
    clock = ManualClock()

    with pytest.raises(Error):
        WriterLease(store, ttl=LONG, clock=clock).acquire(timeout=2)

    assert max(key for key in records(store) if "beat" not in key) == last


def test_taking_over_is_one_warning_and_a_free_lease_none(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    lease = WriterLease(tmp_path / "store", ttl=LONG)
    with lease.acquire():
        pass
    die_with(lease.acquire())
    assert caplog.records == []

    lease.acquire().release()

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "lifeline_free" in caplog.text
