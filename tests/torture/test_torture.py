"""
The lease under kill -9, stops and fail points; and the proof that a broken one would not have passed.

A failure prints the plan: `python -m tests.torture --seed N` repeats its choices, and `make soak` goes on for longer.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE
from tests.torture.checker import Report
from tests.torture.driver import Driver, Plan

pytestmark = NEEDS_LINUX_PROC

HAS_NAMESPACES = not NEEDS_PID_NAMESPACE.args[0]
SEED = int(os.environ.get("TENURE_TORTURE_SEED", "7"))

# Between the look and the write: the bug that random kills do not find.
STOPPED_BETWEEN = "torture.checked=stop@3"


def tortured(directory: Path, plan: Plan) -> Report:
    report = Driver(plan, directory).run()
    print(plan, report, sep="\n")
    return report


def test_a_lease_keeps_its_promises_while_its_holders_are_killed_stopped_and_held_up(tmp_path: Path) -> None:
    report = tortured(tmp_path, Plan(seconds=6, seed=SEED, namespaces=HAS_NAMESPACES, bound_s=2.0))

    assert not report.problems, str(report)
    assert report.kills >= 5
    assert report.fences >= 20
    assert report.acknowledged >= 20


def test_among_strangers_who_have_only_time_to_go_by_nothing_is_lost_either(tmp_path: Path) -> None:
    plan = Plan(seconds=5, seed=SEED, variant="strangers", points=STOPPED_BETWEEN, calm_s=3, bound_s=3.0)
    report = tortured(tmp_path, plan)

    assert not report.problems, str(report)
    assert report.fenced, "somebody was replaced while it was stopped, and refused by the log"


def test_check_then_write_is_caught(tmp_path: Path) -> None:
    """The same run with a log that does not ask the store who was first."""
    plan = Plan(seconds=5, seed=SEED, variant="strangers", blind=True, points=STOPPED_BETWEEN, calm_s=3, bound_s=3.0)

    assert tortured(tmp_path, plan).rules() & {"nothing lost", "log fences rise"}


@NEEDS_PID_NAMESPACE
def test_a_lease_that_judges_by_the_number_alone_is_caught(tmp_path: Path) -> None:
    # Whom a number names in another namespace is chance: where it is somebody who lives, nobody is robbed, and all wait
    # for ever. So a few runs, of which one is enough.
    def robbed(run: int) -> bool:
        directory = tmp_path / str(run)
        directory.mkdir()
        plan = Plan(seconds=3, seed=SEED + run, variant="by pid", points="")
        return "never robbed" in tortured(directory, plan).rules()

    assert any(robbed(run) for run in range(5))


def test_a_lease_that_replaces_a_stopped_holder_by_time_is_caught(tmp_path: Path) -> None:
    plan = Plan(seconds=3, seed=SEED, variant="by time", points=STOPPED_BETWEEN, calm_s=3, namespaces=False)

    assert "never robbed" in tortured(tmp_path, plan).rules()
