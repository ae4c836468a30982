"""The crash marker: who is under way, who was interrupted, and who may say that it is over."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tenure import (
    FencedError,
    Hold,
    HoldError,
    ProcessIdentity,
    RecordError,
    RecordTooNewError,
    RefusedError,
    StoreError,
    WriterLease,
)
from tenure._commit._marker import CrashMarker, Run
from tenure._commit._standing import Standings
from tenure._lease import _keys
from tenure._store._memory import MemoryStore
from tenure.testing import ManualClock
from tests.helpers import holders, independent, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE
from tests.helpers.records import OTHER_BOOT, changed, fields, later
from tests.helpers.scripts import Script
from tests.lease.stores import LONG, put

GOLDEN = Path(__file__).parents[1] / "golden" / "marker-v1.json"
WORKER = """
from tenure._commit._marker import CrashMarker
marker = CrashMarker(sys.argv[1])
with marker.begin(label=sys.argv[2], paths=["a.txt", "b.txt"]):
    print("begun")
    sys.stdin.readline()
print("finished")
sys.stdin.readline()
"""
HOLDER = """
from tenure import WriterLease
from tenure._commit._marker import CrashMarker
hold = WriterLease(sys.argv[2]).acquire(timeout=20)
mark = CrashMarker(sys.argv[1]).begin(hold)
print(hold.fence)
sys.stdin.readline()
"""
RECOVERER = """
from tenure import WriterLease
from tenure._commit._marker import CrashMarker
from tenure._commit._standing import Standings
lease = WriterLease(sys.argv[2])
marker = CrashMarker(sys.argv[1])
with lease.acquire(timeout=20) as hold, marker.begin(hold, label="recovery"):
    for run in marker.runs(Standings(lease, fence=hold.fence)):
        if run.state == "interrupted":
            print(run.label)
            sys.stdin.readline()
            marker.clear(run, hold)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "control"


@pytest.fixture
def marker(directory: Path) -> CrashMarker:
    return CrashMarker(directory)


@pytest.fixture
def hold() -> Iterator[Hold]:
    """With fence 3."""
    lease = WriterLease(MemoryStore(), ttl=LONG)
    lease.acquire().release()
    lease.acquire().release()
    with lease.acquire() as hold:
        yield hold


def working(directory: Path, label: str = "work") -> Script:
    script = Script(WORKER, directory, label)
    assert script.says() == "begun"
    return script


def plant(directory: Path, name: str, data: bytes | str) -> Path:
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def record(identity: str | None, fence: int | None = 1, **more: Any) -> str:
    author = {
        "fence": None if fence is None else str(fence),
        "nonce": holders.NONCE,
        "identity": None if identity is None else fields(identity),
    }
    return json.dumps({"v": 1, "author": author, "label": None, "since": None, "paths": []} | more)


def seen(marker: CrashMarker, standings: Standings | None = None) -> list[tuple[str, str | None]]:
    return [(run.state, run.label) for run in marker.runs(standings)]


def only(marker: CrashMarker, standings: Standings | None = None) -> Run:
    (run,) = marker.runs(standings)
    return run


# What begins and what ends


def test_a_mark_says_who_does_what_to_which_files(marker: CrashMarker, directory: Path, hold: Hold) -> None:
    with marker.begin(hold, label="import", paths=["a.txt", Path("b") / "c.txt"]):
        run = only(marker)
    assert (run.state, run.label, run.paths) == ("running", "import", ("a.txt", "b/c.txt"))
    assert (run.author.fence, run.author.nonce, run.author.identity) == (3, hold.nonce, ProcessIdentity.current())
    assert (run.file, run.problem) == (str(directory / "writer.3"), None)
    assert run.since
    assert marker.runs() == []


def test_a_block_that_raises_leaves_its_mark(marker: CrashMarker, hold: Hold) -> None:
    """What it has changed may be half of it."""
    with pytest.raises(KeyError), marker.begin(hold) as mark:
        raise KeyError
    assert only(marker).state == "running"
    mark.finish()
    assert marker.runs() == []


def test_a_second_finish_does_nothing(marker: CrashMarker) -> None:
    mark = marker.begin()
    mark.finish()
    mark.finish()


