"""The lifeline: held while anybody carries the hold, free the moment that nobody does, and believed only where it can be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tenure import FencedError, WriterLease
from tenure import _lifeline as lifelines
from tenure._lease import _keys
from tenure._lifeline import Lifeline, Place, asked
from tenure._store._file import FileStore
from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_IDENTITY, NEEDS_PID_NAMESPACE
from tests.lease.stores import LONG

pytestmark = NEEDS_IDENTITY

KEY = _keys.lifeline(holders.NONCE)


def made(directory: Path, key: str = KEY) -> tuple[FileStore, Lifeline]:
    store = FileStore(directory / "store")
    lifeline = Lifeline.create(store, key)
    assert lifeline is not None, "the temporary directory is on a file system without local locks"
    return store, lifeline


def held_by(store: Path) -> bool | None:
    """What an asker in this process learns about the highest claim's lifeline."""
    opened = FileStore(store)
    status = WriterLease(opened).inspect()
    assert status.judgement is not None
    return {"lifeline_held": True, "lifeline_free": False}.get(status.judgement.reason)


def test_a_lifeline_is_held_until_it_is_closed(tmp_path: Path) -> None:
    store, lifeline = made(tmp_path)
    assert asked(store, KEY, lifeline.place) is True

    lifeline.close(remove=True)

    assert not store.path_of(KEY).exists(), "nothing is left behind"
    assert lifeline.fileno() is None
    lifeline.close(remove=True)


def test_askers_do_not_see_each_other(tmp_path: Path) -> None:
    """Two that ask by trying would take each other for a live holder. An asker with the file open shows neither."""
    store, lifeline = made(tmp_path)
    place = lifeline.place
    fd = lifeline.fileno()
    assert fd is not None
    other = store.open(KEY, os.O_RDONLY)
    os.close(fd)

    assert [asked(store, KEY, place) for _ in range(3)] == [False] * 3
    assert asked(FileStore(tmp_path / "store"), KEY, place) is False
    os.close(other)


def test_the_holder_may_open_and_close_its_own_file(tmp_path: Path) -> None:
    """POSIX locks would be dropped by any close of the file in the process. Source: fcntl_locking(2)."""
    store, lifeline = made(tmp_path)

    for _ in range(3):
        assert store.path_of(KEY).read_bytes() == b""

    assert asked(store, KEY, lifeline.place) is True


