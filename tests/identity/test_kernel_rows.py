"""
The rows of the decision table that the kernel decides, 8 to 30, as claims. Every combination stands in test_scenes.py.
"""

from __future__ import annotations

import os
import time

import pytest

from tenure import _core
from tests.helpers import independent, namespaces, processes
from tests.helpers.capabilities import (
    NEEDS_HANDLES,
    NEEDS_HIDEPID,
    NEEDS_INITIAL_PID_NAMESPACE,
    NEEDS_LINUX_PROC,
    NEEDS_MOUNT,
    NEEDS_PID_NAMESPACE,
    NEEDS_PIDFD,
    NEEDS_PIDFS,
    NEEDS_ROOT,
    NEEDS_TIME_NAMESPACE,
)
from tests.helpers.namespaces import FOREIGN_PROC, OWN_PROC
from tests.helpers.processes import Agent
from tests.helpers.records import changed, fields, later
from tests.identity.levels import EVERY_LEVEL, LEVELS, USUAL_LEVELS, judged_here

pytestmark = NEEDS_LINUX_PROC

FOREIGN_NS = "4026599999"


def evidence(record: str, level: str) -> str:
    return _core.judge(record, without=LEVELS[level]).evidence


@NEEDS_HANDLES
@NEEDS_PID_NAMESPACE
def test_a_process_below_is_seen_alive_and_then_gone_by_its_handle() -> None:
    """Rows 8 to 10."""
    with Agent(OWN_PROC) as agent:
        child = agent.spawn()
        assert judged_here(child.record) == ("alive", "handle_opens")
        assert evidence(child.record, "handles") == "handle"
        agent.ask("end", pid=child.pid, reap=False)
        assert judged_here(child.record) == ("gone", "exited")


@NEEDS_PIDFS
def test_a_foreign_namespace_is_unknown_whether_the_number_lives_here_or_not() -> None:
    """Row 11, cases B11 and B14."""
    with processes.sleeping() as living, processes.reaped() as dead:
        for record in (living.record, dead.record):
            elsewhere = changed(record, ns=FOREIGN_NS, ns_id=None, uniq=None)
            assert judged_here(elsewhere) == ("unknown", "other_pid_namespace")


@NEEDS_PID_NAMESPACE
def test_a_holder_above_is_unknown_on_each_of_a_hundred_tries() -> None:
    """Row 11, case B12: the same host name and boot, and outside pids are invisible."""
    with processes.sleeping() as holder, Agent(OWN_PROC) as judge:
        answers = {judge.judge(holder.record) for _ in range(100)}

    assert answers == {("unknown", "other_pid_namespace")}


@NEEDS_PID_NAMESPACE
def test_two_containers_that_are_both_pid_1_do_not_take_each_other_for_dead_or_for_themselves() -> None:
    """Row 11, cases B04 and B16."""
    with Agent(OWN_PROC) as one, Agent(OWN_PROC) as other:
        assert fields(one.record)["pid"] == fields(other.record)["pid"] == 1
        assert other.judge(one.record) == ("unknown", "other_pid_namespace")
        assert one.judge(other.record) == ("unknown", "other_pid_namespace")


@NEEDS_HANDLES
@NEEDS_PID_NAMESPACE
@NEEDS_INITIAL_PID_NAMESPACE
def test_a_stale_handle_is_death_only_where_every_process_can_be_seen() -> None:
    """Rows 10 and 11."""
    with processes.reaped() as dead, Agent(OWN_PROC) as below:
        with Agent(OWN_PROC) as other:
            record = other.record
            other.leave()
        assert judged_here(record) == ("gone", "handle_stale_seen_from_initial_namespace")
        assert below.judge(record) == ("unknown", "other_pid_namespace")
        assert below.judge(dead.record) == ("unknown", "other_pid_namespace")


def test_a_reaped_process_is_gone() -> None:
    """Rows 13 and 23."""
    with processes.reaped() as dead:
        assert judged_here(dead.record) == ("gone", "no_such_pid")
        assert judged_here(dead.record, without=LEVELS["proc"]) == ("gone", "no_such_pid")