def test_one_writer_has_one_marker(marker: CrashMarker, directory: Path, hold: Hold) -> None:
    with marker.begin(hold, label="first"):
        with pytest.raises(RefusedError, match="a marker of this writer is there already"):
            marker.begin(hold, label="second")
        assert seen(marker) == [("running", "first")]


def test_writers_without_a_lease_have_one_each_also_in_one_process(marker: CrashMarker) -> None:
    with marker.begin(label="one"), marker.begin(label="two"):
        assert sorted(seen(marker)) == [("running", "one"), ("running", "two")]
    assert marker.runs() == []


def test_markers_of_other_names_and_other_files_are_not_seen(marker: CrashMarker, directory: Path) -> None:
    plant(directory, "writers.1", "{}")
    plant(directory, "write", "{}")
    (directory / "writer").mkdir()
    with CrashMarker(directory, "reader").begin():
        assert marker.runs() == []


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "../x", "Upper"])
def test_a_name_that_is_none_is_refused(directory: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        CrashMarker(directory, name)


@pytest.mark.parametrize("label", ["", "x" * 201, "two\nlines"])
def test_a_label_that_is_no_line_is_refused(marker: CrashMarker, directory: Path, label: str) -> None:
    with pytest.raises(ValueError, match="label must be"):
        marker.begin(label=label)
    assert not directory.exists()


def test_a_fenced_writer_cannot_begin(marker: CrashMarker, directory: Path) -> None:
    store = MemoryStore()
    hold = WriterLease(store, ttl=LONG).acquire()
    put(store, _keys.claim(2), holders.claim(2))
    with pytest.raises(FencedError):
        marker.begin(hold)
    assert not directory.exists()


def test_a_forked_child_ends_nothing(marker: CrashMarker) -> None:
    with marker.begin() as mark:
        pid = os.fork()
        if pid == 0:
            try:
                mark.__exit__(None, None, None)
                mark.finish()
            except HoldError:
                os._exit(3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
        assert only(marker).state == "running"


# Who was interrupted


def test_a_living_writer_is_no_crash_and_a_dead_one_is_exactly_one(marker: CrashMarker, directory: Path) -> None:
    """B88: with one shared marker a second window reports the first, and its own clean end hides a crash."""
    with working(directory, "A") as first:
        assert seen(marker) == [("running", "A")]
        with working(directory, "B") as second:
            second.tell()
            assert second.says() == "finished"
        assert seen(marker) == [("running", "A")]
        first.kill()
        run = only(marker)
        assert (run.state, run.label, run.paths) == ("interrupted", "A", ("a.txt", "b.txt"))


def test_of_sixteen_that_begin_at_once_each_that_is_killed_is_reported_once(
    marker: CrashMarker, directory: Path
) -> None:
    """B92: exists-check then create: two starters both see a clean state, and one's clean stop hides the other's crash."""
    with ExitStack() as stack:
        workers = [stack.enter_context(Script(WORKER, directory, f"w{number}")) for number in range(16)]
        for worker in workers:
            assert worker.says() == "begun"
        for number, worker in enumerate(workers):
            if number % 2:
                worker.kill()
            else:
                worker.tell()
                assert worker.says() == "finished"
        assert sorted(seen(marker)) == sorted(("interrupted", f"w{number}") for number in range(1, 16, 2))


def test_whoever_dies_after_its_finish_was_clean_and_whoever_dies_before_was_not(
    marker: CrashMarker, directory: Path
) -> None:
    """B93: most crash reports were normal ends, because "clean" was written in a teardown that never came."""
    with working(directory) as clean:
        clean.tell()
        assert clean.says() == "finished"
        clean.kill()
    assert marker.runs() == []
    with working(directory) as killed:
        killed.kill()
    assert only(marker).state == "interrupted"


def test_a_finish_that_fails_says_so_and_can_be_repeated(marker: CrashMarker, directory: Path) -> None:
    """B93: write errors were swallowed."""
    mark = marker.begin()
    (directory / ".lock").mkdir()
    with pytest.raises(StoreError, match="a directory"):
        mark.finish()
    assert len(marker.runs()) == 1
    (directory / ".lock").rmdir()
    mark.finish()
    assert marker.runs() == []


@NEEDS_LINUX_PROC
def test_a_crash_while_recovering_is_a_crash(marker: CrashMarker, directory: Path, tmp_path: Path) -> None:
    """B90: the clean marker was kept until the load had finished, and a crash in it was taken for a clean start."""
    store = tmp_path / "store"
    with Script(HOLDER, directory, store) as writer:
        assert writer.says() == "1"
        writer.kill()
    with Script(RECOVERER, directory, store) as recoverer:
        assert recoverer.says() == "None"
        recoverer.kill()
    lease = WriterLease(store)
    assert seen(marker, Standings(lease)) == [("interrupted", None), ("interrupted", "recovery")]
    with Script(RECOVERER, directory, store) as second:
        for label in ("None", "recovery"):
            assert second.says() == label
            second.tell()
        assert second.ends()[0] == 0
    assert marker.runs() == []


@NEEDS_LINUX_PROC
def test_a_marker_under_a_hold_is_judged_by_its_lifeline(marker: CrashMarker, directory: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Script(HOLDER, directory, store) as writer:
        writer.says()
        assert only(marker, Standings(WriterLease(store))).judgement.reason == "lifeline_held"
        writer.kill()
        run = only(marker, Standings(WriterLease(store)))
        assert (run.state, run.judgement.reason) == ("interrupted", "lifeline_free")


@NEEDS_PID_NAMESPACE
def test_a_writer_in_another_pid_namespace_is_running(marker: CrashMarker, directory: Path, tmp_path: Path) -> None:
    """The seed's first bug: the same host name, a pid that nobody has here, and files that were deleted."""
    store = tmp_path / "store"
    prefix = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    with Script(HOLDER, directory, store, prefix=prefix) as writer:
        assert writer.says() == "1"
        assert only(marker, Standings(WriterLease(store))).state == "running"


@NEEDS_LINUX_PROC
def test_a_stopped_writer_is_running_and_stays_stopped(marker: CrashMarker, directory: Path) -> None:
    with working(directory) as worker:
        worker.send(signal.SIGSTOP)
        processes.until_state(worker.pid, "T")
        assert only(marker).state == "running"
        assert independent.state(worker.pid) == "T"


@NEEDS_LINUX_PROC
def test_a_zombie_was_interrupted(marker: CrashMarker, directory: Path) -> None:
    with working(directory) as worker:
        worker.send(signal.SIGKILL)
        processes.until_state(worker.pid, "Z")
        assert only(marker).state == "interrupted"


@NEEDS_LINUX_PROC
def test_a_stranger_with_the_number_of_a_dead_writer_keeps_no_marker_alive(
    marker: CrashMarker, directory: Path
) -> None:
    """The seed's fifth bug, pid reuse."""
    with processes.sleeping() as stranger:
        plant(directory, "writer.1", record(later(later(stranger.record, "start"), "uniq")))
        assert only(marker).state == "interrupted"


@pytest.mark.parametrize("identity", [None, changed(ProcessIdentity.current().to_json(), boot=OTHER_BOOT, host=None)])
def test_one_that_nobody_can_judge_is_unknown_until_ttl_and_skew_are_over(
    marker: CrashMarker, directory: Path, identity: str | None
) -> None:
    """Older records, without an identity: time and the fence only, 30 + 10 s."""
    plant(directory, "writer.1", record(identity))
    clock, store = ManualClock(), MemoryStore()
    put(store, _keys.claim(1), holders.claim(1))
    lease = WriterLease(store, clock=clock)
    for _ in range(40):
        assert only(marker, Standings(lease)).state == "unknown"
        clock.advance(1.0)
    assert only(marker, Standings(lease)).state == "interrupted"
    assert only(marker, Standings(fence=2)).state == "interrupted"
    assert only(marker).state == "unknown"


# What may be cleared


def test_an_interrupted_run_is_cleared_by_a_higher_fence(marker: CrashMarker, directory: Path, hold: Hold) -> None:
    plant(directory, "writer.2", record(None, 2))
    run = only(marker, Standings(fence=hold.fence))
    marker.clear(run, hold)
    assert marker.runs() == []
    # A recovery that was cut off does it again.
    marker.clear(run, hold)


@pytest.mark.parametrize("fence", [3, 4])
def test_a_run_of_the_same_or_a_higher_fence_is_not_cleared(
    marker: CrashMarker, directory: Path, hold: Hold, fence: int
) -> None:
    path = plant(directory, f"writer.{fence}", record(None, fence))
    run = only(marker, Standings(fence=9))
    assert run.state == "interrupted"
    with pytest.raises(RefusedError, match="not below that of the hold"):
        marker.clear(run, hold)
    assert path.exists()


@pytest.mark.parametrize("state", ["running", "unknown"])
def test_a_run_that_is_not_interrupted_is_not_cleared(
    marker: CrashMarker, directory: Path, hold: Hold, state: str
) -> None:
    with processes.Agent() as agent:
        path = plant(directory, "writer.1", record(agent.record if state == "running" else None))
        run = only(marker)
        assert run.state == state
        with pytest.raises(RefusedError, match=f"its run is {state}"):
            marker.clear(run, hold)
    assert path.exists()


def test_a_run_under_a_hold_is_not_cleared_without_one(marker: CrashMarker, directory: Path) -> None:
    plant(directory, "writer.1", record(None))
    run = only(marker, Standings(fence=2))
    with pytest.raises(RefusedError):
        marker.clear(run)


def test_a_run_without_a_hold_is_cleared_by_whoever_comes_next(marker: CrashMarker, directory: Path) -> None:
    with working(directory) as worker:
        worker.kill()
    marker.clear(only(marker))
    assert marker.runs() == []


def test_a_marker_that_is_another_one_by_now_is_not_cleared(marker: CrashMarker, directory: Path, hold: Hold) -> None:
    plant(directory, "writer.1", record(None))
    run = only(marker, Standings(fence=2))
    path = plant(directory, "writer.1", record(ProcessIdentity.current().to_json()))
    with pytest.raises(RefusedError, match="another one by now"):
        marker.clear(run, hold)
    assert path.exists()


def test_a_replaced_hold_clears_nothing(marker: CrashMarker, directory: Path) -> None:
    store = MemoryStore()
    WriterLease(store, ttl=LONG).acquire().release()
    hold = WriterLease(store, ttl=LONG).acquire()
    path = plant(directory, "writer.1", record(None))
    run = only(marker, Standings(fence=2))
    put(store, _keys.claim(3), holders.claim(3))
    with pytest.raises(FencedError):
        marker.clear(run, hold)
    assert path.exists()


def test_whoever_was_recovered_meanwhile_hears_of_it_at_its_finish(
    marker: CrashMarker, directory: Path, hold: Hold
) -> None:
    mark = marker.begin(hold)
    (directory / "writer.3").unlink()
    with pytest.raises(RecordError, match="not there any more"):
        mark.finish()
    path = plant(directory, "writer.3", record(None, 3))
    with pytest.raises(RecordError, match="another writer's"):
        mark.finish()
    assert path.exists()


def test_temporary_files_go_only_with_a_writer_that_is_proven_gone(
    marker: CrashMarker, directory: Path, tmp_path: Path
) -> None:
    """B99: of a living, a dead, an unknown and a replaced writer, and of nobody; what stays can be listed."""
    names = {name: tmp_path / f"{name}.temp" for name in ("alive", "gone", "unknown", "replaced", "nobody")}
    for path in names.values():
        path.write_bytes(b"half of it")
    with processes.reaped() as dead, processes.sleeping() as living:
        plant(directory, "writer.7", record(living.record, 7, paths=[str(names["alive"])]))
        plant(directory, "writer.6", record(dead.record, 6, paths=[str(names["gone"])]))
        plant(directory, "writer.8", record(None, 8, paths=[str(names["unknown"])]))
        plant(directory, "writer.5", record(None, 5, paths=[str(names["replaced"])]))
        plant(directory, "writer.4", b"")
        runs = marker.runs(Standings(fence=8))
    kept = []
    for run in runs:
        for path in map(Path, run.paths):
            if run.leftovers == "remove":
                path.unlink()
            else:
                kept.append((path.stem, path.stat().st_size))
    assert sorted(kept) == [("alive", 10), ("replaced", 10), ("unknown", 10)]
    assert {name for name, path in names.items() if path.exists()} == {"alive", "replaced", "unknown", "nobody"}


# What cannot be read


BROKEN = {
    "empty": ("", "it is empty"),
    "torn": ('{"v":1,"author":{"fen', "not JSON"),
    "foreign": ("[1, 2]", "no schema number"),
    "another writer's": (record(None, 2), "its name is that of another writer"),
    "newer": ('{"v":2,"writer":"x"}', "a newer tenure wrote it: schema 2"),
    "deep": ("[" * 100_000, "not JSON"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_marker_that_cannot_be_read_is_shown_judged_by_its_name_and_kept(
    marker: CrashMarker, directory: Path, hold: Hold, kind: str
) -> None:
    data, problem = BROKEN[kind]
    plant(directory, "writer.1", data)
    run = only(marker)
    assert (run.state, run.author.fence, run.leftovers) == ("unknown", 1, "keep")
    assert problem in str(run.problem)
    with pytest.raises(RefusedError):
        marker.clear(run, hold)

    run = only(marker, Standings(fence=2))
    assert run.state == "interrupted"
    if kind == "newer":
        with pytest.raises(RecordTooNewError) as caught:
            marker.clear(run, hold)
        assert caught.value.hint == "upgrade tenure on this machine"
        assert (directory / "writer.1").read_text() == data
    else:
        marker.clear(run, hold)
        assert marker.runs() == []
        assert (directory / "damaged-writer.1").read_text() == data


def test_what_is_too_large_for_a_marker_is_shown_and_not_read(marker: CrashMarker, directory: Path) -> None:
    plant(directory, "writer.1", b" " * (1 << 21))
    run = only(marker)
    assert run.state == "unknown"
    assert "larger than any record" in str(run.problem)


def test_a_link_or_a_directory_is_no_marker_and_is_never_written_through(
    marker: CrashMarker, directory: Path, tmp_path: Path, hold: Hold
) -> None:
    target = plant(tmp_path / "elsewhere", "target", "untouched")
    directory.mkdir()
    (directory / "writer.3").symlink_to(target)
    (directory / "writer.1").mkdir()
    assert marker.runs() == []
    with pytest.raises(StoreError, match="a symbolic link"):
        marker.begin(hold)
    assert target.read_text() == "untouched"


@pytest.mark.parametrize("wrong", [{"author": 7}, {"author": {}}, {"label": 7, "since": [], "paths": {}}, {"more": 1}])
def test_a_field_of_another_type_is_left_out_and_the_marker_stays_one(
    marker: CrashMarker, directory: Path, wrong: dict[str, Any]
) -> None:
    plant(directory, "writer.1", record(None, **wrong))
    run = only(marker)
    assert (run.problem, run.author.fence, run.state) == (None, 1, "unknown")
    assert (run.label, run.since, run.paths) == (None, None, ())


def test_a_label_cannot_steer_a_terminal(marker: CrashMarker, directory: Path) -> None:
    plant(directory, "writer.1", record(None, label="\x1b[2Jgone"))
    assert only(marker).label == "�[2Jgone"


def test_a_look_at_markers_writes_nothing(marker: CrashMarker, directory: Path) -> None:
    assert marker.runs() == []
    assert not directory.exists()
    plant(directory, "writer.1", record(None))
    before = holders.everything_below(directory)
    marker.runs()
    assert holders.everything_below(directory) == before


def test_a_marker_is_written_as_its_golden_record_is(marker: CrashMarker, directory: Path, hold: Hold) -> None:
    golden = GOLDEN.read_text("utf-8")
    plant(directory, "writer.7", golden)
    run = only(marker)
    assert (run.problem, run.label, run.since) == (None, "nightly import", "2026-10-16T08:00:00+00:00")
    assert run.paths == ("index.txt", "data/a.bin")
    assert isinstance(run.author.identity, ProcessIdentity)
    with marker.begin(hold, label="x", paths=["y"]):
        written = json.loads((directory / "writer.3").read_bytes())
    like = json.loads(golden)
    assert list(written) == list(like)
    assert list(written["author"]) == list(like["author"])
