"""The two examples do what they say, also when they are killed where it hurts."""

from __future__ import annotations

import doctest
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tenure
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


@pytest.mark.parametrize("example", ["outbox.py", "crash_marker.py"])
def test_an_example_is_short(example: str) -> None:
    assert len((EXAMPLES / example).read_text("utf-8").splitlines()) <= 40


@pytest.mark.parametrize("name", ["Outbox", "CrashMarker"])
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
