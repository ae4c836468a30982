"""The lease in a database: the scenes that every store must play, and what only connections do."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from tenure import FencedError, Verdict, WriterBusyError, WriterLease
from tenure._lease import _keys
from tenure._store._sql import SqlStore
from tenure.testing import ManualClock
from tests.cli.running import tenure
from tests.helpers import databases, holders
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.helpers.processes import PATIENCE, ROOT
from tests.helpers.proxy import Proxy
from tests.helpers.servers import MariaDB, PgBouncer, PostgreSQL
from tests.lease.stores import LONG


@pytest.fixture(params=databases.EVERY)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return databases.urls(request.param, request, tmp_path)()


@pytest.fixture
def store(url: str) -> SqlStore:
    return SqlStore(url)


def test_fences_rise_by_one_and_every_claim_stays(store: SqlStore) -> None:
    for fence in range(1, 4):
        with WriterLease(store, ttl=LONG).acquire() as hold:
            assert hold.fence == fence
            hold.check()
    claims = [key for key in store.list(_keys.PREFIX) if _keys.fence_of(key)]
    assert claims == [_keys.claim(number) for number in range(1, 4)]
    assert WriterLease(store).inspect().state == "free"


@NEEDS_LINUX_PROC
def test_a_living_holder_is_named_and_keeps_the_lease_whatever_the_clock_says(url: str) -> None:
    clock = ManualClock()
    with holders.holding(url, ttl=0.2, skew=0.0, label="nightly import") as holder:
        lease = WriterLease(url, clock=clock)
        for _ in range(5):
            clock.advance(10.0)
            with pytest.raises(WriterBusyError) as busy:
                lease.acquire()
            assert busy.value.judgement.verdict is Verdict.ALIVE
            assert busy.value.label == "nightly import"
            assert str(holder.pid) in busy.value.holder


@NEEDS_LINUX_PROC
def test_a_killed_holder_is_replaced_at_once(url: str) -> None:
    with holders.reaped(url, ttl=LONG):
        with WriterLease(url, clock=ManualClock()).acquire() as hold:
            assert hold.fence == 2


def test_a_holder_whom_nobody_can_judge_is_replaced_after_ttl_and_skew_of_silence(store: SqlStore) -> None:
    store.create(_keys.claim(1), holders.claim(ttl=30.0, skew=10.0))
    clock = ManualClock()
    lease = WriterLease(store, clock=clock)
    for _ in range(40):
        with pytest.raises(WriterBusyError):
            lease.acquire()
        clock.advance(1.0)
    assert lease.acquire().fence == 2


def test_a_renewal_is_a_compare_and_swap_that_a_waiter_sees(store: SqlStore, url: str) -> None:
    hold = WriterLease(store, ttl=LONG).acquire()
    seen = []
    for _ in range(3):
        hold.renew()
        seen.append(WriterLease(url).inspect().beat)
    assert seen == [1, 2, 3]
    hold.release()


def test_whoever_beats_second_with_one_claim_has_lost(store: SqlStore) -> None:
    """A clone of the holder: only one of the two goes on."""
    hold = WriterLease(store, ttl=LONG).acquire()
    hold.renew()
    beat = _keys.beat(hold.fence)
    found = store.read(beat)
    assert found is not None
    store.replace(beat, holders.beat(2, nonce=hold.nonce), found.version)
    with pytest.raises(FencedError):
        hold.renew()


def test_a_holder_that_was_replaced_finds_out_at_its_next_check(store: SqlStore, url: str) -> None:
    hold = WriterLease(store, ttl=LONG).acquire()
    hold.check()
    done = WriterLease(url).force_release(hold.nonce, even_if_alive=True)
    assert done.fence == 2
    with pytest.raises(FencedError) as fenced:
        hold.check()
    assert (fenced.value.ours, fenced.value.current) == (1, 2)


# A process that counts up in a file, without any care but the lease.
_COUNTER = """
import sys, time, tenure
lease = tenure.WriterLease(sys.argv[1])
for _ in range(int(sys.argv[3])):
    with lease.acquire(timeout=100) as hold:
        number = int(open(sys.argv[2]).read())
        hold.check()
        open(sys.argv[2], "w").write(str(number + 1))
        print(hold.fence)
"""


def test_what_processes_do_in_turn_is_not_lost(url: str, tmp_path: Path) -> None:
    """B79: also where every statement reaches another server process than the one before."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    command = [sys.executable, "-c", _COUNTER, url, str(counter), "5"]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(4)]
    fences = sorted(int(fence) for writer in writers for fence in writer.communicate(timeout=110)[0].split())
    assert fences == list(range(1, 21))
    assert counter.read_text() == "20"


