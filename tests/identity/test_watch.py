"""Watching one process or many: pinned, so that no number can be mixed up, and told once."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import _core
from tenure.errors import IdentityError
from tests.helpers import independent, processes
from tests.helpers.capabilities import NEEDS_IDENTITY, NEEDS_PID_NAMESPACE, NEEDS_PIDFD, NEEDS_SET_TID
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.processes import Agent, Subject
from tests.helpers.records import OTHER_BOOT, changed, later
from tests.identity.levels import LEVELS, USUAL_LEVELS

pytestmark = NEEDS_IDENTITY


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as one:
        yield one


def identity(subject: Subject | Agent) -> _core.ProcessIdentity:
    return _core.ProcessIdentity.from_json(subject.record)


def reap(agent: Agent) -> None:
    agent.process.kill()
    agent.process.wait(processes.PATIENCE)


@pytest.mark.parametrize("level", USUAL_LEVELS)
def test_a_watch_sees_the_end_before_anybody_reaped(agent: Agent, level: str) -> None:
    with _core.Watch(agent.record, without=LEVELS[level]) as watch:
        assert watch.judgement.verdict.value == "alive"
        assert watch.alive()
        assert not watch.wait(0)
        agent.kill()
        os.waitid(os.P_PID, agent.pid, os.WEXITED | os.WNOWAIT)
        assert watch.wait(processes.PATIENCE)
        assert not watch.alive()
        reap(agent)
        assert not watch.alive()
        assert watch.wait()


@pytest.mark.parametrize("level", USUAL_LEVELS)
def test_waiting_ends_with_the_process(agent: Agent, level: str) -> None:
    with _core.Watch(agent.record, without=LEVELS[level]) as watch:
        assert agent.process.stdin is not None
        agent.process.stdin.close()
        assert watch.wait(processes.PATIENCE)


def test_waiting_ends_with_the_timeout(agent: Agent) -> None:
    with _core.Watch(agent.record) as watch:
        assert not watch.wait(0.01)
        assert watch.alive()


@NEEDS_PIDFD
def test_a_descriptor_turns_readable_when_the_process_ends(agent: Agent) -> None:
    with _core.Watch(agent.record) as watch:
        assert select.select([watch.fileno()], [], [], 0) == ([], [], [])
        assert not os.get_inheritable(watch.fileno())
        agent.kill()
        assert select.select([watch], [], [], processes.PATIENCE)[0] == [watch]


def test_where_there_are_no_pidfds_there_is_no_descriptor_to_wait_on(agent: Agent) -> None:
    with _core.Watch(agent.record, without=LEVELS["proc"]) as watch:
        assert watch.alive()
        with pytest.raises(IdentityError):
            watch.fileno()


@pytest.mark.parametrize("level", USUAL_LEVELS)
def test_who_is_gone_already_is_watched_as_gone(level: str) -> None:
    with processes.zombie() as zombie, processes.reaped() as reaped:
        for subject in (zombie, reaped):
            with _core.Watch(subject.record, without=LEVELS[level]) as watch:
                assert watch.judgement.verdict.value == "gone"
                assert not watch.alive()
                assert watch.wait()
                with pytest.raises(IdentityError):
                    watch.fileno()


def test_who_cannot_be_judged_cannot_be_watched() -> None:
    with processes.sleeping() as subject:
        for record, reason in (
            (changed(subject.record, boot=OTHER_BOOT), "other_boot"),
            (changed(subject.record, pid=0), "malformed"),
            (None, "no_identity"),
        ):
            with pytest.raises(IdentityError) as caught:
                _core.Watch(record)
            assert vars(caught.value)["reason"] == reason


def test_a_closed_watch_says_so(agent: Agent) -> None:
    watch = _core.Watch(agent.record)
    watch.close()
    watch.close()

    for use in (watch.alive, watch.wait, watch.fileno, watch.__enter__):
        with pytest.raises(ValueError):
            use()


def test_a_watch_leaves_no_descriptor_behind(agent: Agent) -> None:
    _core.judge(agent.record)
    before = sorted(Path("/proc/self/fd").iterdir())
    for _ in range(10):
        with _core.Watch(agent.record) as watch:
            watch.alive()
        _core.Watch(agent.record)
        _core.Watch(later(agent.record, "uniq"))
        _core.Watch(agent.record, without=LEVELS["proc"])
        with _core.WatchSet([identity(agent)]) as watched:
            watched.ended()

    assert sorted(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize("level", USUAL_LEVELS)
def test_a_stopped_process_is_watched_without_being_woken(level: str) -> None:
    with processes.stopped() as subject, _core.Watch(subject.record, without=LEVELS[level]) as watch:
        assert watch.alive()
        assert not watch.wait(0.001)
        assert independent.state(subject.pid) == "T"


@pytest.mark.parametrize("level", USUAL_LEVELS)
def test_a_leader_that_left_its_threads_behind_is_watched_to_its_end(level: str) -> None:
    with processes.leader_exited() as subject, _core.Watch(subject.record, without=LEVELS[level]) as watch:
        assert watch.alive()
        os.kill(subject.pid, 9)
        assert watch.wait(processes.PATIENCE)


@NEEDS_SET_TID
@NEEDS_PID_NAMESPACE
@pytest.mark.parametrize("level", USUAL_LEVELS)
def test_a_number_given_out_again_does_not_bring_the_watched_back(level: str) -> None:
    with Agent(OWN_PROC) as agent:
        answers = agent.ask("watch_through_reuse", pid=4321, without=LEVELS[level])

    assert answers == [True, False, False, True]


@NEEDS_PIDFD
def test_a_watch_stays_true_in_a_forked_child(agent: Agent) -> None:
    with Agent() as judge:
        assert judge.ask("watch_across_fork", record=agent.record) == [True, True]


def test_a_set_tells_each_end_once() -> None:
    with Agent() as one, Agent() as two, Agent() as three:
        members = [identity(agent) for agent in (one, two, three)]
        with _core.WatchSet(members) as watched:
            assert (len(watched), watched.ended()) == (3, [])
            reap(two)
            assert watched.ended(processes.PATIENCE) == [members[1]]
            assert watched.ended() == []
            assert (len(watched), members[0] in watched, members[1] in watched) == (2, True, False)
            reap(one)
            reap(three)
            ended = watched.ended(processes.PATIENCE)
            ended += watched.ended()
            assert sorted(map(hash, ended)) == sorted(hash(members[number]) for number in (0, 2))


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_set_sees_members_beyond_its_limit(limit: int) -> None:
    with Agent() as one, Agent() as two, Agent() as three:
        agents = [one, two, three]
        with _core.WatchSet(map(identity, agents), limit=limit) as watched:
            assert len(watched) == 3
            for agent in agents:
                reap(agent)
            ended = watched.ended()
            assert {member.pid for member in ended} == {agent.pid for agent in agents}
            assert watched.ended() == []


def test_a_set_waits_for_members_beyond_its_limit(agent: Agent) -> None:
    with _core.WatchSet([identity(agent)], limit=0) as watched:
        assert agent.process.stdin is not None
        agent.process.stdin.close()
        assert watched.ended(processes.PATIENCE) == [identity(agent)]


def test_a_set_takes_in_only_what_can_be_watched(agent: Agent) -> None:
    unknowable = _core.ProcessIdentity.from_json(changed(agent.record, boot=OTHER_BOOT))
    with processes.reaped() as subject, _core.WatchSet() as watched:
        assert watched.add(identity(agent)).verdict.value == "alive"
        assert watched.add(identity(agent)).verdict.value == "alive"
        assert watched.add(unknowable).verdict.value == "unknown"
        assert unknowable not in watched
        assert watched.add(identity(subject)).verdict.value == "gone"
        assert watched.ended() == [identity(subject)]
        assert watched.ended() == []
        assert len(watched) == 1
        watched.discard(identity(agent))
        watched.discard(identity(agent))
        assert len(watched) == 0
        reap(agent)
        assert watched.ended() == []


def test_a_set_tells_of_any_number_of_ends_at_once(agent: Agent) -> None:
    """More than one epoll_wait may hand out; a process that is described by many records will do."""
    members = {_core.ProcessIdentity.from_json(changed(agent.record, nonce=f"{number:032x}")) for number in range(600)}
    with _core.WatchSet(members, limit=1_000) as watched:
        assert len(watched) == 600
        reap(agent)
        assert set(watched.ended()) == members
        assert len(watched) == 0


@NEEDS_PIDFD
def test_a_set_has_one_descriptor_for_all(agent: Agent) -> None:
    with _core.WatchSet([identity(agent)]) as watched:
        assert select.select([watched.fileno()], [], [], 0)[0] == []
        agent.kill()
        assert select.select([watched.fileno()], [], [], processes.PATIENCE)[0] == [watched.fileno()]
        assert watched.ended() == [identity(agent)]
        assert select.select([watched.fileno()], [], [], 0)[0] == []


def test_a_closed_set_says_so(agent: Agent) -> None:
    watched = _core.WatchSet([identity(agent)])
    watched.close()
    watched.close()

    with pytest.raises(ValueError):
        watched.ended()
    with pytest.raises(ValueError):
        watched.add(identity(agent))