@NEEDS_PID_NAMESPACE
def test_asking_works_across_pid_namespaces(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with holders.in_own_pid_namespace(store) as agent:
        assert held_by(store) is True
        agent.kill()
        agent.process.wait(processes.PATIENCE)
        assert held_by(store) is False


@pytest.mark.parametrize(
    ("maker", "held"),
    [
        (holders.holding, True),
        (holders.stopped, True),
        (holders.leader_exited, True),
        (holders.executed, False),
        (holders.zombie, False),
        (holders.reaped, False),
    ],
)
def test_it_is_held_exactly_as_long_as_the_hold_is_carried(
    tmp_path: Path, maker: Callable[[Path], object], held: bool
) -> None:
    store = tmp_path / "store"
    with maker(store):  # type: ignore[attr-defined]
        assert held_by(store) is held


def test_a_forked_child_carries_no_copy(tmp_path: Path) -> None:
    """B46: a daemon that a holder forked would keep its hold alive for ever."""
    store = tmp_path / "store"
    with holders.holding(store) as agent, holders.ended_with(agent.ask("fork_a_sleeper")):
        agent.kill()
        agent.process.wait(processes.PATIENCE)
        assert held_by(store) is False


def test_an_ordinary_command_carries_no_copy(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with holders.holding(store) as agent, holders.ended_with(agent.ask("start_a_command")):
        agent.kill()
        agent.process.wait(processes.PATIENCE)
        assert held_by(store) is False


def test_a_fork_while_the_lifeline_is_made_carries_no_copy_either(tmp_path: Path) -> None:
    """Between the open and the list of what to close after a fork the GIL is given up twice, so any thread may fork."""
    script = """
import os, signal, sys
from tenure import WriterLease, _lifeline
lock, children = _lifeline.lifeline_lock, []
def lock_and_fork(fd):
    taken = lock(fd)
    child = os.fork()
    if child == 0:
        os.close(1)
        signal.pause()
    children.append(child)
    return taken
_lifeline.lifeline_lock = lock_and_fork
WriterLease(sys.argv[1]).acquire().release()
print(children[0], flush=True)
"""
    store = tmp_path / "store"
    done = subprocess.run(
        [sys.executable, "-c", script, str(store)],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=processes.ROOT,
    )
    with holders.ended_with(int(done.stdout)):
        assert WriterLease(store).inspect().state == "free"


def test_a_missing_file_proves_nothing(tmp_path: Path) -> None:
    """A cleaner of temporary files was here. Never a proof of death."""
    store, lifeline = made(tmp_path)
    store.path_of(KEY).unlink()

    assert asked(store, KEY, lifeline.place) is None
    assert asked(FileStore(tmp_path / "no such store"), KEY, lifeline.place) is None


@pytest.mark.parametrize(
    "change",
    [
        {"boot": "3f9c1a52-0d7e-4b61-9a3c-6e2f8b4d7c10"},
        {"boot": ""},
        {"filesystem": "nfs"},
        {"filesystem": ""},
        {"device": 1},
        {"inode": 1},
        {"inode": 10**20 - 1},
    ],
)
def test_whatever_is_not_the_very_file_is_not_believed(tmp_path: Path, change: dict[str, object]) -> None:
    store, lifeline = made(tmp_path)
    other = replace(lifeline.place, **change)  # type: ignore[arg-type]

    assert asked(store, KEY, other) is None
    lifeline.close(remove=True)
    made(tmp_path)
    assert asked(store, KEY, other) is None, "neither when held nor when free"


def test_no_place_is_no_lifeline(tmp_path: Path) -> None:
    store, _ = made(tmp_path)

    assert asked(store, KEY, None) is None


def test_a_file_moved_away_and_made_anew_is_not_believed(tmp_path: Path) -> None:
    """Whoever unlinks and re-creates a lock file lets a second holder in; the inode in the claim says so."""
    store, lifeline = made(tmp_path)
    path = store.path_of(KEY)
    path.rename(path.with_name("moved"))
    path.touch(0o600)

    assert asked(store, KEY, lifeline.place) is None
    assert lifeline.is_intact(), "our own descriptor is still on our file"
    path.unlink()
    path.with_name("moved").rename(path)
    assert asked(store, KEY, lifeline.place) is True


@pytest.mark.parametrize("what", ["symlink", "symlink to the file itself", "fifo", "directory", "dangling"])
@pytest.mark.parametrize("handed_out", [True, False], ids=["handed out", "our own alone"])
def test_what_is_planted_at_its_name_is_neither_followed_nor_waited_for(
    tmp_path: Path, what: str, handed_out: bool
) -> None:
    """B44: the lock replaced by a link to an old file. What goes is the name of ours at most, never what it leads to."""
    store, lifeline = made(tmp_path)
    if handed_out:
        assert lifeline.fileno() is not None
    path = store.path_of(KEY)
    moved = path.rename(path.with_name("moved"))
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    if what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    else:
        target = {"symlink": victim, "symlink to the file itself": moved}.get(what, tmp_path / "nowhere")
        path.symlink_to(target)

    assert asked(store, KEY, lifeline.place) is None
    lifeline.close(remove=True)
    assert victim.read_bytes() == b"precious"
    assert moved.exists()
    if handed_out:
        assert os.path.lexists(path), "only what is provably nobody's is removed"


def test_a_lifeline_is_never_made_over_something_that_is_there(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    store = FileStore(tmp_path / "store")
    path = store.path_of(KEY)
    path.parent.mkdir(parents=True)
    path.symlink_to(victim)

    with pytest.raises(OSError):
        Lifeline.create(store, KEY)
    assert victim.read_bytes() == b"precious"


def test_where_locks_prove_nothing_there_is_no_lifeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS and its kin: identity and time do the work, and no file is left."""
    monkeypatch.setattr(lifelines, "filesystem_type", lambda fd: None)
    store = FileStore(tmp_path / "store")

    assert Lifeline.create(store, KEY) is None
    assert not store.path_of(KEY).exists()


def test_a_holder_whose_descriptors_were_closed_is_fenced_by_its_check(tmp_path: Path) -> None:
    """Daemon libraries close every descriptor; to everybody else the hold is over from that moment."""
    store = tmp_path / "store"
    with holders.holding(store) as agent:
        assert agent.ask("check_hold") == "ok"
        agent.ask("close_every_descriptor")

        assert held_by(store) is False
        assert agent.ask("check_hold") == "fenced"
        assert agent.ask("check_hold") == "fenced", "for good"


def test_a_descriptor_number_that_is_somebody_elses_by_now_is_left_open(tmp_path: Path) -> None:
    _, lifeline = made(tmp_path)
    fd = lifeline.fileno()
    assert fd is not None
    theirs = os.open("/dev/null", os.O_RDONLY)
    os.dup2(theirs, fd)
    os.close(theirs)

    assert not lifeline.is_intact()
    lifeline.close(remove=True)
    os.fstat(fd)
    os.close(fd)


def test_check_says_fenced_once_the_descriptor_is_gone(tmp_path: Path) -> None:
    heard: list[int] = []
    lease = WriterLease(tmp_path / "store", ttl=LONG, on_lost=lambda hold: heard.append(hold.fence))
    hold = lease.acquire()
    fd = hold.lifeline_fileno()
    assert fd is not None
    os.close(fd)

    with pytest.raises(FencedError) as fenced:
        hold.check()
    assert (fenced.value.ours, fenced.value.current) == (1, 1)
    assert heard == [1]
    hold.release()


def test_a_place_is_written_and_read_as_decimal_text() -> None:
    """JavaScript loses integers above 2**53; btrfs and overlay have devices and inodes beyond."""
    place = Place("b", "btrfs", 2**64 - 1, 2**63 + 1)

    assert place.to_record() == {"boot": "b", "fs": "btrfs", "dev": str(2**64 - 1), "ino": str(2**63 + 1)}
    assert Place.from_record(place.to_record()) == place
