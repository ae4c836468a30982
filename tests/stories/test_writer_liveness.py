"""
One rule for "is the writer still alive?", wherever it is asked.

A datastore asked it in five places and answered it in five ways: a container with the same host name took over a live writer, a reader
reverted the file of one that had stalled, a teardown of a replaced one tidied up for its successor, a question woke a stopped process.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure import Checkout, Datastore, WriterBusyError
from tenure._commit._author import Author
from tenure._lease import _keys
from tenure.testing import ManualClock
from tests.helpers import holders, independent, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.processes import Agent

COMMITTED, UNCOMMITTED = b"committed-v1", b"writer-uncommitted-v2"


@pytest.fixture(autouse=True)
def _remember_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_CACHE", "")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A datastore with one version, and a checkout of it."""
    with Datastore.create(tmp_path / "data").checkout(tmp_path / "checkout") as checkout, checkout.writer() as writer:
        writer.put("file", COMMITTED)
        writer.commit()
    return tmp_path


@contextmanager
def writing(place: Path, *, prefix: tuple[str, ...] = (), **options: float) -> Iterator[Agent]:
    """A process that has changed a file of the checkout and not committed it."""
    with Agent(prefix) as agent:
        agent.ask("open_checkout", store=str(place / "data"), path=str(place / "checkout"), **options)
        assert "kind" not in agent.ask("write")
        agent.ask("put", name="file", data=UNCOMMITTED.decode())
        agent.ask("put", name="new", data="new")
        yield agent


def opened(place: Path, **options: object) -> Checkout:
    return Datastore(place / "data", **options).checkout(place / "checkout")  # type: ignore[arg-type]


def refused(place: Path) -> None:
    """Nobody takes the lease, catches up or recovers, and no file changes."""
    with opened(place) as checkout:
        for act in (checkout.writer, checkout.catch_up, checkout.recover):
            with pytest.raises(WriterBusyError):
                act()
    assert (place / "checkout" / "file").read_bytes() == UNCOMMITTED
    assert (place / "checkout" / "new").exists()


@NEEDS_PID_NAMESPACE
def test_a_writer_in_another_pid_namespace_with_the_same_host_name_is_left_alone(place: Path) -> None:
    """Bug 1: a pid that is not found here proves nothing there."""
    with writing(place, prefix=tuple(OWN_PROC)):
        refused(place)


def foreign_writer(place: Path, *, ttl: float, skew: float) -> None:
    """The record, the marker and the prepared entry of a writer in a container with our host name, all of them unknowable here."""
    identity = json.loads(Author.without_hold().identity.to_json())  # type: ignore[union-attr]
    identity |= {"ns": "4026539999", "ns_id": "999999", "pid": 1 << 21, "uniq": None}
    with opened(place) as checkout:
        fence = max(int(path.name) for path in (place / "data" / "lease").glob("0*")) + 1
        works_in = {"id": checkout.id, "path": str(checkout.path)}
        claim = holders.claim(fence, holder=identity, ttl=ttl, skew=skew, lifeline=None, checkout=works_in)
        holders.plant(place / "data", claim, key=_keys.claim(fence))
        author = Author.from_record({"fence": str(fence), "nonce": holders.NONCE, "identity": identity})
        marker = {"v": 1, "author": author.to_record()}
        (checkout.path / ".tenure" / f"writer.{fence}").write_text(json.dumps(marker))
        checkout.outbox.prepare("theirs", b"{}", author=author, slot=3)
    (place / "checkout" / "file").write_bytes(UNCOMMITTED)
    (place / "checkout" / "new").write_bytes(b"new")


def test_the_planted_record_of_such_a_writer_is_refused_everywhere(place: Path) -> None:
    """The same without a container: lease refused, files untouched, entry not landed."""
    foreign_writer(place, ttl=30.0, skew=10.0)
    refused(place)
    with opened(place) as checkout:
        assert [entry.state for entry in checkout.outbox.entries()][-1] == "prepared"


@pytest.mark.parametrize("age", [35.0, 41.0, 3600.0])
def test_a_stalled_writer_of_this_host_is_left_alone_however_old_its_heartbeat_is(place: Path, age: float) -> None:
    """Bug 2: its reader reverted the file, and the writer committed the reverted bytes."""
    with writing(place) as agent:
        os.kill(agent.pid, signal.SIGSTOP)
        processes.until_state(agent.pid, "T")
        beat = max((place / "data" / "lease" / "beat").iterdir())
        now = beat.stat().st_mtime
        os.utime(beat, (now - age, now - age))
        refused(place)
        os.kill(agent.pid, signal.SIGCONT)
        assert agent.ask("commit")["slot"] == 4
    with opened(place) as checkout:
        checkout.catch_up()
    assert (place / "checkout" / "file").read_bytes() == UNCOMMITTED


