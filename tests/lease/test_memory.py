"""What a host remembers of silent holders: short-lived commands take over too, and no cache file does any harm."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tenure import WriterBusyError, WriterLease
from tenure._clock import SystemClock
from tenure._lease import _keys
from tenure._lease._memory import Memory
from tenure._lease._silence import Watched
from tests.helpers import holders
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_TIME_NAMESPACE
from tests.helpers.namespaces import with_boottime_offset
from tests.helpers.scripts import Script, ran

TTL, SKEW = 1.2, 0.6
# What whoever builds on a memory watches itself: a renewal interval and two polls.
WATCHES_ITSELF = TTL / 3 + 2 * (TTL + SKEW) / 10

COMMAND = """
    import logging, tenure
    logging.disable()
    try:
        print(tenure.WriterLease(sys.argv[1]).acquire(timeout=float(sys.argv[2])).fence)
    except tenure.WriterBusyError as error:
        print(error.kind)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv("TENURE_CACHE", str(directory))
    return directory


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a holder that nobody can judge."""
    holders.plant(tmp_path / "store", holders.claim(ttl=TTL, skew=SKEW))
    return tmp_path / "store"


def look(store: Path, timeout: float = 0.0) -> float | None:
    """One attempt by a lease of its own, as by a fresh process; what it is told to wait, or None for a grant."""
    try:
        WriterLease(store).acquire(timeout).release()
    except WriterBusyError as busy:
        return busy.retry_after_s
    return None


def remembered(cache: Path) -> dict[str, Any]:
    (path,) = cache.iterdir()
    loaded = json.loads(path.read_bytes())
    assert isinstance(loaded, dict)
    return loaded


def change(cache: Path, **changes: Any) -> None:
    (path,) = cache.iterdir()
    path.write_text(json.dumps(remembered(cache) | changes))


def test_commands_that_run_for_a_moment_take_over_together(store: Path, tmp_path: Path) -> None:
    """No one of them watches for ttl + skew; all of them together have."""
    timeout = WATCHES_ITSELF + 0.1
    assert timeout < TTL + SKEW
    started = time.monotonic()
    answers: list[str] = []
    while "2" not in answers and len(answers) < 20:
        answers.append(ran(COMMAND, store, timeout, TENURE_CACHE=str(tmp_path / "cache")))

    assert answers[-1] == "2", answers
    assert answers[:-1], "the first one has to find it busy"
    assert set(answers[:-1]) == {"writer_busy"}
    assert time.monotonic() - started >= TTL + SKEW, "robbed before its time"


def test_without_a_memory_they_never_do(store: Path) -> None:
    for _ in range(3):
        assert ran(COMMAND, store, WATCHES_ITSELF + 0.1, TENURE_CACHE="") == "writer_busy"


def test_however_long_the_gap_whoever_takes_over_has_watched_a_renewal_itself(store: Path, cache: Path) -> None:
    """The last beat may have come just before it looked first."""
    look(store)
    change(cache, seconds=1e6, looked_at=0.0)

    left = look(store)
    assert left == pytest.approx(WATCHES_ITSELF)
    assert look(store) == pytest.approx(WATCHES_ITSELF), "a look of no length is none"
    assert look(store, timeout=30) is None


@pytest.mark.parametrize("what", ["boot", "time namespace", "beat", "stamp", "claim"])
def test_whatever_has_changed_starts_the_watch_again(store: Path, cache: Path, what: str) -> None:
    look(store)
    where = remembered(cache)["where"]
    change(cache, seconds=1e6, looked_at=0.0)
    if what == "boot":
        change(cache, where=["3f9c1a52-0d7e-4b61-9a3c-6e2f8b4d7c10", where[1]])
    elif what == "time namespace":
        change(cache, where=[where[0], where[1] + 1])
    elif what == "beat":
        holders.plant(store, holders.beat(1), key=_keys.beat(1))
    elif what == "stamp":
        holders.plant(store, b"", key=_keys.beat(1))
    else:
        holders.plant(store, holders.claim(2, ttl=TTL, skew=SKEW), key=_keys.claim(2))

    assert look(store) == pytest.approx(TTL + SKEW)


@NEEDS_TIME_NAMESPACE
@NEEDS_LINUX_PROC
def test_a_shifted_clock_of_a_time_namespace_ages_nobody(store: Path, tmp_path: Path) -> None:
    """Under an equal boot id: clocks of two time namespaces have nothing to do with each other."""
    cache = str(tmp_path / "cache")
    assert ran(COMMAND, store, 0, TENURE_CACHE=cache) == "writer_busy"
    shifted = (*with_boottime_offset(10_000)[:2], "--monotonic", "10000", *with_boottime_offset(10_000)[2:])
    with Script(COMMAND, store, WATCHES_ITSELF + 0.1, prefix=shifted, TENURE_CACHE=cache) as script:
        assert script.says() == "writer_busy"


FORGED: dict[str, bytes] = {
    "empty": b"",
    "torn": b'{"v": 1, "where": [',
    "NULs": b"\0" * 300,
    "huge": b" " * 5_000_000,
    "deep": b"[" * 2040,
    "deeper in a field": b'{"v":1,"where":' + b"[" * 2000,
    "a list": b"[]",
    "null": b"null",
    "a number": b"7",
    "not UTF-8": b'{"v":1,"\xff":1}',
}


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED.keys())
def test_a_cache_file_that_is_none_is_no_memory(store: Path, cache: Path, data: bytes) -> None:
    look(store)
    (path,) = cache.iterdir()
    path.write_bytes(data)

    assert look(store) == pytest.approx(TTL + SKEW)
    assert look(store, timeout=0.01) is not None
    remembered(cache)


ABSURD: dict[str, dict[str, Any]] = {
    "seconds that are no number": {"seconds": float("nan")},
    "a time that is no number": {"looked_at": float("nan")},
    "endless seconds": {"seconds": float("inf")},
    "endless seconds the other way": {"seconds": float("-inf")},
    "fewer seconds than none": {"seconds": -1e9},
    "a time long ago": {"looked_at": -1e300},
    "an endless time": {"looked_at": float("-inf")},
    "a time to come": {"looked_at": 1e300},
    "more digits than a number has": {"seconds": 10**400},
    "seconds in words": {"seconds": "5"},
    "seconds in a list": {"seconds": [5]},
    "nothing seen": {"seen": None},
    "a word seen": {"seen": "abcd"},
    "a dictionary seen": {"seen": {"a": 1}},
    "another schema": {"v": 2},
    "nowhere": {"where": None},
}


@pytest.mark.parametrize("changes", ABSURD.values(), ids=ABSURD.keys())
def test_a_forged_memory_robs_nobody_at_once_and_makes_nobody_wait_longer(
    store: Path, cache: Path, changes: dict[str, Any]
) -> None:
    look(store)
    change(cache, **changes)

    left = look(store)
    assert left is not None, "taken without one renewal interval of watching"
    assert WATCHES_ITSELF - 0.001 <= left <= TTL + SKEW + 0.001


@pytest.mark.parametrize("what", ["a link", "a dangling link", "a pipe", "a directory", "a device"])
def test_what_is_no_file_in_the_caches_place_is_neither_followed_nor_waited_for(
    store: Path, cache: Path, tmp_path: Path, what: str
) -> None:
    look(store)
    (path,) = cache.iterdir()
    victim = tmp_path / "victim"
    content = json.dumps(remembered(cache) | {"seconds": 1e6, "looked_at": 0.0})
    path.unlink()
    victim.write_text(content)
    if what == "a link":
        path.symlink_to(victim)
    elif what == "a dangling link":
        path.symlink_to(tmp_path / "nothing")
    elif what == "a pipe":
        os.mkfifo(path)
    elif what == "a directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")

    assert look(store) == pytest.approx(TTL + SKEW)
    assert victim.read_text() == content
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("where", ["a file", "nowhere to make it", "/proc/self/mem"])
def test_a_cache_that_cannot_be_written_costs_patience_and_nothing_else(
    store: Path, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("a file")
    directory = {"a file": tmp_path / "file", "nowhere to make it": tmp_path / "file/in/it"}.get(where, where)
    monkeypatch.setenv("TENURE_CACHE", str(directory))

    assert look(store) == pytest.approx(TTL + SKEW)
    assert look(store, timeout=30) is None


def test_an_empty_name_remembers_nothing(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.setenv("TENURE_CACHE", "")
    look(store)

    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "HOME"])
def test_it_lies_where_a_users_own_files_lie(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("TENURE_CACHE", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "HOME"))
    monkeypatch.setenv(variable, str(tmp_path / variable))
    look(store)

    directory = tmp_path / variable / (".cache/tenure" if variable == "HOME" else "tenure")
    (path,) = directory.iterdir()
    assert (directory.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_relative_place_is_not_believed(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source: XDG Base Directory Specification: relative paths are to be ignored."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TENURE_CACHE", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "here")
    monkeypatch.setenv("XDG_CACHE_HOME", "there")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    look(store)

    assert not (tmp_path / "here").exists()
    assert not (tmp_path / "there").exists()
    assert (tmp_path / "home/.cache/tenure").exists()


def test_a_look_writes_no_memory(store: Path, cache: Path) -> None:
    for _ in range(3):
        assert WriterLease(store).inspect().state == "unknown"
    assert not cache.exists()


def test_a_look_uses_what_is_remembered(store: Path, cache: Path) -> None:
    look(store)
    change(cache, seconds=1e6, looked_at=0.0)
    before = holders.everything_below(cache)

    assert WriterLease(store).inspect().retry_after_s == pytest.approx(WATCHES_ITSELF)
    assert holders.everything_below(cache) == before


@NEEDS_LINUX_PROC
def test_a_living_holder_leaves_no_memory(tmp_path: Path, cache: Path) -> None:
    with holders.holding(tmp_path / "store"):
        with pytest.raises(WriterBusyError):
            WriterLease(tmp_path / "store").acquire()
    assert not cache.exists()


def test_two_stores_are_remembered_apart(store: Path, cache: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    holders.plant(other, holders.claim(ttl=TTL, skew=SKEW))
    look(store)
    look(other)

    assert len(list(cache.iterdir())) == 2


def test_what_a_process_left_half_written_keeps_no_later_one_from_remembering(store: Path, cache: Path) -> None:
    """In a container each process may have the same number."""
    memory = Memory(store.as_uri())
    watched = Watched([1, holders.NONCE, 0, 0], 3.0, SystemClock().awake())
    memory.remember(watched)
    (path,) = cache.iterdir()
    (cache / f".{path.name}.{os.getpid()}").write_text("half")
    path.unlink()
    memory.remember(watched)

    assert memory.recall() == watched


def test_a_full_disk_leaves_no_half_written_file(store: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(store.as_uri())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tenure._lease._memory.json.dump", full)
    monkeypatch.setattr("tenure._lease._memory.json.dumps", full)
    monkeypatch.setattr(Path, "replace", full)
    memory.remember(Watched([1, holders.NONCE, 0, 0], 3.0, 1.0))

    assert list(cache.iterdir()) == []
