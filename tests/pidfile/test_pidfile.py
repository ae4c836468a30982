"""A pid file behind a lease: readable by every old tool, and never believed for its number alone."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tenure import FencedError, HoldError, PidFile, StoreError, WriterBusyError, WriterLease
from tests.helpers import processes
from tests.helpers.capabilities import (
    NEEDS_LINUX_PROC,
    NEEDS_MODES,
    NEEDS_MOUNT,
    NEEDS_PID_NAMESPACE,
    NEEDS_POSIX_PATHS,
    NEEDS_ROOT,
    NEEDS_SHELL,
)
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.scripts import Script, ran

TAKER = """
    import logging, tenure
    logging.disable()
    pid_file = tenure.PidFile(sys.argv[1])
    try:
        hold = pid_file.acquire(timeout=float(sys.argv[2]) if len(sys.argv) > 2 else 0)
        print(hold.fence)
    except tenure.Error as error:
        print(error.kind)
    for line in sys.stdin:
        try:
            print(eval(line))
        except tenure.Error as error:
            print(error.kind)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.pid"


def names(path: Path) -> list[str]:
    """What lies in the directory; hidden names show what was left behind."""
    return sorted(os.listdir(path.parent))


@NEEDS_SHELL
def test_old_tools_read_it(path: Path) -> None:
    with PidFile(path):
        assert path.read_bytes() == f"{os.getpid()}\n".encode()
        with path.open() as file:
            assert int(file.read()) == os.getpid()
        shell = subprocess.run(
            ["sh", "-c", 'ps -p "$(cat "$0")" > /dev/null && echo runs', path], check=False, capture_output=True
        )
        assert shell.stdout == b"runs\n"
        assert names(path) == ["app.pid", "app.pid.tenure"]
    assert names(path) == ["app.pid.tenure"]


def test_another_number_can_be_written_into_the_file_that_we_have(path: Path) -> None:
    pid_file = PidFile(path)
    with pytest.raises(HoldError):
        pid_file.write(4242)
    pid_file.acquire(pid=4242)
    assert path.read_text() == "4242\n"
    pid_file.write(4243)
    assert path.read_text() == "4243\n"
    pid_file.release()
    pid_file.release()
    assert not path.exists()
    with pytest.raises(HoldError):
        pid_file.write(4242)


@NEEDS_LINUX_PROC
def test_a_second_process_is_busy_for_as_long_as_the_first_one_lives(path: Path) -> None:
    with Script(TAKER, path) as first:
        assert first.says() == "1"
        # However old the file looks, and whatever it says by now.
        os.utime(path, (0, 0))
        with pytest.raises(WriterBusyError) as busy:
            PidFile(path).acquire()
        assert busy.value.judgement.verdict.value == "alive"
        assert PidFile(path).inspect().state == "held"
        assert path.read_text() == f"{first.pid}\n"


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("how", ["killed", "killed, its number alive again", "released"])
def test_a_holder_that_is_gone_is_replaced_at_once(path: Path, how: str) -> None:
    with Script(TAKER, path) as first:
        assert first.says() == "1"
        if how == "released":
            first.tell("pid_file.release()")
            assert first.says() == "None"
        elif how == "killed":
            first.kill()
        else:
            first.tell(f"pid_file.write({os.getpid()})")
            assert first.says() == "None"
            first.kill()
        pid_file = PidFile(path)
        assert pid_file.acquire().fence == 2
        assert path.read_text() == f"{os.getpid()}\n"
        pid_file.release()


@NEEDS_PID_NAMESPACE
@NEEDS_LINUX_PROC
def test_the_same_number_in_another_container_is_another_process(path: Path) -> None:
    """B01: each container's server has number 1, or 7, or whatever it always has."""
    with Script(TAKER, path, prefix=OWN_PROC) as first:
        assert first.says() == "1"
        assert path.read_text() == "1\n"
        with Script(TAKER, path, prefix=OWN_PROC) as second:
            assert second.says() == "writer_busy", "a living one is not robbed by its double"
        first.kill()
        with Script(TAKER, path, 30, prefix=OWN_PROC) as third:
            assert third.says() == "2", "a dead one is not alive for ever by its double"
            assert path.read_text() == "1\n"


