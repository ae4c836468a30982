"""Lifelines of stores that are no directory: on the host that the holder and the asker share, named by the nonce alone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tenure import FencedError, LeaseStatus, WriterBusyError, WriterLease
from tenure._clock import SystemClock
from tenure._lease import _host, _keys, _waiting
from tenure._lease._beat import encode
from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.scripts import Script
from tests.lease.stores import LONG, RemoteStore

pytestmark = NEEDS_LINUX_PROC

# The last line that it is told says how it is to end.
HOLDER = """
    import subprocess
    from tenure import WriterLease
    from tests.lease.stores import RemoteStore
    hold = WriterLease(RemoteStore(sys.argv[1]), ttl=600).acquire()
    print(hold.fence)
    how = sys.stdin.readline().strip()
    if how == "exec":
        os.execvp("sleep", ["sleep", "600"])
    if how == "release":
        hold.release()
        sys.stdin.readline()
    if how == "carry":
        fd = hold.lifeline_fileno()
        print(subprocess.Popen(["sleep", "600"], pass_fds=[fd], start_new_session=True, stdout=2).pid)
        sys.stdin.readline()
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of this user for the state of this host."""
    monkeypatch.setenv("TENURE_CACHE", str(tmp_path / "host"))
    return tmp_path / "host"


@pytest.fixture
def store(tmp_path: Path) -> RemoteStore:
    return RemoteStore(tmp_path / "store")


def holding(store: RemoteStore, host: Path | str, *, prefix: Sequence[str] = ()) -> Script:
    holder = Script(HOLDER, store.url.removeprefix("remote:"), prefix=prefix, TENURE_CACHE=str(host))
    assert holder.says() == "1"
    return holder


def seen(store: RemoteStore) -> str:
    """The evidence on the holder."""
    judgement = look(store).judgement
    assert judgement is not None
    return judgement.reason


def look(store: RemoteStore) -> LeaseStatus:
    return WriterLease(store).inspect()


def claim(store: RemoteStore, fence: int = 1) -> dict[str, Any]:
    stored = store.read(_keys.claim(fence))
    assert stored is not None
    fields = json.loads(stored.data)
    assert isinstance(fields, dict)
    return fields


def files(host: Path) -> list[Path]:
    return [path for path in host.rglob("*") if path.is_file()]


@pytest.fixture
def holder(store: RemoteStore, host: Path) -> Iterator[Script]:
    with holding(store, host) as script:
        yield script


def test_a_holder_is_alive_by_its_lifeline_and_gone_once_it_is_killed(store: RemoteStore, holder: Script) -> None:
    assert seen(store) == "lifeline_held"
    holder.send(signal.SIGSTOP)
    assert seen(store) == "lifeline_held", "also while it stands still"

    holder.kill()

    assert seen(store) == "lifeline_free"
    assert WriterLease(store, ttl=LONG).acquire().fence == 2


@NEEDS_PID_NAMESPACE
def test_a_holder_in_another_pid_namespace_is_never_robbed_and_replaced_at_once_when_killed(
    store: RemoteStore, host: Path
) -> None:
    with holding(store, host, prefix=OWN_PROC) as holder:
        assert seen(store) == "lifeline_held"
        with pytest.raises(WriterBusyError):
            WriterLease(store).acquire()
        holder.kill()
        processes.until(lambda: seen(store) == "lifeline_free", "its namespace outlives it")
        assert WriterLease(store, ttl=LONG).acquire().fence == 2


def test_a_holder_that_has_become_another_program_is_gone(store: RemoteStore, holder: Script) -> None:
    """Its identity says that it lives, and so it does, without its hold."""
    holder.tell("exec")
    processes.until(lambda: seen(store) == "lifeline_free", "the exec does not close it")
    assert WriterLease(store, ttl=LONG).acquire().fence == 2


def test_a_command_that_carries_the_lifeline_keeps_the_hold_of_a_killed_holder(
    store: RemoteStore, holder: Script
) -> None:
    holder.tell("carry")
    with holders.ended_with(int(holder.says())) as command:
        holder.kill()
        assert seen(store) == "lifeline_held"
        with pytest.raises(WriterBusyError):
            WriterLease(store).acquire()
        holders.end(command)
        processes.until(lambda: seen(store) == "lifeline_free", "its end does not free it")


def test_a_hold_that_says_released_is_alive_while_its_lifeline_is_held(store: RemoteStore, holder: Script) -> None:
    """Its claim is then read, which otherwise is a request that a released hold is spared."""
    store.create(_keys.beat(1), encode(claim(store)["nonce"], 1, "released"))
    with pytest.raises(WriterBusyError):
        WriterLease(store).acquire()
    holder.kill()
    assert WriterLease(store, ttl=LONG).acquire().fence == 2


def test_a_waiter_hears_of_the_end_of_a_hold_without_polling_for_it(
    store: RemoteStore, holder: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each look is a request. The holder's process lives on, so nothing but the lifeline can tell."""
    monkeypatch.setattr(_waiting, "_REMOTE_S", 600.0)
    sleeps = []

    class Waited(SystemClock):
        def sleep(self, seconds: float, *, unless: Sequence[int] = ()) -> None:
            sleeps.append(seconds)
            if len([slept for slept in sleeps if slept]) == 1:
                holder.tell("exec")
            super().sleep(seconds, unless=unless)

    assert WriterLease(store, ttl=LONG, clock=Waited()).acquire(timeout=60).fence == 2
    assert len(sleeps) <= 4


