"""The rules of the design keep every promise, whoever dies or stalls; and no rule can be left out."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from tests.model import __main__
from tests.model.invariants import OF_A_STATE, OF_A_STEP
from tests.model.mutants import MUTANTS
from tests.model.scenes import DAILY, SOAK
from tests.model.search import explore
from tests.model.state import Entry, Model, Op, Reader, Row, RowState, Rules, Scene, State, Step, Writer

PAGE = Path(__file__).resolve().parents[2] / "docs/concepts/model.md"

# What each scene is about: without these it would show nothing.
ABOUT = {
    "takeover": {"idle", "claim", "look above", "read head", "seal", "check seal", "put", "unclear", "withdrawn", "landing"},
    "three writers": {"landed", "withdrawn", "conflicted"},
    "conflict": {"conflicted"},
    "landing": {"land", "note landed", "landing"},
    "undecided": {"unclear", "snapshot", "ghost"},
    "unsent": {"withdrawn", "ghost"},
    "collection": {"snapshot", "ghost", "unclear"},
    "stale seal": {"ghost", "check seal", "landed"},
    "skipping": {"recover", "snapshot"},
    "reader": {"snapshot", "ghost", "ready", "note"},
    "claims": {"look above"},
    "joining": {"join"},
    "blobs": {"condemn", "delete", "landing"},
    "late deletion": {"condemn", "delete", "prepared"},
}  # fmt: skip


# Nothing but arithmetic: it cannot hang, and takes as long as a busy machine lets it.
LONG = pytest.mark.timeout(600)


@LONG
@pytest.mark.parametrize("scene", DAILY)
def test_the_rules_of_the_design_keep_every_promise(scene: str) -> None:
    found = explore(Model(DAILY[scene]))

    assert not found.broken, str(found)
    assert found.complete
    assert found.reached >= ABOUT[scene]
    assert found.states >= (80_000 if scene == "three writers" else 1_000)


@LONG
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str) -> None:
    mutant = MUTANTS[name]

    found = explore(mutant.model(), only=mutant.breaks)

    assert mutant.breaks in found.broken, str(found)
    assert table()[name] == (mutant.breaks, mutant.scene, len(found.trace)), str(found)


def table() -> dict[str, tuple[str, str, int]]:
    """The mutants as the page has them: what breaks, in which scene, in how many steps."""
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \| (\d+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {name: (breaks, scene, int(steps)) for name, breaks, scene, steps in rows}


def test_every_mutant_stands_on_the_page() -> None:
    assert list(table()) == list(MUTANTS)


def test_every_rule_has_a_mutant_that_lacks_it_alone() -> None:
    lacking = [
        [field.name for field in fields(Rules) if not getattr(mutant.rules, field.name)] for mutant in MUTANTS.values()
    ]

    assert sorted(lacking) == sorted([field.name] for field in fields(Rules))


def test_every_step_and_every_state_of_a_row_is_what_some_scene_is_about() -> None:
    about = set().union(*ABOUT.values())

    # Only a mutant checks before it puts.
    assert {*get_args(Step), *get_args(RowState)} - about == {"check"}


# Of each invariant, something that breaks it: two commits of A, one of B.
MODEL = Model(Scene("by hand", (Op("a1", 0), Op("a2", 0, "y"), Op("b1", 1)), blobs=True))
START = MODEL.start()
SEAL, SEAL_2 = Entry("seal", 1), Entry("seal", 2)
A1, A2, B1 = Entry("commit", 1, 0, 1), Entry("commit", 1, 1, 2), Entry("commit", 2, 2, 1)
PASSED = (SEAL, SEAL_2, Entry("snapshot", 2, 3))
BROKEN = {
    "a commit lands once": START._replace(log=(SEAL, A1, A1)),
    "fences never fall": START._replace(log=(SEAL_2, SEAL)),
    "what is acknowledged is in the log": START._replace(log=(SEAL, A1), acknowledged=0b11),
    "acknowledged commits are in order": START._replace(log=(SEAL, A2, A1), acknowledged=0b11),
    "what is reported failed is not in the log": START._replace(log=(SEAL, A1), failed=0b1),
    "what is marked landed is in the log": START._replace(log=(SEAL,), outbox=(Row("landed", 1, 2, 1), None, None)),
    "an open log is sealed": START._replace(log=(SEAL,), writers=(Writer("ready", 2, 2), Writer())),
    "nothing newer is rewound": START._replace(log=(SEAL, A1, SEAL_2, B1)),
    "what is skipped stays landable": START._replace(log=PASSED, outbox=(Row("prepared", 1, 2, 1), None, None)),
    "live content is there": START._replace(log=(SEAL, A1._replace(blob=1)), blobs=0b100),
    "a reader applies the truth": START._replace(log=(SEAL,), reader=Reader(1, true=False)),
}
BROKEN_BY = {
    "no fence is taken twice": (
        START._replace(taken=0b10, writers=(Writer("look above", 1), Writer())),
        START._replace(taken=0b10, writers=(Writer("read head", 1), Writer())),
    ),
    "an opened log is closed to older fences": (START._replace(opened=2), START._replace(opened=2, log=(SEAL,))),
    "a lost hold is joined by nobody": (
        START._replace(log=(SEAL,), writers=(Writer("join", 1, 2, at=2), Writer())),
        START._replace(log=(SEAL,), writers=(Writer("ready", 1, 2), Writer())),
    ),
}


def broken_in(state: State) -> list[str]:
    return [name for name, kept in OF_A_STATE.items() if not kept(MODEL, state)]


def broken_by(before: State, after: State) -> list[str]:
    return [name for name, kept in OF_A_STEP.items() if not kept(MODEL, before, after)]


@pytest.mark.parametrize("name", OF_A_STATE)
def test_a_state_can_break_this_alone(name: str) -> None:
    assert broken_in(BROKEN[name]) == [name]


@pytest.mark.parametrize("name", OF_A_STEP)
def test_a_step_can_break_this_alone(name: str) -> None:
    before, after = BROKEN_BY[name]

    assert broken_by(before, after) == [name]
    assert not broken_in(after)


def test_a_floor_may_pass_what_was_prepared_after_it_had_been_sealed_out() -> None:
    row = Row("prepared", 1, 2, 1, promised=False)

    assert not broken_in(START._replace(log=PASSED, outbox=(row, None, None)))


def test_the_story_of_a_violation_is_told_in_words() -> None:
    mutant = MUTANTS["a lost hold is joined"]

    found = explore(mutant.model(), only=mutant.breaks)

    assert found.trace == (
        "A reads the highest claim, 0",
        "A creates claim 1",
        "A has taken fence 1",
        "A reads the head, slot 0",
        "A puts its seal 1 into slot 1",
        "A opens the log with fence 1",
        "B reads the highest claim, 1",
        "B creates claim 2",
        "B has taken fence 2",
        "A is asked to join its hold",
        "A joins its hold of fence 1",
    )
    assert "broken in 11 steps: a lost hold is joined by nobody" in str(found)


def test_an_exploration_that_was_cut_short_says_so() -> None:
    found = explore(Model(DAILY["claims"]), 1000)

    assert not found.complete
    assert 1000 <= found.states < 1100


@pytest.mark.parametrize("scene", SOAK)
def test_the_beginning_of_a_large_scene_keeps_every_promise(scene: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--scene", scene, "--states", "2000"]) == 0
    assert "no violation" in capsys.readouterr().out


def test_the_command_tells_how_a_mistake_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--mutant", "no seal"]) == 0
    assert "A prepares a1" in capsys.readouterr().out
