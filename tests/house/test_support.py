"""docs/support.md claims for no system more than `make cross` does there, and leaves none of the core's systems out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MARKS = ("not possible", "checked", "linked", "run")

# Which steps of scripts/cross-check.sh stand behind a column, and which of the core's files.
BEHIND = {
    "Linux x86_64": ((), "linux"),
    "Linux aarch64, under qemu": (("aarch64",), "linux"),
    "Linux musl": (("musl",), "linux"),
    "macOS": (("darwin",), "macos"),
    "Windows, under wine": (("windows", "wine", "wheel"), "windows"),
    "elsewhere": (("bsd",), "unsupported"),
}


def table() -> tuple[list[str], list[list[str]]]:
    """The columns, and the rows with their names first."""
    text = (ROOT / "docs/support.md").read_text(encoding="utf-8").split("## The table")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    return rows[0][1:], rows[2:]


def mark(cell: str) -> str:
    """The word that a cell begins with."""
    return next((word for word in MARKS if re.match(rf"{word}(:|$)", cell)), cell)


def shown_by(step: str) -> set[str]:
    """What the head of the script says that a step does."""
    script = (ROOT / "scripts/cross-check.sh").read_text(encoding="utf-8")
    line = re.search(rf"^#   {step} .*?  +([a-z, ]+)$", script, re.MULTILINE)
    assert line, f"the script's head has no step {step}"
    assert f"step_{step}()" in script
    return set(line[1].split(", "))


def test_every_cell_begins_with_one_of_the_four_words() -> None:
    columns, rows = table()
    assert columns == list(BEHIND)
    for name, *cells in rows:
        assert len(cells) == len(columns), name
        for column, cell in zip(columns, cells, strict=True):
            assert mark(cell) in MARKS, f"{name}, {column}: {cell}"


@pytest.mark.parametrize("column", [name for name, (steps, _) in BEHIND.items() if steps])
def test_a_column_claims_no_more_than_make_cross_does_there(column: str) -> None:
    shown = {"not possible", "checked"}.union(*(shown_by(step) for step in BEHIND[column][0]))
    columns, rows = table()
    at = columns.index(column) + 1
    assert {mark(row[at]) for row in rows} <= shown


def test_every_system_of_the_core_has_a_column() -> None:
    sources = (ROOT / "rust/identity/src/sys").iterdir()
    assert {source.stem for source in sources if source.stem != "mod"} == {source for _, source in BEHIND.values()}