@NEEDS_LINUX_PROC
def test_deleting_the_file_of_a_living_server_robs_it_of_nothing(path: Path) -> None:
    """B102: the start script of a one-off container removes it."""
    with Script(TAKER, path) as server:
        assert server.says() == "1"
        path.unlink()
        with pytest.raises(WriterBusyError):
            PidFile(path).acquire()
        server.tell("hold.check()")
        assert server.says() == "None"
        server.tell("pid_file.release()")
        assert server.says() == "None"


@NEEDS_LINUX_PROC
def test_deleting_its_lease_too_fences_the_server_that_lived(path: Path) -> None:
    """B102: then nobody can know of it; its next check tells it, and the next one's release is not disturbed."""
    with Script(TAKER, path) as server:
        assert server.says() == "1"
        path.unlink()
        subprocess.run(["rm", "-r", f"{path}.tenure"], check=True)
        pid_file = PidFile(path)
        pid_file.acquire()
        server.tell("hold.check()")
        assert server.says() == "fenced"
        server.tell("pid_file.release()")
        assert server.says() == "None"
        assert path.read_text() == f"{os.getpid()}\n", "a successor's file is left alone"
        pid_file.release()


def test_the_release_of_a_lost_hold_leaves_a_successors_file_also_with_the_same_number(path: Path) -> None:
    """Of two containers, whose servers both have number 1."""
    first = PidFile(path)
    hold = first.acquire(pid=1)
    lease = WriterLease(f"{path}.tenure")
    lease.force_release(hold.nonce, even_if_alive=True)
    second = PidFile(path)
    # As another process: what this one has is not joined.
    second.acquire(pid=1)
    first.release()

    assert path.read_text() == "1\n"
    second.release()
    assert not path.exists()


def test_a_lost_pid_file_is_not_written_to(path: Path) -> None:
    pid_file = PidFile(path)
    hold = pid_file.acquire()
    WriterLease(f"{path}.tenure").force_release(hold.nonce, even_if_alive=True)
    with pytest.raises(FencedError):
        pid_file.write(4242)

    assert path.read_text() == f"{os.getpid()}\n"
    pid_file.release()


def test_what_somebody_else_wrote_into_our_file_is_not_removed(path: Path) -> None:
    pid_file = PidFile(path)
    pid_file.acquire()
    path.write_text("4242\n")
    pid_file.release()

    assert path.read_text() == "4242\n"


def test_a_second_acquire_of_the_same_object_is_released_by_one_release(path: Path) -> None:
    """Else the lease would stay held until the process ends, by a hold that nobody has."""
    pid_file = PidFile(path)
    first = pid_file.acquire()
    assert pid_file.acquire().fence == first.fence
    pid_file.release()

    assert pid_file.inspect().state == "free"
    assert not path.exists()


IN_A_CHILD = """
    import tenure
    with tenure.PidFile(sys.argv[1]) as pid_file:
        if os.fork():
            os.wait()
            print(pid_file.path.exists(), pid_file.inspect().state)
            sys.exit()
        pid_file.release()
"""


@NEEDS_LINUX_PROC
def test_a_forked_child_removes_nothing(path: Path) -> None:
    assert ran(IN_A_CHILD, path) == "True held"


def test_two_of_one_process_leave_the_file_to_the_one_that_wrote_last(path: Path) -> None:
    first, second = PidFile(path), PidFile(path)
    first.acquire()
    second.acquire()
    first.release()
    assert path.exists()
    assert second.inspect().state == "held"
    second.release()
    assert not path.exists()


def test_an_acquire_that_fails_half_way_leaves_it_free(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError):
        PidFile(path).acquire()

    assert PidFile(path).inspect().state == "free"
    assert list(path.iterdir()) == []