@NEEDS_LINUX_PROC
def test_no_question_wakes_a_stopped_writer(place: Path) -> None:
    """Bug 4: a probe sent SIGCONT."""
    with writing(place) as agent:
        os.kill(agent.pid, signal.SIGSTOP)
        processes.until_state(agent.pid, "T")
        with opened(place) as checkout:
            checkout.status()
        refused(place)
        Datastore(place / "data").read("file")
        assert independent.state(agent.pid) == "T"


def kept(store: Path) -> dict[str, bytes]:
    """What must stay: all but heartbeats, and the lifeline of the one that ended."""
    files = (path for path in store.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if path.parent.name not in ("beat", "lifeline")}


def test_the_teardown_of_a_replaced_writer_changes_nothing_of_its_successor(place: Path) -> None:
    """Bug 3: a retention pass joined its lost hold, and rewrote who works in which checkout."""
    with writing(place) as agent:
        lease = Datastore(place / "data").lease()
        lease.force_release(lease.inspect().nonce, even_if_alive=True)
        other = place / "other"
        with Datastore(place / "data").checkout(other) as successor, successor.writer() as writer:
            writer.put("file", b"the successor's")
            before = kept(place / "data")
            assert "current" in agent.ask("retain", keep=1)
            assert agent.ask("close_writer") == []
            assert agent.ask("write")["kind"] == "writer_busy"
            assert kept(place / "data") == before
            seen = lease.inspect()
            assert (seen.fence, seen.checkout and seen.checkout.id) == (writer.fence, successor.id)
            assert (other / "file").read_bytes() == b"the successor's"
            assert writer.commit() is not None
    assert Datastore(place / "data").read("file") == b"the successor's"


@NEEDS_LINUX_PROC
def test_a_writer_that_died_and_was_not_reaped_is_replaced_at_once(place: Path) -> None:
    """Bug 6: a zombie was taken for alive."""
    with writing(place) as agent:
        agent.kill()
        processes.until_state(agent.pid, "Z")
        with opened(place) as checkout:
            # Its first thread is a zombie; the others, and with them its lifeline, may still be on their way out.
            recovered = checkout.recover(timeout=5.0)
        assert len(recovered.interrupted) == 1
    assert (place / "checkout" / "file").read_bytes() == COMMITTED
    assert not (place / "checkout" / "new").exists()


def test_what_a_recycled_pid_left_is_recovered_the_first_time(place: Path) -> None:
    """Bug 5: an unrelated process with the dead writer's pid made entry and marker look alive."""
    with writing(place) as agent:
        agent.kill()
        agent.process.wait()
        marker = max((place / "checkout" / ".tenure").glob("writer.*"))
        record = json.loads(marker.read_text())
        record["author"]["identity"] |= {"pid": os.getpid(), "uniq": None}
        marker.write_text(json.dumps(record))
        with opened(place) as checkout:
            assert len(checkout.recover().interrupted) == 1
    assert (place / "checkout" / "file").read_bytes() == COMMITTED


@pytest.mark.parametrize("over", [False, True])
def test_an_older_record_without_identity_is_judged_by_time_and_fence_alone(place: Path, over: bool) -> None:
    """Both sides of ttl + skew."""
    with opened(place) as checkout:
        works_in = {"id": checkout.id, "path": str(checkout.path)}
        claim = holders.claim(2, holder=None, ttl=30.0, skew=10.0, lifeline=None, checkout=works_in)
        holders.plant(place / "data", claim, key=_keys.claim(2))
        marker = {"v": 1, "author": {"fence": "2", "nonce": holders.NONCE}}
        (checkout.path / ".tenure" / "writer.2").write_text(json.dumps(marker))
    (place / "checkout" / "file").write_bytes(UNCOMMITTED)
    clock = ManualClock()
    with opened(place, clock=clock) as checkout:
        with pytest.raises(WriterBusyError):
            checkout.catch_up()
        for _ in range(41 if over else 39):
            clock.advance(1.0)
            checkout.status()
        if not over:
            with pytest.raises(WriterBusyError):
                checkout.catch_up()
            assert (place / "checkout" / "file").read_bytes() == UNCOMMITTED
        else:
            done = checkout.catch_up()
            assert done.recovered is not None
            assert done.moved_aside == (".tenure/interrupted/2/file",)
            assert (place / "checkout" / "file").read_bytes() == COMMITTED


def test_busy_is_worth_another_try_and_fenced_is_not() -> None:
    """Bug 7: exit codes."""
    from tenure import FencedError

    assert (WriterBusyError.exit_code, FencedError.exit_code) == (75, 1)
