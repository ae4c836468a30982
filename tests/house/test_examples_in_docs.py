"""What the documents show in Python runs as shown, each block in an interpreter of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tenure import _failpoints

ROOT = Path(__file__).resolve().parents[2]
# In lease.md some blocks are parts of a program.
DOCUMENTS = sorted(ROOT.glob("docs/how-to/*.md"))
BLOCKS = [
    pytest.param(code, id=f"{document.stem}-{number}")
    for document in DOCUMENTS
    for number, code in enumerate(
        re.findall(r"^```python\n(.*?)^```$", document.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    )
]


@pytest.mark.parametrize("code", BLOCKS)
def test_a_block_of_python_runs(code: str, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    code = code.replace('"/srv/data"', repr(str(tmp_path / "data"))).replace('"/run/', f'"{tmp_path}/')
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 4


def test_a_forced_release_runs_as_shown(tmp_path: Path) -> None:
    text = (ROOT / "docs/concepts/lease.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n([^`]*force_release\([^`]*)^```$", text, re.MULTILINE)
    code = code.replace('"/srv/data"', repr(str(tmp_path / "data")))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_of_fail_points_says_what_the_code_says() -> None:
    row = re.compile(r"^\| `.*\|$", re.MULTILINE)
    page = (ROOT / "docs/concepts/fail-points.md").read_text("utf-8")
    assert row.findall(page) == row.findall(_failpoints.__doc__ or "")
