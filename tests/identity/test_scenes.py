"""
Every scene on every kind of kernel, with the verdict and the reason that docs/concepts/verdicts.md promises.

The table is meant to be held against the specification's: the numbers are its rows, the columns are in `LEVELS`' order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.capabilities import (
    NEEDS_HANDLES,
    NEEDS_HIDEPID,
    NEEDS_INITIAL_PID_NAMESPACE,
    NEEDS_LINUX_PROC,
    NEEDS_MACHINE_ID,
    NEEDS_NS_ID,
    NEEDS_PID_NAMESPACE,
    NEEDS_PIDFS,
    NEEDS_PTRACE,
    NEEDS_ROOT,
    NEEDS_SET_TID,
    NEEDS_TIME_NAMESPACE,
)
from tests.identity.levels import EVERY_LEVEL, LEVELS
from tests.identity.scenes import SCENES, Scene

NO_PROC = "unknown foreign_or_missing_proc"
NO_START = "unknown no_start_time"
NO_PID = "gone no_such_pid"
EXITED = "gone exited"
REUSED = "gone pid_reused"
SAME_ID = "alive same_unique_id"
SAME_START = "alive same_start_time"
HIDDEN = "unknown hidden"
CLOCK = "unknown time_namespace"
OTHER_NS = "unknown other_pid_namespace"
# Linux before 6.15 or so says EINVAL for the number of a thread, and the start time decides instead.
THREAD = "gone pid_is_now_a_thread | gone pid_reused"


EXPLAINED = {"number-reused-within-one-tick", "zombie-thread-held-by-a-tracer"}


def always(outcome: str) -> tuple[str, ...]:
    return (outcome,) * len(LEVELS)


# columns:          handles, pidfs, pidfd, proc, no-proc, pidfd-no-proc, nothing
LIVING = (SAME_ID, SAME_ID, SAME_START, SAME_START, SAME_ID, NO_PROC, NO_PROC)
ENDED = (EXITED, EXITED, EXITED, EXITED, EXITED, NO_PROC, NO_PROC)
NOBODY = (NO_PID, NO_PID, NO_PID, NO_PID, NO_PID, NO_PID, NO_PROC)
OTHER = (REUSED, REUSED, REUSED, REUSED, REUSED, NO_PROC, NO_PROC)

EXPECTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "sleeping": ("17 27 30", LIVING),
    "stopped": ("17 27 30", LIVING),
    "traced": ("17 27 30", LIVING),
    "in-vfork-state-D": ("17 27 30", LIVING),
    "500-threads": ("17 27 30", LIVING),
    "comm-with-parentheses": ("17 27 30", LIVING),
    "comm-that-claims-to-be-a-zombie": ("17 27 30", LIVING),
    "another-user": ("17 27 30", LIVING),
    "executed-another-program": ("17 27 30", LIVING),
    "executed-from-a-thread": ("17 27 30", LIVING),
    "leader-exited": (
        "17 27 29",
        (SAME_ID, SAME_ID, SAME_START, "alive leader_exited", SAME_ID, NO_PROC, NO_PROC),
    ),
    "leader-exited-then-all": ("18 27 28", ENDED),
    # A pidfd calls a process alive until its last thread is forgotten; wrong, and on the safe side.
    "zombie-thread-held-by-a-tracer": ("17 27 29", (SAME_ID, SAME_ID, SAME_START, EXITED, SAME_ID, NO_PROC, NO_PROC)),
    "zombie": ("18 27 28", ENDED),
    "zombie-with-comm-that-claims-to-sleep": ("18 27 28", ENDED),
    "reaped": ("13 23", NOBODY),
    "number-is-now-a-thread": ("14 26", (THREAD, THREAD, THREAD, REUSED, THREAD, THREAD, NO_PROC)),
    "number-given-to-another": ("16 26", OTHER),
    "number-reused": ("16 26", OTHER),
    # The one wrong answer of start times, towards ALIVE: they cannot tell two processes of one 10 ms tick apart.
    "number-reused-within-one-tick": ("16 27 30", (REUSED, REUSED, SAME_START, SAME_START, REUSED, NO_PROC, NO_PROC)),
    "oneself": ("6", always("alive self")),
    "oneself-without-nonce": ("17 27 30", LIVING),
    "predecessor-of-the-judge": ("16 26", OTHER),
    "no-start-living": ("17 20", (SAME_ID, SAME_ID, NO_START, NO_START, SAME_ID, NO_START, NO_START)),
    "no-start-zombie": ("18 20", (EXITED, EXITED, NO_START, NO_START, EXITED, NO_START, NO_START)),
    "no-start-reaped": ("13 20", (NO_PID, NO_PID, NO_PID, NO_START, NO_PID, NO_PID, NO_START)),
    "no-uniq-living": ("27 30 21", (SAME_START, SAME_START, SAME_START, SAME_START, NO_PROC, NO_PROC, NO_PROC)),
    "no-uniq-leader-exited": (
        "27 29 21",
        (SAME_START, SAME_START, SAME_START, "alive leader_exited", NO_PROC, NO_PROC, NO_PROC),
    ),
    "no-uniq-zombie": ("27 28 21", (EXITED, EXITED, EXITED, EXITED, NO_PROC, NO_PROC, NO_PROC)),
    "no-uniq-no-start-living": ("20", always(NO_START)),
    "no-host-living": ("3", LIVING),
    "no-ns-id-living": ("12", LIVING),
    "no-namespace": ("7", always("unknown no_pid_namespace")),
    "no-boot": ("4", always("unknown no_boot_id")),
    "other-boot": ("5", always("unknown other_boot")),
    "other-boot-and-number-alive": ("5", always("unknown other_boot")),
    "other-host": ("3", always("unknown other_host")),
    "other-os": ("2", always("unknown other_os")),
    "newer-version": ("1", always("unknown version")),
    "pid-zero": ("1", always("unknown malformed")),
    "inode-of-the-namespace-reused": ("12", always("gone namespace_gone")),
    "below-living": (
        "8 11",
        ("alive handle_opens", OTHER_NS, OTHER_NS, OTHER_NS, "alive handle_opens", OTHER_NS, OTHER_NS),
    ),
    "below-zombie": ("9 11", (EXITED, OTHER_NS, OTHER_NS, OTHER_NS, EXITED, OTHER_NS, OTHER_NS)),
    "below-reaped": (
        "10 11",
        (
            "gone handle_stale_seen_from_initial_namespace",
            *(OTHER_NS, OTHER_NS, OTHER_NS),
            "gone handle_stale_seen_from_initial_namespace",
            *(OTHER_NS, OTHER_NS),
        ),
    ),
    "below-gone-with-its-namespace": (
        "10 11",
        (
            "gone handle_stale_seen_from_initial_namespace",
            *(OTHER_NS, OTHER_NS, OTHER_NS),
            "gone handle_stale_seen_from_initial_namespace",
            *(OTHER_NS, OTHER_NS),
        ),
    ),
    "below-living-no-uniq": ("11", always(OTHER_NS)),
    "below-gone-no-uniq": ("11", always(OTHER_NS)),
    "above-living": ("11", always(OTHER_NS)),
    "above-reaped": ("11", always(OTHER_NS)),
    "sibling-living": ("11", always(OTHER_NS)),
    "foreign-proc-living": ("17 21", (SAME_ID, SAME_ID, NO_PROC, NO_PROC, SAME_ID, NO_PROC, NO_PROC)),
    "foreign-proc-zombie": ("18 21", (EXITED, EXITED, NO_PROC, NO_PROC, EXITED, NO_PROC, NO_PROC)),
    "foreign-proc-reaped": ("13 21", (NO_PID, NO_PID, NO_PID, NO_PROC, NO_PID, NO_PID, NO_PROC)),
    "unprivileged-living": ("17 27 30", LIVING),
    "unprivileged-zombie": ("18 27 28", ENDED),
    "hidepid1-living": ("17 24", (SAME_ID, SAME_ID, HIDDEN, HIDDEN, SAME_ID, NO_PROC, NO_PROC)),
    "hidepid2-living": ("17 23", (SAME_ID, SAME_ID, HIDDEN, HIDDEN, SAME_ID, NO_PROC, NO_PROC)),
    "hidepid2-zombie": ("18 23", (EXITED, EXITED, HIDDEN, HIDDEN, EXITED, NO_PROC, NO_PROC)),
    "hidepid2-reaped": ("13 23", NOBODY),
    "shifted-clock-living": ("17 27 30", LIVING),
    "shifted-clock-zombie": ("18 27 28", ENDED),
    "recorded-under-a-shifted-clock": ("17 27 30", LIVING),
    "unknowable-clock-living": ("17 22", (SAME_ID, SAME_ID, CLOCK, CLOCK, SAME_ID, NO_PROC, NO_PROC)),
    "unknowable-clock-reaped": ("13 22", (NO_PID, NO_PID, NO_PID, CLOCK, NO_PID, NO_PID, NO_PROC)),
}

_NEEDS: dict[str, tuple[pytest.MarkDecorator, ...]] = {
    "traced": (NEEDS_PTRACE,),
    "zombie-thread-held-by-a-tracer": (NEEDS_PTRACE, NEEDS_ROOT),
    "another-user": (NEEDS_ROOT,),
    "number-reused": (NEEDS_SET_TID,),
    "number-given-to-another": (NEEDS_PIDFS,),
    "predecessor-of-the-judge": (NEEDS_PIDFS,),
    "other-host": (NEEDS_MACHINE_ID,),
    "inode-of-the-namespace-reused": (NEEDS_NS_ID,),
    "below-reaped": (NEEDS_INITIAL_PID_NAMESPACE,),
    "below-gone-with-its-namespace": (NEEDS_INITIAL_PID_NAMESPACE,),
    "number-reused-within-one-tick": (NEEDS_SET_TID,),
}
_NEEDS_BY_KIND: dict[str, tuple[pytest.MarkDecorator, ...]] = {
    "below": (NEEDS_PID_NAMESPACE, NEEDS_HANDLES),
    "above": (NEEDS_PID_NAMESPACE,),
    "sibling": (NEEDS_PID_NAMESPACE,),
    "foreign": (NEEDS_PID_NAMESPACE,),
    "unprivileged": (NEEDS_ROOT,),
    "hidepid1": (NEEDS_ROOT, NEEDS_HIDEPID),
    "hidepid2": (NEEDS_ROOT, NEEDS_HIDEPID),
    "shifted": (NEEDS_TIME_NAMESPACE,),
    "recorded": (NEEDS_TIME_NAMESPACE,),
    "unknowable": (NEEDS_TIME_NAMESPACE,),
}


def _marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    return (NEEDS_LINUX_PROC, *_NEEDS.get(name, ()), *_NEEDS_BY_KIND.get(name.split("-", maxsplit=1)[0], ()))


@pytest.fixture(scope="module", params=[pytest.param(name, marks=_marks(name), id=name) for name in EXPECTED])
def staged(request: pytest.FixtureRequest) -> Iterator[tuple[str, Scene]]:
    # Once per scene: judging changes nothing, which the stopped and the traced process would show.
    with SCENES[request.param]() as scene:
        yield request.param, scene


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_verdict_and_reason(staged: tuple[str, Scene], level: str) -> None:
    name, scene = staged
    _, outcomes = EXPECTED[name]
    expected = dict(zip(LEVELS, outcomes, strict=True))[level].split(" | ")

    assert " ".join(scene.judge(scene.record, without=LEVELS[level])) in expected


def test_no_level_contradicts_another(staged: tuple[str, Scene]) -> None:
    """Less evidence may make it UNKNOWN; ALIVE here and GONE there is a lie, but for the two that the table explains."""
    name, scene = staged
    verdicts = {scene.judge(scene.record, without=level)[0] for level in LEVELS.values()}

    assert not {"alive", "gone"} <= verdicts or name in EXPLAINED


def test_every_scene_has_its_outcomes() -> None:
    assert list(SCENES) == list(EXPECTED)


def test_every_row_of_the_table_that_needs_no_failing_call_has_a_scene() -> None:
    covered = {int(row) for rows, _ in EXPECTED.values() for row in rows.split()}

    # 15, 19 and 25 are failing system calls: test_failing_calls.py.
    assert covered == set(range(1, 31)) - {15, 19, 25}