@NEEDS_PIDFD
def test_the_number_of_a_thread_is_not_a_process_that_lives() -> None:
    """Row 14; on kernels that answer EINVAL the start time says it: row 26."""
    with processes.thread_number_taken() as taken:
        os.stat(f"/proc/{taken.pid}/stat")
        assert judged_here(taken.record) in (("gone", "pid_is_now_a_thread"), ("gone", "pid_reused"))


@NEEDS_PIDFS
def test_the_unique_id_decides_and_not_the_start_time() -> None:
    """Rows 16 and 17."""
    with processes.sleeping() as subject:
        assert judged_here(later(subject.record, "uniq")) == ("gone", "pid_reused")
        assert judged_here(later(subject.record, "start")) == ("alive", "same_unique_id")


@pytest.mark.parametrize("level", USUAL_LEVELS)
def test_a_zombie_is_gone_and_a_leader_that_left_its_threads_behind_is_not(level: str) -> None:
    """Rows 17, 18 and 27 to 29, case B33: both show state Z."""
    with processes.zombie() as zombie, processes.leader_exited() as leader:
        assert independent.state(zombie.pid) == independent.state(leader.pid) == "Z"
        assert judged_here(zombie.record, without=LEVELS[level]) == ("gone", "exited")
        assert judged_here(leader.record, without=LEVELS[level])[0] == "alive"


def test_a_record_without_start_time_needs_a_unique_id() -> None:
    """Row 20."""
    with processes.sleeping() as subject:
        bare = changed(subject.record, start=None, uniq=None)
        assert judged_here(bare) == ("unknown", "no_start_time")


@NEEDS_PID_NAMESPACE
def test_a_proc_of_another_namespace_is_not_believed() -> None:
    """Row 21: its /proc/1/stat tells of a stranger, here even one with the recorded start time."""
    with Agent(FOREIGN_PROC) as agent:
        assert agent.pid_inside == 1
        stranger = str(independent.start_time(1))
        record = changed(agent.record, start=stranger, nonce=None)
        for level in ("pidfd", "proc"):
            assert agent.judge(record, without=LEVELS[level]) == ("unknown", "foreign_or_missing_proc")


@NEEDS_PID_NAMESPACE
def test_a_record_made_under_a_foreign_proc_has_no_start_time() -> None:
    """Row 20: a wrong one would have another process called a reused number."""
    with Agent(FOREIGN_PROC) as agent:
        assert "start" not in fields(agent.record)
        assert agent.judge(changed(agent.record, nonce=None), without=LEVELS["pidfd"]) == ("unknown", "no_start_time")


@NEEDS_TIME_NAMESPACE
def test_offsets_of_the_children_are_not_taken_for_ones_own() -> None:
    """Row 22: after unshare, /proc/self/timens_offsets tells of time_for_children. Source: time_namespaces(7)."""
    with processes.sleeping() as subject, Agent() as agent:
        agent.ask("leave_time_namespace")
        assert agent.judge(subject.record, without=LEVELS["pidfd"]) == ("unknown", "time_namespace")


@NEEDS_TIME_NAMESPACE
@pytest.mark.parametrize("level", ["pidfd", "proc"])
def test_a_time_namespace_entered_after_the_first_judgement_is_noticed(level: str) -> None:
    """Rows 22 and 26: setns moves a running process, and every start time it reads from then on. Source: setns(2)."""
    with (
        processes.sleeping() as subject,
        Agent(namespaces.with_boottime_offset(5_000)) as elsewhere,
        Agent() as agent,
    ):
        assert agent.judge(subject.record, without=LEVELS[level]) == ("alive", "same_start_time")
        agent.ask("enter_time_namespace_of", pid=elsewhere.pid)
        assert agent.judge(subject.record, without=LEVELS[level]) in (
            ("alive", "same_start_time"),
            ("unknown", "time_namespace"),
        )


@NEEDS_ROOT
@NEEDS_HIDEPID
def test_not_found_in_a_hidden_proc_is_not_death() -> None:
    """Row 23, case B30."""
    with processes.sleeping() as subject, namespaces.unprivileged(proc="hidepid=2") as agent:
        assert agent.judge(subject.record, without=LEVELS["proc"]) == ("unknown", "hidden")


