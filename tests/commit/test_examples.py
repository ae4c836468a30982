"""The examples do what they say, also when they are killed where it hurts."""

from __future__ import annotations

import doctest
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tenure
from tenure import CommitLog, WriterLease
from tests.helpers.capabilities import NEEDS_LINUX_PROC

EXAMPLES = Path(__file__).parents[2] / "examples"
KILLED = -signal.SIGKILL


def run(example: str, *arguments: object, points: str = "") -> tuple[int, list[str]]:
    """Exit code and lines, of an example that has nothing to complain of but that it took the lease over."""
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / example), *map(str, arguments)],
        env=os.environ | {"TENURE_FAILPOINTS": points, "TENURE_CACHE": ""},
        input="\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert all(line.startswith("the writer lease was taken over") for line in ran.stderr.splitlines()), ran.stderr
    return ran.returncode, ran.stdout.splitlines()


@pytest.mark.parametrize("example", ["outbox.py", "crash_marker.py", "commit_log.py", "datastore.py"])
def test_an_example_is_short(example: str) -> None:
    assert len((EXAMPLES / example).read_text("utf-8").splitlines()) <= 40


@pytest.mark.parametrize("name", ["Outbox", "CrashMarker", "CommitLog", "Datastore"])
def test_the_example_of_a_docstring_comes_out_as_it_says(name: str) -> None:
    names = {public: getattr(tenure, public) for public in tenure.__all__}
    (example,) = doctest.DocTestFinder(recurse=False).find(names[name], name, globs=names)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@NEEDS_LINUX_PROC
def test_a_payment_whose_writer_died_is_paid_once(tmp_path: Path) -> None:
    assert run("outbox.py", tmp_path, "order-1", 10)[1][-1] == "order-1 is paid"
    assert run("outbox.py", tmp_path, "order-2", 20, points="outbox.prepared=kill")[0] == KILLED
    assert (tmp_path / "ledger.txt").read_text() == "order-1 10\n"
    assert run("outbox.py", tmp_path, points="outbox.put=kill")[0] == KILLED
    assert run("outbox.py", tmp_path)[1] == ["recovered: 1 landed, 0 of living writers, 0 conflicted"]
    assert run("outbox.py", tmp_path, "order-2", 20)[1][-1] == "order-2 is paid"
    assert (tmp_path / "ledger.txt").read_text() == "order-1 10\norder-2 20\n"


@NEEDS_LINUX_PROC
def test_an_index_that_was_half_written_is_put_back(tmp_path: Path) -> None:
    written = "half of it is written; press Enter to write the rest"
    assert run("crash_marker.py", tmp_path) == (0, [written, "done"])
    killed = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "crash_marker.py"), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == f"{written}\n".encode()
        killed.kill()
    assert (tmp_path / "index.txt").read_text() == "begun, and ended\nbegun, "
    _, said = run("crash_marker.py", tmp_path)
    assert "was interrupted (lifeline_free); putting back the saved index" in said[0]
    assert (tmp_path / "index.txt").read_text() == "begun, and ended\n" * 2
    assert run("crash_marker.py", tmp_path) == (0, [written, "done"])


@NEEDS_LINUX_PROC
def test_a_count_is_right_though_its_writers_are_killed(tmp_path: Path) -> None:
    assert run("commit_log.py", tmp_path, "a", 1, "first")[1] == ["in slot 2", "{'a': 1}"]
    assert run("commit_log.py", tmp_path, "a", 1, "first")[1] == ["in slot 2", "{'a': 1}"]
    assert run("commit_log.py", tmp_path, "b", 5, "second", points="log.putting=kill")[0] == KILLED
    assert run("commit_log.py", tmp_path)[1] == ["{'a': 1}"]
    assert run("commit_log.py", tmp_path, "b", 5, "second", points="log.put=kill")[0] == KILLED
    assert run("commit_log.py", tmp_path, "b", 5, "second")[1][-1] == "{'a': 1, 'b': 5}"
    log = CommitLog(tmp_path)
    with WriterLease(log.store).acquire() as hold:
        writer = log.open(hold)
        while writer.head < 110:
            writer.commit({"name": "c", "amount": 1})
    counted = "{'a': 1, 'b': 5, 'c': %d}"
    much = sum(entry.body["name"] == "c" for entry in log.read() if entry.kind == "commit")
    assert run("commit_log.py", tmp_path, "c", 1, points="log.floor=kill")[0] == KILLED
    assert run("commit_log.py", tmp_path, "c", 1)[1][-1] == counted % (much + 2)
    assert log.floor > 110
    assert run("commit_log.py", tmp_path)[1] == [counted % (much + 2)]


@NEEDS_LINUX_PROC
def test_a_teams_notes_are_all_there_though_their_writers_are_killed(tmp_path: Path) -> None:
    store, here, there = tmp_path / "store", tmp_path / "here", tmp_path / "there"
    assert run("datastore.py", store, here, "x", "hello")[1] == ["version 2", "x: hello"]
    assert run("datastore.py", store, there)[1] == ["from version 0 to 2", "x: hello"]
    assert run("datastore.py", store, there, "y", "late", points="outbox.prepared=kill")[0] == KILLED
    assert run("datastore.py", store, there, "x", "lost", points="checkout.put=kill")[0] == KILLED
    assert (there / "x").read_text() == "lost"
    _, said = run("datastore.py", store, there, "x", "again")
    assert said[0].startswith("not committed by the last writer, kept in .tenure/interrupted/")
    assert said[-2:] == ["x: again", "y: late"]
    assert (there / said[0].split()[-1]).read_text() == "lost"
    assert run("datastore.py", store, here)[1][1:] == ["x: again", "y: late"]
    assert (here / "x").read_text() == "again"