KILLED_WITHIN = """
    import logging, pathlib, tenure
    logging.disable()
    count = 0
    replace = pathlib.Path.replace
    def die(self, target):
        global count
        count += 1
        if count == int(sys.argv[2]) and sys.argv[3] == "before":
            os._exit(9)
        replace(self, target)
        if count == int(sys.argv[2]):
            os._exit(9)
    pathlib.Path.replace = die
    tenure.PidFile(sys.argv[1]).acquire()
    print("acquired")
"""


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("left", [False, True], ids=["no file before", "a file before"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_holder_killed_between_its_writes_is_replaced_at_once(path: Path, nth: int, when: str, left: bool) -> None:
    """What it left is its own or its predecessor's, and both are known to be gone."""
    if left:
        with Script(TAKER, path) as predecessor:
            assert predecessor.says() == "1"
            predecessor.kill()
    with Script(KILLED_WITHIN, path, nth, when) as killed:
        assert killed.ends()[0] == 9
    pid_file = PidFile(path)
    pid_file.acquire()

    assert path.read_text() == f"{os.getpid()}\n"
    pid_file.release()


@NEEDS_MODES
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
@pytest.mark.parametrize("mode", [None, 0o600, 0o640])
def test_the_file_has_the_mode_that_was_asked_for(path: Path, umask: int, mode: int | None) -> None:
    """A monitoring tool of another user reads it, whatever the service's umask."""
    before = os.umask(umask)
    try:
        with PidFile(path) if mode is None else PidFile(path, mode=mode):
            assert stat.S_IMODE(path.stat().st_mode) == (0o644 if mode is None else mode)
    finally:
        os.umask(before)


ODD_NAMES = [
    *(".pid", "a b.pid", "-rf", "naïve 試験.pid", "%s{}$HOME"),
    *(pytest.param(name, marks=NEEDS_POSIX_PATHS) for name in ("two\nlines", "x" * 200, "#hash?query", "nul")),
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_unusual_name_is_a_name(tmp_path: Path, name: str) -> None:
    with PidFile(tmp_path / name):
        assert (tmp_path / name).read_text() == f"{os.getpid()}\n"
        assert sorted(os.listdir(tmp_path)) == sorted([name, f"{name}.tenure"])
    assert os.listdir(tmp_path) == [f"{name}.tenure"]


@pytest.mark.parametrize("name", ["x" * 250, "nowhere/app.pid", "x" * 5000])
def test_a_place_where_it_cannot_be_is_an_error_that_says_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError) as refused:
        PidFile(tmp_path / name).acquire()

    assert str(tmp_path) in str(refused.value)
    assert os.listdir(tmp_path) == []


def test_a_relative_path_stays_where_it_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pid_file = PidFile("app.pid")
    pid_file.acquire()
    monkeypatch.chdir("/")
    pid_file.release()

    assert os.listdir(tmp_path) == ["app.pid.tenure"]


@NEEDS_MOUNT
@NEEDS_LINUX_PROC
def test_a_read_only_directory_is_an_error_and_can_be_looked_at(path: Path) -> None:
    with Script(TAKER, path) as left:
        assert left.says() == "1"
        left.kill()
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    with Script(TAKER, path, prefix=("unshare", "--mount", "sh", "-c", script, str(path.parent))) as child:
        assert child.says() == "store_failed"
        child.tell("pid_file.inspect().state")
        assert child.says() == "free"


@NEEDS_ROOT
@NEEDS_LINUX_PROC
def test_a_directory_of_somebody_else_is_an_error_that_says_so(path: Path) -> None:
    for parent in list(path.parents)[:3]:
        parent.chmod(0o755)
    with processes.Agent() as agent:
        # The modules that it will need, while it may still read them.
        assert agent.ask("take", store=str(path.parent / "elsewhere"))["fence"] == 1
        agent.ask("set_uid", uid=65534)
        assert agent.ask("take", store=f"{path}.tenure")["kind"] == "store_failed"