def test_a_waiter_hears_of_a_release_too(store: RemoteStore, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_waiting, "_REMOTE_S", 600.0)
    with (
        holding(store, host) as holder,
        Script(
            """
        from tenure import WriterLease
        from tenure._clock import SystemClock
        from tenure._lease import _waiting
        from tests.lease.stores import RemoteStore
        _waiting._REMOTE_S = 600.0
        sleep = SystemClock.sleep
        def told(self, seconds, *, unless=()):
            if seconds:
                print("waiting")
            sleep(self, seconds, unless=unless)
        SystemClock.sleep = told
        print(WriterLease(RemoteStore(sys.argv[1])).acquire(timeout=60).fence)
        """,
            store.url.removeprefix("remote:"),
            TENURE_CACHE=str(host),
        ) as waiter,
    ):
        assert waiter.says() == "waiting"
        holder.tell("release")
        assert waiter.says() == "2"


def test_a_holder_whose_descriptors_were_closed_is_fenced_by_its_check(store: RemoteStore, host: Path) -> None:
    hold = WriterLease(store, ttl=LONG).acquire()
    fd = hold.lifeline_fileno()
    assert fd is not None
    hold.check()
    os.close(fd)

    with pytest.raises(FencedError) as fenced:
        hold.check()
    assert (fenced.value.ours, fenced.value.current) == (1, 1)
    hold.release()


def test_it_is_this_users_alone_and_gone_after_the_release(store: RemoteStore, host: Path) -> None:
    hold = WriterLease(store, ttl=LONG).acquire()
    (lifeline,) = files(host)
    assert lifeline.name == hold.nonce
    assert lifeline.stat().st_mode & 0o777 == 0o600
    assert [path for path in [host, *host.rglob("*")] if path.is_dir() and path.stat().st_mode & 0o077] == []
    assert claim(store)["lifeline"]["ino"] == str(lifeline.stat().st_ino)

    hold.release()
    assert files(host) == []


def test_a_file_that_is_missing_proves_nothing(store: RemoteStore, holder: Script, host: Path) -> None:
    """Whoever cleans up temporary files, or has another home, must not end a hold: the identity decides."""
    (lifeline,) = files(host)
    lifeline.unlink()

    assert look(store).state == "held"
    assert seen(store) != "lifeline_held"


def test_another_file_at_its_name_proves_nothing_and_a_link_there_is_not_followed(
    store: RemoteStore, holder: Script, host: Path
) -> None:
    (lifeline,) = files(host)
    moved = lifeline.rename(lifeline.with_name("moved"))
    lifeline.touch(0o600)
    assert look(store).state == "held"
    lifeline.unlink()
    lifeline.symlink_to(moved)
    assert seen(store) != "lifeline_held"
    lifeline.unlink()
    moved.rename(lifeline)
    assert seen(store) == "lifeline_held"


@pytest.mark.parametrize("what", ["kept nowhere", "a file", "a link to nowhere", "below a file"])
def test_where_none_can_be_made_the_lease_is_taken_all_the_same(
    store: RemoteStore, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = tmp_path / "odd"
    if what == "a file":
        host.touch()
    elif what == "a link to nowhere":
        host.symlink_to(tmp_path / "nowhere")
    elif what == "below a file":
        host.touch()
        host /= "below"
    monkeypatch.setenv("TENURE_CACHE", "" if what == "kept nowhere" else str(host))

    with WriterLease(store, ttl=LONG).acquire() as hold:
        hold.check()
        assert hold.lifeline_fileno() is None
        assert claim(store)["lifeline"] is None
        assert look(store).state == "held"


def test_a_holder_that_had_another_best_place_is_found_too(
    store: RemoteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cron starts has no XDG_RUNTIME_DIR; whoever looks from a session has both."""
    monkeypatch.delenv("TENURE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    hold = WriterLease(store, ttl=LONG).acquire()
    assert files(tmp_path / "cache")

    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    assert seen(store) == "lifeline_held"
    hold.release()


def test_the_second_best_place_serves_where_the_best_does_not(
    store: RemoteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENURE_CACHE")
    (tmp_path / "run").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    with WriterLease(store, ttl=LONG).acquire() as hold:
        assert [path.name for path in files(tmp_path / "cache")] == [hold.nonce]


@pytest.mark.parametrize("value", ["relative", ""])
def test_a_relative_path_in_the_environment_is_ignored(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENURE_CACHE")
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", "/home/somebody")

    assert _host.own_directories() == [Path("/home/somebody/.cache/tenure")]
