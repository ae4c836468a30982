"""Pid files that no tenure has written: their number says nothing, and only their age decides."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tenure import PidFile, StoreError, WriterBusyError
from tenure.testing import ManualClock
from tests.helpers import holders
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_SYMLINKS
from tests.helpers.scripts import Script

TTL, SKEW = 30.0, 10.0
LIVING, NOBODY = os.getpid(), 2**22 + 1


LINKS = [pytest.param(what, marks=NEEDS_SYMLINKS) for what in ("a link", "a dangling link", "a link to a directory")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.pid"


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def old_file(path: Path, content: bytes, seconds: float) -> None:
    path.write_bytes(content)
    age(path, seconds)


@pytest.mark.parametrize("number", [1, LIVING, NOBODY], ids=["one", "living", "nobody"])
def test_a_young_one_is_busy_whoever_has_its_number(path: Path, number: int) -> None:
    """B02: never alive by its number, and never gone by it either."""
    old_file(path, f"{number}\n".encode(), 20)
    before = holders.everything_below(path)
    with pytest.raises(WriterBusyError) as busy:
        PidFile(path).acquire()

    assert (busy.value.judgement.verdict.value, busy.value.judgement.reason) == ("unknown", "no_identity")
    assert busy.value.retry_after_s == pytest.approx(20, abs=5)
    assert (busy.value.exit_code, busy.value.holder) == (75, str(path))
    assert holders.everything_below(path) == before
    assert PidFile(path).inspect().state == "free", "the failed attempt holds nothing"


@pytest.mark.parametrize("number", [1, LIVING, NOBODY], ids=["one", "living", "nobody"])
def test_one_that_is_older_than_ttl_and_skew_is_replaced_whoever_has_its_number(path: Path, number: int) -> None:
    """B02: in a container pid 1 always lives, and the service never started again."""
    old_file(path, f"{number}\n".encode(), 45)
    with PidFile(path):
        assert path.read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize(
    "content", [b"", b"1", b"\n", b"garbage", b"-1\n", b"\0" * 20, b"9" * 4096, b"12 34\n", b"\xff"]
)
def test_whatever_it_says_its_age_decides(path: Path, content: bytes) -> None:
    old_file(path, content, 20)
    with pytest.raises(WriterBusyError):
        PidFile(path).acquire()
    assert path.read_bytes() == content
    age(path, 45)
    with PidFile(path):
        assert path.read_text() == f"{os.getpid()}\n"


def test_one_from_the_future_counts_as_made_just_now(path: Path) -> None:
    old_file(path, b"1\n", -100_000)
    with pytest.raises(WriterBusyError) as busy:
        PidFile(path).acquire()

    assert busy.value.retry_after_s == pytest.approx(TTL + SKEW)


def test_a_short_ttl_of_ours_is_the_patience_for_it(path: Path) -> None:
    """The file has no terms of its own."""
    old_file(path, b"1\n", 3)
    with pytest.raises(WriterBusyError):
        PidFile(path, ttl=5, skew=1).acquire()
    age(path, 7)
    PidFile(path, ttl=5, skew=1).acquire().release()


def test_a_wait_outlasts_a_young_one(path: Path) -> None:
    path.write_bytes(b"1\n")
    started = time.monotonic()
    pid_file = PidFile(path, ttl=0.4, skew=0.2)
    pid_file.acquire(timeout=30)

    assert time.monotonic() - started >= 0.5
    assert path.read_text() == f"{os.getpid()}\n"
    pid_file.release()


def test_a_wait_that_is_too_short_is_not_waited(path: Path) -> None:
    """It would end as busy in any case, so it says so at once."""
    old_file(path, b"1\n", 0)
    clock = ManualClock()
    with pytest.raises(WriterBusyError):
        PidFile(path, clock=clock).acquire(timeout=20)

    assert clock.awake() == 0


@NEEDS_LINUX_PROC
def test_a_young_one_that_is_removed_meanwhile_is_waited_for_no_longer(path: Path) -> None:
    path.write_bytes(b"1\n")
    code = "import tenure; print('waits'); print(tenure.PidFile(sys.argv[1]).acquire(timeout=300).fence); os._exit(0)"
    with Script(code, path) as waiter:
        assert waiter.says() == "waits"
        time.sleep(0.3)
        path.unlink()
        assert waiter.says() == "1"


def test_one_that_an_old_tool_rewrote_in_place_is_not_ours_any_more(path: Path) -> None:
    """It took the file while its holder was gone, and may be running now."""
    pid_file = PidFile(path)
    pid_file.acquire()
    path.write_bytes(b"1\n")
    pid_file.release()
    assert path.read_bytes() == b"1\n"

    with pytest.raises(WriterBusyError):
        PidFile(path).acquire()
    age(path, 45)
    PidFile(path).acquire().release()


@pytest.mark.parametrize("how", ["in place", "replaced"])
def test_the_same_number_written_by_an_old_tool_is_another_file(path: Path, how: str) -> None:
    """Number 1 after number 1, as in containers."""
    code = "import tenure; pid_file = tenure.PidFile(sys.argv[1]); pid_file.acquire(pid=1); print('taken'); sys.stdin.read()"
    with Script(code, path) as killed:
        assert killed.says() == "taken"
        killed.kill()
    if how == "replaced":
        path.unlink()
    path.write_bytes(b"1\n")

    with pytest.raises(WriterBusyError) as busy:
        PidFile(path).acquire()
    assert busy.value.judgement.reason == "no_identity"


@pytest.mark.parametrize("what", [*LINKS, "a directory", "a pipe"])
def test_what_is_no_file_at_its_name_is_left_alone(path: Path, tmp_path: Path, what: str) -> None:
    victim = tmp_path / "victim"
    if what == "a link":
        victim.write_bytes(b"precious")
        os.utime(victim, (1, 1))
        path.symlink_to(victim)
    elif what == "a link to a directory":
        victim.mkdir()
        path.symlink_to(victim)
    elif what == "a dangling link":
        path.symlink_to(victim)
    elif what == "a directory":
        path.mkdir()
        (path / "content").write_bytes(b"precious")
    else:
        os.mkfifo(path)
    before = {name: path.parent.joinpath(name).lstat().st_ino for name in os.listdir(tmp_path)}
    content = holders.everything_below(victim) if victim.exists() else None
    for timeout in (0, 0.1):
        with pytest.raises(StoreError) as refused:
            PidFile(path).acquire(timeout)
        assert str(path) in str(refused.value)

    assert before.items() <= {name: path.parent.joinpath(name).lstat().st_ino for name in os.listdir(tmp_path)}.items()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")], "nothing half-written is left"
    assert (holders.everything_below(victim) if victim.exists() else None) == content


@pytest.mark.parametrize("what", [LINKS[0], "a pipe"])
def test_what_was_put_in_the_place_of_our_file_is_not_removed(path: Path, tmp_path: Path, what: str) -> None:
    victim = tmp_path / "victim"
    pid_file = PidFile(path)
    pid_file.acquire()
    victim.write_bytes(path.read_bytes())
    path.unlink()
    if what == "a link":
        path.symlink_to(victim)
    else:
        os.mkfifo(path)
    with pytest.raises(StoreError):
        pid_file.write(4242)
    pid_file.release()

    assert victim.read_bytes() == f"{os.getpid()}\n".encode()
    assert os.path.lexists(path)
    assert pid_file.inspect().state == "free"


def test_one_from_the_future_is_waited_for_like_any_other_and_not_for_ever(path: Path) -> None:
    """A clock that was set back leaves files that are young for years."""
    old_file(path, b"1\n", -3600)
    with pytest.raises(WriterBusyError):
        PidFile(path, clock=ManualClock()).acquire(timeout=TTL + SKEW - 2)
    pid_file = PidFile(path, clock=ManualClock())
    with pid_file.acquire(timeout=TTL + SKEW + 2):
        assert path.read_text() == f"{os.getpid()}\n"