@NEEDS_ROOT
def test_another_users_process_is_judged_without_privilege() -> None:
    """Rows 17 and 30, case B30; with a wrong start time case B32: gone, and nobody stumbles over the permission."""
    with processes.sleeping() as subject, namespaces.unprivileged() as agent:
        for level in ("handles", "proc"):
            assert agent.judge(subject.record, without=LEVELS[level])[0] == "alive"
        other = later(changed(subject.record, uniq=None), "start")
        assert agent.judge(other) == ("gone", "pid_reused")


@pytest.mark.parametrize("level", ["pidfd", "proc"])
@pytest.mark.parametrize("by", [-1, 1, 3_000])
def test_a_start_time_is_equal_or_another_process(level: str, by: int) -> None:
    """Row 26, case B27: there is no tolerance."""
    with processes.sleeping() as subject:
        assert judged_here(later(subject.record, "start", by), without=LEVELS[level]) == ("gone", "pid_reused")


@NEEDS_TIME_NAMESPACE
@pytest.mark.parametrize("level", ["pidfd", "proc"])
def test_an_offset_with_a_part_of_a_tick_costs_one_tick_and_no_more(level: str) -> None:
    """Row 26: the kernel rounds after it has added the offset, so a start time may move by one."""
    with processes.sleeping() as subject, Agent(arguments=["boottime 5000 7654321"]) as agent:
        assert agent.judge(subject.record, without=LEVELS[level]) == ("alive", "same_start_time")
        for by in (-3, 3):
            off = later(subject.record, "start", by)
            assert agent.judge(off, without=LEVELS[level]) == ("gone", "pid_reused")


@NEEDS_TIME_NAMESPACE
def test_start_times_mean_the_same_inside_and_outside_a_time_namespace() -> None:
    """Rows 26 to 30: the own offset is taken off when a record is written and when it is compared."""
    with Agent(namespaces.with_boottime_offset(86_400)) as agent, processes.sleeping() as outside:
        assert int(fields(agent.record)["start"]) == independent.start_time(agent.pid)
        assert judged_here(agent.record, without=LEVELS["proc"]) == ("alive", "same_start_time")
        assert agent.judge(outside.record, without=LEVELS["proc"]) == ("alive", "same_start_time")


@NEEDS_MOUNT
@pytest.mark.parametrize("seconds", [-180, 180, 4 * 86_400])
def test_a_moved_wall_clock_changes_nothing(seconds: int) -> None:
    """Cases B23 and B25: btime in /proc/stat follows the wall clock, and in a container it is invented."""
    text = f"cpu  1 1 1 1 1 1 1 0 0 0\nbtime {int(time.time()) + seconds}\nprocesses 1\n"
    with (
        processes.sleeping() as subject,
        namespaces.with_text_over("/proc/stat", text) as prefix,
        Agent(prefix) as agent,
    ):
        for level in ("handles", "pidfd", "proc"):
            assert agent.judge(subject.record, without=LEVELS[level])[0] == "alive"
            assert agent.judge(changed(agent.record, nonce=None), without=LEVELS[level])[0] == "alive"
            assert judged_here(agent.record, without=LEVELS[level])[0] == "alive"


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_a_stopped_process_stays_stopped(level: str) -> None:
    """A probe by signal, or a SIGCONT in front of one, would wake it."""
    with processes.stopped() as subject:
        for record in (subject.record, later(subject.record, "start"), changed(subject.record, uniq=None)):
            _core.judge(record, without=LEVELS[level])
            _core.judge_many([record, record], without=LEVELS[level])
            assert independent.state(subject.pid) == "T"


@pytest.mark.parametrize("level", USUAL_LEVELS)
def test_a_judgement_says_what_it_rests_on(level: str) -> None:
    expected = {"handles": "pidfs", "pidfs": "pidfs", "pidfd": "pidfd", "proc": "proc"}[level]
    with processes.sleeping() as living, processes.zombie() as zombie:
        assert evidence(living.record, level) == expected
        assert evidence(zombie.record, level) == expected


def test_a_name_is_no_identity() -> None:
    """Case B37: another instance of the same interpreter, under any name."""
    with processes.named("postgres") as subject:
        assert judged_here(subject.record)[0] == "alive"
        assert judged_here(later(later(subject.record, "start"), "uniq")) == ("gone", "pid_reused")
