"""
What there is to judge, and from where. A scene is a record, the process behind it (or none), and a judge.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.helpers import namespaces, processes
from tests.helpers.namespaces import FOREIGN_PROC, OWN_PROC
from tests.helpers.processes import Agent, Subject
from tests.helpers.records import OTHER_BOOT, OTHER_HOST, OTHER_NONCE, changed, later
from tests.identity.levels import judged_here


@dataclass(frozen=True)
class Scene:
    record: str
    judge: Callable[..., tuple[str, str]] = judged_here


Maker = Callable[[], AbstractContextManager[Scene]]


def seen_from_here(make: Callable[[], AbstractContextManager[Subject]], **changes: Any) -> Maker:
    """The process of *make*, its record with *changes*, judged by the test's own process."""

    @contextlib.contextmanager
    def scene() -> Iterator[Scene]:
        with make() as subject:
            yield Scene(changed(subject.record, **changes))

    return scene


def seen_by(prober: Callable[[], AbstractContextManager[Agent]], make: Callable[[], Any], **changes: Any) -> Maker:
    """The process of *make*, judged by *prober*."""

    @contextlib.contextmanager
    def scene() -> Iterator[Scene]:
        with make() as subject, prober() as agent:
            yield Scene(changed(subject.record, **changes), agent.judge)

    return scene


def child_of(
    prober: Callable[[], AbstractContextManager[Agent]], *, ended: bool = False, reaped: bool = False, **changes: Any
) -> Maker:
    """A child of *prober*, judged by *prober*."""

    @contextlib.contextmanager
    def scene() -> Iterator[Scene]:
        with prober() as agent:
            child = agent.spawn()
            if ended:
                agent.ask("end", pid=child.pid, reap=reaped)
            yield Scene(changed(child.record, **changes), agent.judge)

    return scene


def itself(**changes: Any) -> Maker:
    """A process that judges a record with its own number."""

    @contextlib.contextmanager
    def scene() -> Iterator[Scene]:
        with Agent() as agent:
            yield Scene(changed(agent.record, **changes), agent.judge)

    return scene


@contextlib.contextmanager
def number_given_to_another() -> Iterator[Scene]:
    """The record of a process that ended, whose number a living sibling has: cases B07 and B37."""
    with processes.sleeping() as subject:
        yield Scene(later(later(subject.record, "start", -1), "uniq", -1))


@contextlib.contextmanager
def predecessor_of_the_judge() -> Iterator[Scene]:
    """The judge has the number that the recorded process had: B01, a container restarted in place."""
    with Agent() as agent:
        yield Scene(changed(later(later(agent.record, "start", -1), "uniq", -1), nonce=OTHER_NONCE), agent.judge)


@contextlib.contextmanager
def inode_of_the_namespace_reused() -> Iterator[Scene]:
    with processes.sleeping() as subject:
        yield Scene(later(subject.record, "ns_id", -1))


def reused(*, same_tick: bool) -> Maker:
    """One number, twice, for real."""

    @contextlib.contextmanager
    def scene() -> Iterator[Scene]:
        with Agent(OWN_PROC) as agent:
            answer = agent.ask("reuse", pid=4321, same_tick=same_tick)
            yield Scene(answer["record"], agent.judge)

    return scene


@contextlib.contextmanager
def between_siblings() -> Iterator[Scene]:
    with Agent(OWN_PROC) as holder, Agent(OWN_PROC) as agent:
        yield Scene(holder.record, agent.judge)


@contextlib.contextmanager
def recorded_below_a_time_namespace() -> Iterator[Scene]:
    with Agent(namespaces.with_boottime_offset(1_000_000)) as agent:
        yield Scene(agent.record)


@contextlib.contextmanager
def prober_that_left_its_time_namespace() -> Iterator[Agent]:
    with Agent() as agent:
        agent.ask("leave_time_namespace")
        yield agent


def prober(*prefix: str) -> Callable[[], AbstractContextManager[Agent]]:
    return lambda: Agent(prefix)


def nobody(proc: str | None = None) -> Callable[[], AbstractContextManager[Agent]]:
    return lambda: namespaces.unprivileged(proc=proc)


below = prober(*OWN_PROC)
with_foreign_proc = prober(*FOREIGN_PROC)