# Connections


@pytest.fixture(params=databases.SERVED)
def served(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[PostgreSQL | PgBouncer | MariaDB, str]:
    return request.getfixturevalue(request.param), databases.urls(request.param, request, tmp_path)()


@pytest.fixture
def proxied(served: tuple[PostgreSQL | PgBouncer | MariaDB, str]) -> Iterator[tuple[Proxy, SqlStore]]:
    server, url = served
    with Proxy(server.port) as proxy:
        store = SqlStore(proxy.before(url))
        yield proxy, store
        store._engine().dispose()


def test_a_lease_outlives_every_connection_that_it_was_held_by(proxied: tuple[Proxy, SqlStore]) -> None:
    """B81: leadership was lost every hour to the second, when the pool replaced the connection that had the lock."""
    proxy, store = proxied
    hold = WriterLease(store, ttl=LONG).acquire()
    for _ in range(3):
        proxy.cut()
        hold.check()
        proxy.cut()
        hold.renew()
    assert (hold.state, hold.fence) == ("held", 1)
    assert proxy.count() > 3
    hold.release()


@pytest.mark.parametrize("loss", ["request", "answer"])
def test_a_claim_whose_answer_was_lost_is_a_hold(proxied: tuple[Proxy, SqlStore], loss: str) -> None:
    """B74"""
    proxy, store = proxied
    WriterLease(store).acquire().release()
    fault = proxy.lose(loss, b"INSERT INTO")  # type: ignore[arg-type]
    with WriterLease(store, ttl=LONG).acquire() as hold:
        assert fault.happened.is_set()
        hold.check()
        assert hold.fence == 2


@pytest.mark.parametrize("loss", ["request", "answer"])
def test_a_renewal_whose_answer_was_lost_is_no_loss(proxied: tuple[Proxy, SqlStore], loss: str) -> None:
    proxy, store = proxied
    hold = WriterLease(store, ttl=LONG).acquire()
    hold.renew()
    fault = proxy.lose(loss, b"UPDATE")  # type: ignore[arg-type]
    hold.renew()
    assert fault.happened.is_set()
    hold.check()
    assert WriterLease(store).inspect().beat == 2
    hold.release()


@pytest.mark.parametrize("server", databases.SERVED[::2])
def test_after_a_crash_of_the_server_check_tells_the_truth(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """B81: it re-reads, and believes no connection that was open before."""
    database: PostgreSQL | MariaDB = request.getfixturevalue(server)
    url = databases.urls(server, request, tmp_path)()
    kept, lost = (
        WriterLease(url, ttl=LONG).acquire(),
        WriterLease(databases.urls(server, request, tmp_path)(), ttl=LONG),
    )
    fenced = lost.acquire()
    database.crash()
    database.start()
    kept.check()
    lost.store.create(_keys.claim(2), holders.claim(2))
    with pytest.raises(FencedError):
        fenced.check()
    kept.release()


def test_the_pulse_renews_without_being_asked(store: SqlStore) -> None:
    beaten = threading.Event()

    @event.listens_for(store._engine(), "after_cursor_execute")
    def hear(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE"):
            beaten.set()

    with WriterLease(store, ttl=0.6).acquire() as hold:
        assert beaten.wait(PATIENCE)
        hold.check()


# The command


def test_a_command_runs_under_a_lease_in_a_database(url: str) -> None:
    shown = SqlStore(url).url
    for fence in ("1", "2"):
        done = tenure("run", url, "--", "sh", "-c", 'echo "$TENURE_FENCE $TENURE_URL"')
        assert done.stdout == f"{fence} {shown}\n", done.stderr
    status = tenure("status", url)
    assert status.returncode == 0
    assert "free" in status.stdout


def test_a_relative_file_still_means_the_same_elsewhere(tmp_path: Path) -> None:
    done = tenure("run", "sqlite:lease.db", "--", "sh", "-c", 'echo "$TENURE_URL"', cwd=tmp_path)
    assert done.stdout == f"sqlite:{tmp_path}/lease.db\n", done.stderr


def test_a_database_that_is_down_is_for_now_and_says_what_to_do() -> None:
    done = tenure("status", "postgresql://app:open-sesame@127.0.0.1:1/app")
    assert done.returncode == 75
    assert "hint: see whether the database runs" in done.stderr
    assert "sesame" not in done.stderr
