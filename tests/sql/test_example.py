"""The example of an existing application runs, and its four lines are what makes it safe."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/sqlalchemy_app.py"
SOURCE = EXAMPLE.read_text("utf-8")


def run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False)


def test_both_users_are_kept() -> None:
    done = run(EXAMPLE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "HTTP 409: nothing was applied; load again, and repeat the change on what is there now",
        "Welcome. Bob was here. Ann was here.",
    ]


def test_four_lines_are_marked() -> None:
    assert re.findall(r"# (\d): ", SOURCE) == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("line", "as_it_was"),
    [
        (
            "with self.fence.write(draft.pin) as tx, tx.session() as session:",
            "with Session(self.fence._engine) as session:",
        ),
        ("return Draft(name, page.body, snap.pin)", "return Draft(name, page.body, self.fence.claim(name))"),
    ],
)
def test_without_one_of_them_somebody_is_lost(line: str, as_it_was: str, tmp_path: Path) -> None:
    """The write as it was, and a pin that is not the load's."""
    assert line in SOURCE
    broken = tmp_path / "broken.py"
    broken.write_text(SOURCE.replace(line, as_it_was), "utf-8")
    done = run(broken)
    assert "Welcome. Bob was here. Ann was here." not in done.stdout.splitlines()