# Their outcomes stand in test_scenes.py.
SCENES: dict[str, Maker] = {
    # the process as it is
    "sleeping": seen_from_here(processes.sleeping),
    "stopped": seen_from_here(processes.stopped),
    "traced": seen_from_here(processes.traced),
    "in-vfork-state-D": seen_from_here(processes.vfork_parent),
    "500-threads": seen_from_here(processes.many_threads),
    "comm-with-parentheses": seen_from_here(lambda: processes.named("a) S 1 (b c")),
    "comm-that-claims-to-be-a-zombie": seen_from_here(lambda: processes.named("a) Z 1 1 (b")),
    "another-user": seen_from_here(processes.of_another_user),
    "executed-another-program": seen_from_here(processes.executed),
    "executed-from-a-thread": seen_from_here(lambda: processes.executed(from_a_thread=True)),
    "leader-exited": seen_from_here(processes.leader_exited),
    "leader-exited-then-all": seen_from_here(processes.leader_exited_then_all),
    "zombie-thread-held-by-a-tracer": seen_from_here(processes.zombie_thread_held_by_a_tracer),
    "zombie": seen_from_here(processes.zombie),
    "zombie-with-comm-that-claims-to-sleep": seen_from_here(lambda: processes.zombie("a) S 1 1 (b")),
    "reaped": seen_from_here(processes.reaped),
    "number-is-now-a-thread": seen_from_here(processes.thread_number_taken),
    "number-given-to-another": number_given_to_another,
    "number-reused": reused(same_tick=False),
    "number-reused-within-one-tick": reused(same_tick=True),
    # the judge itself
    "oneself": itself(),
    "oneself-without-nonce": itself(nonce=None),
    "predecessor-of-the-judge": predecessor_of_the_judge,
    # records with fields missing
    "no-start-living": seen_from_here(processes.sleeping, start=None),
    "no-start-zombie": seen_from_here(processes.zombie, start=None),
    "no-start-reaped": seen_from_here(processes.reaped, start=None),
    "no-uniq-living": seen_from_here(processes.sleeping, uniq=None),
    "no-uniq-leader-exited": seen_from_here(processes.leader_exited, uniq=None),
    "no-uniq-zombie": seen_from_here(processes.zombie, uniq=None),
    "no-uniq-no-start-living": seen_from_here(processes.sleeping, uniq=None, start=None),
    "no-host-living": seen_from_here(processes.sleeping, host=None),
    "no-ns-id-living": seen_from_here(processes.sleeping, ns_id=None),
    "no-namespace": seen_from_here(processes.reaped, ns=None),
    "no-boot": seen_from_here(processes.reaped, boot=None),
    # records from elsewhere
    "other-boot": seen_from_here(processes.reaped, boot=OTHER_BOOT),
    "other-boot-and-number-alive": seen_from_here(processes.sleeping, boot=OTHER_BOOT),
    "other-host": seen_from_here(processes.reaped, host=OTHER_HOST),
    "other-os": seen_from_here(processes.reaped, os="macos"),
    "newer-version": seen_from_here(processes.reaped, v=2),
    "pid-zero": seen_from_here(processes.reaped, pid=0),
    # pid namespaces
    "inode-of-the-namespace-reused": inode_of_the_namespace_reused,
    "below-living": seen_from_here(namespaces.in_child_namespace),
    "below-zombie": seen_from_here(namespaces.zombie_in_child_namespace),
    "below-reaped": seen_from_here(namespaces.gone_from_child_namespace),
    "below-gone-with-its-namespace": seen_from_here(namespaces.gone_with_its_namespace),
    "below-living-no-uniq": seen_from_here(namespaces.in_child_namespace, uniq=None),
    "below-gone-no-uniq": seen_from_here(namespaces.gone_with_its_namespace, uniq=None),
    "above-living": seen_by(below, processes.sleeping),
    "above-reaped": seen_by(below, processes.reaped),
    "sibling-living": between_siblings,
    # a /proc that does not show what there is; a start time, since a record made there has none
    "foreign-proc-living": child_of(with_foreign_proc, start="1"),
    "foreign-proc-zombie": child_of(with_foreign_proc, ended=True, start="1"),
    "foreign-proc-reaped": child_of(with_foreign_proc, ended=True, reaped=True, start="1"),
    "unprivileged-living": seen_by(nobody(), processes.sleeping),
    "unprivileged-zombie": seen_by(nobody(), processes.zombie),
    "hidepid1-living": seen_by(nobody("hidepid=1"), processes.sleeping),
    "hidepid2-living": seen_by(nobody("hidepid=2"), processes.sleeping),
    "hidepid2-zombie": seen_by(nobody("hidepid=2"), processes.zombie),
    "hidepid2-reaped": seen_by(nobody("hidepid=2"), processes.reaped),
    # time namespaces
    "shifted-clock-living": seen_by(prober(*namespaces.with_boottime_offset(1_000_000)), processes.sleeping),
    "shifted-clock-zombie": seen_by(prober(*namespaces.with_boottime_offset(1_000_000)), processes.zombie),
    "recorded-under-a-shifted-clock": recorded_below_a_time_namespace,
    "unknowable-clock-living": seen_by(prober_that_left_its_time_namespace, processes.sleeping),
    "unknowable-clock-reaped": seen_by(prober_that_left_its_time_namespace, processes.reaped),
}
