"""No way of asking sends a signal, not even number 0: what a whole session of judging does, as strace sees it."""

from __future__ import annotations

import contextlib

import pytest

from tests.helpers import independent, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_STRACE
from tests.helpers.processes import Agent
from tests.helpers.records import OTHER_BOOT, changed, later
from tests.helpers.tracing import traced
from tests.identity.levels import EVERY_LEVEL, LEVELS

pytestmark = [NEEDS_LINUX_PROC, NEEDS_STRACE]

SIGNALS = "?kill,?tkill,?tgkill,?pidfd_send_signal,?rt_sigqueueinfo,?rt_tgsigqueueinfo,?ptrace,?process_madvise"


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_a_whole_session_sends_none(level: str) -> None:
    with contextlib.ExitStack() as stack:
        stopped = stack.enter_context(processes.stopped())
        others = [
            stack.enter_context(make())
            for make in (processes.sleeping, processes.zombie, processes.reaped, processes.leader_exited)
        ]
        records = [subject.record for subject in (stopped, *others)]
        records += [later(stopped.record, "start"), changed(stopped.record, uniq=None), changed(stopped.record, pid=1)]
        records += [changed(stopped.record, boot=OTHER_BOOT), changed(stopped.record, pid=-1), "", "{}"]
        judge = stack.enter_context(Agent())
        with traced(judge, "-e", f"trace={SIGNALS}", "-e", "signal=none") as trace:
            verdicts = judge.ask("everything", records=records, without=LEVELS[level])
        state = independent.state(stopped.pid)

    assert len(verdicts) == 2 * len(records)
    assert trace.calls.total() == 0, trace.lines
    assert state == "T"


def test_the_trace_would_show_one() -> None:
    """That the test above can fail: the very same options see a real signal."""
    with Agent() as judge:
        child = judge.spawn()
        with traced(judge, "-e", f"trace={SIGNALS}", "-e", "signal=none") as trace:
            judge.ask("end", pid=child.pid)

    assert trace.calls == {"kill": 1}
