"""Judging many at once: the answers of `judge`, in order, at the cost of the distinct processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tenure import _core
from tests.helpers import processes
from tests.helpers.capabilities import NEEDS_IDENTITY, NEEDS_PIDFD, NEEDS_PIDFS, NEEDS_STRACE
from tests.helpers.processes import Agent, Subject
from tests.helpers.records import OTHER_BOOT, changed, later
from tests.helpers.tracing import traced
from tests.identity.levels import EVERY_LEVEL, LEVELS

pytestmark = NEEDS_IDENTITY


@pytest.fixture(scope="module")
def crowd() -> Iterator[list[Subject]]:
    """Fifty living processes of one parent."""
    with Agent() as agent:
        yield [agent.spawn() for _ in range(50)]


@pytest.fixture(scope="module")
def mixed() -> Iterator[list[str | bytes | None]]:
    """One of each kind of record."""
    with contextlib.ExitStack() as stack:
        living = stack.enter_context(processes.sleeping()).record
        yield [
            living,
            stack.enter_context(processes.zombie()).record,
            stack.enter_context(processes.reaped()).record,
            stack.enter_context(processes.stopped()).record,
            stack.enter_context(processes.leader_exited()).record,
            None,
            "",
            living.encode(),
            changed(living, boot=OTHER_BOOT),
            changed(living, nonce=None),
            changed(living, uniq=None),
            changed(living, start=None),
            later(living, "uniq"),
            later(changed(living, uniq=None), "start"),
            changed(living, ns="4026599999", ns_id=None, uniq=None),
            _core.ProcessIdentity.current().to_json(),
        ]


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_the_answers_are_those_of_judge_in_their_order(mixed: list[str | bytes | None], level: str) -> None:
    without = LEVELS[level]
    one_by_one = [_core.judge(record, without=without) for record in mixed]

    assert _core.judge_many(mixed, without=without) == one_by_one
    assert _core.judge_many(reversed(mixed), without=without) == one_by_one[::-1]
    assert _core.judge_many(mixed * 40, without=without) == one_by_one * 40


def test_nobody_to_judge() -> None:
    assert _core.judge_many([]) == []
    assert _core.judge_many(iter(())) == []


def test_options_reach_every_judgement() -> None:
    record = _core.ProcessIdentity.current(host_id="here").to_json()
    before_the_reboot = changed(record, boot=OTHER_BOOT)

    judgements = _core.judge_many([before_the_reboot, record], host_id="here", host_id_is_unique=True)

    assert [one.reason for one in judgements] == ["rebooted", "self"]


def test_identities_and_their_text_are_judged_alike(crowd: list[Subject]) -> None:
    records = [subject.record for subject in crowd]

    assert _core.judge_many(map(_core.ProcessIdentity.from_json, records)) == _core.judge_many(records)


def test_an_error_of_the_iterable_is_the_callers() -> None:
    def broken() -> Iterator[None]:
        yield None
        raise KeyError("broken")

    with pytest.raises(KeyError):
        _core.judge_many(broken())


@NEEDS_STRACE
@NEEDS_PIDFD
def test_each_distinct_process_is_probed_once(crowd: list[Subject]) -> None:
    """100,000 records of 50 writers: an outbox after a busy day."""
    records = [subject.record for subject in crowd]
    with Agent() as judge:
        judge.ask("judge_many", records=records)
        with traced(judge, "-e", "trace=pidfd_open") as once:
            judge.ask("judge_many", records=records)
        with traced(judge, "-e", "trace=pidfd_open") as trace:
            answers = judge.ask("judge_all", records=records, times=2_000)

    assert answers == [100_000, 0]
    assert once.calls["pidfd_open"] == 50
    # judge_all asks one by one as well, to compare.
    assert trace.calls["pidfd_open"] == 100


@NEEDS_STRACE
@NEEDS_PIDFS
def test_a_judgement_is_four_calls_and_a_dead_number_one(crowd: list[Subject]) -> None:
    with processes.many_threads() as living, processes.reaped() as dead, Agent() as judge:
        judge.judge(living.record)
        with traced(judge) as alive:
            judge.judge(living.record)
        with traced(judge) as gone:
            judge.judge(dead.record)

    ours = ("pidfd_open", "poll", "ppoll", "close", "fstat", "newfstatat", "statx", "openat", "getpgid", "fstatfs")
    assert sum(alive.calls[name] for name in ours) == 4, alive.lines
    assert alive.calls["pidfd_open"] == alive.calls["close"] == 1
    assert sum(gone.calls[name] for name in ours) == 1, gone.lines
    assert gone.calls["pidfd_open"] == 1


@NEEDS_STRACE
@NEEDS_PIDFS
def test_many_share_one_poll(crowd: list[Subject]) -> None:
    with Agent() as judge:
        judge.judge(crowd[0].record)
        with traced(judge, "-e", "trace=?poll,?ppoll") as trace:
            judge.ask("judge_many", records=[subject.record for subject in crowd])

    assert trace.calls.total() == 1


@NEEDS_PIDFD
@pytest.mark.parametrize("spare", [1, 3, 5, 20])
def test_few_descriptors_give_the_same_answers(
    crowd: list[Subject], mixed: list[str | bytes | None], spare: int
) -> None:
    """Chunks get smaller, down to one."""
    records = [record for record in mixed[:-1] if isinstance(record, str)] + [subject.record for subject in crowd]
    expected = [[one.verdict.value, one.reason] for one in _core.judge_many(records)]
    with Agent() as judge:
        judge.judge(records[0])
        judge.ask("use_up_descriptors", spare=spare)
        answers = judge.ask("judge_many", records=records)

    # Without a unique id three are needed: the pidfd, /proc/PID/stat and, for a mismatch, /proc/self/timens_offsets.
    assert [answer[:2] for answer in answers if spare > 1] == [answer for answer in expected if spare > 1]
    assert not {answer[0] for answer in answers} - {"alive", "gone", "unknown"}


@NEEDS_PIDFD
def test_no_descriptor_at_all_leaves_only_the_dead_certain(crowd: list[Subject]) -> None:
    """Row 15."""
    with processes.reaped() as dead, Agent() as judge:
        judge.judge(dead.record)
        judge.ask("use_up_descriptors", spare=0)
        answers = judge.ask("judge_many", records=[crowd[0].record, dead.record, crowd[1].record])

    assert [answer[:2] for answer in answers] == [["unknown", "no_fds"], ["gone", "no_such_pid"], ["unknown", "no_fds"]]
