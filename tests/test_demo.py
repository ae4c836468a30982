"""The demo shows what the project promises, so it must not only run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.helpers.capabilities import NEEDS_HANDLES, NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "examples/demo.py"
SCENES = 12
# The name of a scene has two blanks at most.
LINE = re.compile(r"^([✓✗-]) (.+?) {2,}(?!\.\.\.)(.*)$", re.MULTILINE)


def played(tmp_path: Path, *prefix: str, without: Sequence[str] = ()) -> tuple[int, dict[str, str], str]:
    """Exit code, the scenes' marks, and all that was said; nothing may be left behind."""
    blocked = "import sys, runpy\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in without)
    code = f"{blocked}sys.argv[0] = {str(DEMO)!r}\nrunpy.run_path({str(DEMO)!r}, run_name='__main__')"
    done = subprocess.run(
        [*prefix, *((sys.executable, "-c", code) if without else (sys.executable, str(DEMO)))],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": str(tmp_path), "PYTHONUTF8": "1"},
    )
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
    return done.returncode, {title: mark for mark, title, _ in LINE.findall(done.stdout)}, done.stdout


def test_every_scene_that_can_be_played_comes_out_as_it_must(tmp_path: Path) -> None:
    code, marks, said = played(tmp_path)
    assert (code, len(marks)) == (0, SCENES), said
    assert "✗" not in marks.values(), said
    assert "✓" in marks.values(), said


@NEEDS_PID_NAMESPACE
@NEEDS_HANDLES
def test_nothing_is_skipped_where_everything_is_possible(tmp_path: Path) -> None:
    _, marks, said = played(tmp_path)
    assert set(marks.values()) == {"✓"}, said


def test_without_privileges_it_says_what_is_missing(tmp_path: Path) -> None:
    # Forbids new namespaces, whoever runs this.
    prefix = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs setpriv")
    code, marks, said = played(tmp_path, *prefix)
    assert (code, len(marks)) == (0, SCENES), said
    assert "✗" not in marks.values(), said
    if "-" in marks.values():
        assert "needs: " in said
        assert f"{list(marks.values()).count('-')} skipped" in said


def test_it_runs_without_rich(tmp_path: Path) -> None:
    code, marks, said = played(tmp_path, without=["rich", "rich.console"])
    assert (code, len(marks)) == (0, SCENES), said


BROKEN_TAKEOVER = f"""
import runpy
from tenure import WriterLease

acquire = WriterLease.acquire

def never(self, timeout=0.0):
    if self.store.url.endswith("probe"):
        return acquire(self, timeout)
    raise RuntimeError("broken")

WriterLease.acquire = never
runpy.run_path({str(DEMO)!r}, run_name="__main__")
"""


def test_a_scene_that_comes_out_wrong_is_marked_and_fails_the_demo() -> None:
    command = [sys.executable, "-c", BROKEN_TAKEOVER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert re.search(r"^✗ lives +RuntimeError: broken$", done.stdout, re.MULTILINE)


@NEEDS_LINUX_PROC
def test_no_process_is_left_behind(tmp_path: Path) -> None:
    played(tmp_path)
    # Each was started with a path in our directory as an argument, or by one that was.
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in command_line(path)]
    assert left == []


def command_line(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
