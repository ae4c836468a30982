"""What the core writes is what others read: case B50, where a record had always held nonsense and its test agreed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tenure import _core
from tests.helpers import independent, processes
from tests.helpers.capabilities import NEEDS_HANDLES, NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE, NEEDS_PIDFS
from tests.helpers.independent import Seen
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.processes import Agent, Subject
from tests.helpers.records import fields
from tests.identity.levels import LEVELS, judged_here

pytestmark = NEEDS_LINUX_PROC

MAKERS: dict[str, Callable[[], AbstractContextManager[Subject]]] = {
    "plain": processes.sleeping,
    "comm-that-looks-like-fields": lambda: processes.named("a) R 1 (b"),
    "comm-of-parentheses": lambda: processes.named(")))((( ) 1 1"),
    "comm-with-a-newline": lambda: processes.named("a)\nS 1\n(b"),
    "many-threads": lambda: processes.many_threads(50),
    "executed": processes.executed,
}


@pytest.fixture(params=MAKERS)
def subject(request: pytest.FixtureRequest) -> object:
    return MAKERS[request.param]


def test_every_field_is_what_the_kernel_says(subject: Callable[[], AbstractContextManager[Subject]]) -> None:
    with subject() as process:
        seen = Seen.of(process.pid)
        for record in (process.record, _core.ProcessIdentity.of(process.pid).to_json()):
            written = _core.ProcessIdentity.from_json(record)
            told = (written.boot, written.ns, written.ns_id, written.pid, written.start, written.uniq)
            assert told == (seen.boot, seen.ns, seen.ns_id, seen.pid, seen.start, seen.uniq)


def test_the_shell_reads_the_same(subject: Callable[[], AbstractContextManager[Subject]]) -> None:
    with subject() as process:
        written = fields(process.record)
        boot, namespace, start = independent.told_by_the_shell(process.pid)

        assert (written["v"], written["os"], written["pid"]) == (1, "linux", process.pid)
        assert (written["boot"], written["ns"], written["start"]) == (boot, namespace, str(start))


def test_a_record_made_without_the_core_is_judged_like_its_own(
    subject: Callable[[], AbstractContextManager[Subject]],
) -> None:
    with subject() as process:
        by_hand = Seen.of(process.pid).as_json()

        for level in ("handles", "pidfd", "proc"):
            expected = judged_here(process.record, without=LEVELS[level])
            assert judged_here(by_hand, without=LEVELS[level]) == expected


@NEEDS_PIDFS
def test_unique_ids_grow_and_never_repeat() -> None:
    """Source: linux/fs/pidfs.c, one counter per boot."""
    seen = []
    with Agent() as agent:
        for _ in range(20):
            child = agent.spawn()
            seen.append(int(fields(child.record)["uniq"]))
            agent.ask("end", pid=child.pid)

    assert seen == sorted(set(seen))


@NEEDS_HANDLES
@NEEDS_PID_NAMESPACE
def test_a_process_is_the_same_seen_from_inside_and_outside_its_namespace() -> None:
    with Agent(OWN_PROC) as agent:
        inside = fields(agent.record)
        outside = Seen.of(agent.pid)

        assert inside["pid"] == agent.pid_inside != agent.pid
        assert (inside["ns"], inside["boot"]) == (outside.ns, outside.boot)
        assert (inside["start"], inside.get("uniq")) == (str(outside.start), str(outside.uniq))
        assert inside.get("ns_id", "None") == str(outside.ns_id)


def test_capabilities_are_those_that_can_be_tried() -> None:
    assert ("pidfs" in _core.capabilities()) == (independent.pidfs_inode(1) is not None)
    assert "proc" in _core.capabilities()
