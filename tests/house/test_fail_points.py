"""Every fail point stands in both tables, is reached somewhere, and some test kills a process there."""

from __future__ import annotations

import re
from pathlib import Path

from tenure import _failpoints
from tests.datastore import test_kill_points
from tests.lease import test_fail_points

SOURCES = Path(_failpoints.__file__).parent
PAGE = Path(__file__).resolve().parents[2] / "docs/concepts/fail-points.md"


def rows(text: str) -> list[tuple[str, str]]:
    """The points of a table, and what it says of them."""
    return re.findall(r"^\| `(\w+\.\w+)` \| (.+) \|$", text, re.MULTILINE)


EXPLAINED = rows(_failpoints.__doc__ or "")


def test_every_point_that_is_explained_is_reached_somewhere_and_the_other_way_round() -> None:
    reached = [
        point
        for source in SOURCES.rglob("*.py")
        for point in re.findall(r'\breach\("([\w.]+)"\)', source.read_text("utf-8"))
    ]
    assert set(reached) == {point for point, _ in EXPLAINED}


def test_the_page_says_the_same_as_the_code() -> None:
    assert rows(PAGE.read_text("utf-8")) == EXPLAINED


def test_at_every_point_some_process_is_killed() -> None:
    killed = {*test_fail_points.POINTS, *(point for points in test_kill_points.SCENES.values() for point in points)}
    assert killed == {point for point, _ in EXPLAINED}
