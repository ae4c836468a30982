"""
What a judgement says when the kernel does not answer: the rows of the decision table that no process can stage.

strace makes single system calls of a running judge fail. The judge is warm: its surroundings were looked at before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.helpers import processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_PIDFD, NEEDS_PIDFS, NEEDS_STRACE
from tests.helpers.processes import Agent, AgentError, Subject
from tests.helpers.records import changed, fields
from tests.helpers.tracing import failing, traced
from tests.identity.levels import LEVELS, judged_here

pytestmark = [NEEDS_LINUX_PROC, NEEDS_PIDFD, NEEDS_STRACE]

FSTAT = "?fstat,?newfstatat,?statx"
POLL = "?poll,?ppoll"
OPEN = "?open,?openat,?openat2"
READ = "?read,?pread64"
OUT_OF_DESCRIPTORS = ["EMFILE", "ENFILE", "ENOMEM"]


@pytest.fixture
def judge() -> Iterator[Agent]:
    with Agent() as agent:
        assert agent.judge(agent.record, without=["handle"]) == ("alive", "self")
        # Not by its nonce alone: every path has been taken once.
        for level in LEVELS.values():
            agent.judge(changed(agent.record, nonce=None), without=level)
        yield agent


@pytest.fixture(scope="module")
def living() -> Iterator[Subject]:
    with processes.sleeping() as subject:
        yield subject


@pytest.fixture(scope="module")
def dead() -> Iterator[Subject]:
    with processes.reaped() as subject:
        yield subject


@pytest.mark.parametrize("error", OUT_OF_DESCRIPTORS)
def test_without_descriptors_a_dead_number_is_still_gone(judge: Agent, dead: Subject, error: str) -> None:
    """Row 15: getpgid needs no descriptor."""
    with failing(judge, "pidfd_open", error):
        answer = judge.judge(dead.record)

    assert answer == ("gone", "no_such_pid")


@pytest.mark.parametrize("error", OUT_OF_DESCRIPTORS)
def test_without_descriptors_a_living_process_is_unknown(judge: Agent, living: Subject, error: str) -> None:
    """Row 15."""
    with failing(judge, "pidfd_open", error):
        answer = judge.judge(living.record)

    assert answer == ("unknown", "no_fds")


@pytest.mark.parametrize("error", OUT_OF_DESCRIPTORS)
def test_only_no_such_process_from_getpgid_proves_death(judge: Agent, dead: Subject, error: str) -> None:
    """Row 15: a security module may refuse getpgid."""
    injections = ("-e", f"inject=pidfd_open:error={error}", "-e", "inject=getpgid:error=EPERM")
    with traced(judge, "-e", "trace=pidfd_open,getpgid", *injections):
        answer = judge.judge(dead.record)

    assert answer == ("unknown", "no_fds")


def test_a_number_that_the_kernel_calls_a_thread_is_gone(judge: Agent, living: Subject) -> None:
    """Row 14."""
    with failing(judge, "pidfd_open", "ENOENT"):
        answer = judge.judge(living.record)

    assert answer == ("gone", "pid_is_now_a_thread")


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS", "EINVAL"])
def test_refused_pidfds_leave_the_start_time(judge: Agent, living: Subject, error: str) -> None:
    """Rows 20 to 30: seccomp, an old kernel, and EINVAL for the number of a thread or a race with the reaping."""
    with failing(judge, "pidfd_open", error):
        answer = judge.judge(living.record)

    assert answer == ("alive", "same_start_time")


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS", "EINVAL"])
def test_refused_pidfds_do_not_keep_a_dead_process_alive(judge: Agent, dead: Subject, error: str) -> None:
    """Row 23."""
    with failing(judge, "pidfd_open", error):
        answer = judge.judge(dead.record)

    assert answer == ("gone", "no_such_pid")


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS"])
def test_pidfds_refused_from_the_start_leave_the_start_time(living: Subject, error: str) -> None:
    """Rows 20 to 30: the self-test decides, with the very errors of seccomp and of old kernels."""
    with Agent() as judge, failing(judge, "pidfd_open", error):
        capabilities = judge.ask("capabilities")
        answer = judge.ask("judge", record=living.record)

    assert capabilities == ["proc"]
    assert answer[:3] == ["alive", "same_start_time", "proc"]


def test_descriptors_that_ran_out_at_the_self_test_are_asked_for_again(living: Subject) -> None:
    """Row 15: EMFILE says nothing about the kernel. Until then the process cannot be identified, or judges as in row 15."""
    with Agent() as judge:
        with failing(judge, "pidfd_open", "EMFILE"), contextlib.suppress(AgentError):
            assert judge.judge(living.record)[0] != "gone"
        after = judge.ask("judge", record=living.record)

    assert after[:2] in (["alive", "same_unique_id"], ["alive", "same_start_time"])
    assert after[2] in ("pidfs", "pidfd")


@pytest.mark.parametrize("spare", range(6))
def test_a_self_test_that_lacked_descriptors_is_not_remembered(spare: int) -> None:
    """Row 15: a record without namespace or start time, written for the rest of a long life, would be UNKNOWN to all."""
    with Agent() as usual, Agent() as starved:
        starved.ask("use_up_descriptors", spare=spare)
        with contextlib.suppress(AgentError):
            starved.ask("current_record")
        starved.ask("give_back_descriptors", count=20)

        assert fields(starved.ask("current_record")).keys() == fields(usual.record).keys()
        assert starved.ask("capabilities") == usual.ask("capabilities")
        assert starved.judge(usual.record) == judged_here(usual.record)


@NEEDS_PIDFS
@pytest.mark.parametrize(("calls", "error"), [(FSTAT, "EIO"), (FSTAT, "EACCES"), (POLL, "ENOMEM"), (POLL, "EINVAL")])
def test_a_pidfd_that_does_not_answer_proves_nothing(judge: Agent, living: Subject, calls: str, error: str) -> None:
    """Row 19."""
    with failing(judge, calls, error):
        answer = judge.judge(living.record)

    assert answer == ("unknown", "probe_failed")


@NEEDS_PIDFS
def test_an_interrupted_poll_is_not_a_verdict(judge: Agent, living: Subject) -> None:
    """Row 19: once interrupted, poll is asked again."""
    with traced(judge, "-e", f"trace={POLL}", "-e", f"inject={POLL}:error=EINTR:when=1"):
        answer = judge.judge(living.record)

    assert answer == ("alive", "same_unique_id")


@pytest.mark.parametrize("error", ["ENOENT", "EPERM", "EACCES"])
@pytest.mark.parametrize("level", ["pidfd", "proc"])
def test_a_hidden_stat_file_of_a_living_process_is_unknown(
    judge: Agent, living: Subject, level: str, error: str
) -> None:
    """Rows 23 and 24."""
    with failing(judge, OPEN, error):
        answer = judge.judge(living.record, without=LEVELS[level])

    assert answer == ("unknown", "hidden")


@pytest.mark.parametrize("error", ["EPERM", "EACCES"])
def test_a_refused_stat_file_of_a_dead_process_is_no_proof(judge: Agent, dead: Subject, error: str) -> None:
    """Row 24."""
    with failing(judge, OPEN, error):
        answer = judge.judge(dead.record, without=LEVELS["proc"])

    assert answer == ("unknown", "hidden")


@pytest.mark.parametrize("error", ["EPERM", "EACCES", "ENOSYS"])
def test_a_missing_stat_file_needs_getpgid_to_say_no_such_process(judge: Agent, dead: Subject, error: str) -> None:
    """Row 23: ENOENT from /proc is not death."""
    with failing(judge, "getpgid", error):
        answer = judge.judge(dead.record, without=LEVELS["proc"])

    assert answer == ("unknown", "hidden")


@pytest.mark.parametrize("level", ["pidfd", "proc"])
def test_a_process_that_ends_while_its_stat_is_read_is_gone(judge: Agent, living: Subject, level: str) -> None:
    """Row 25. The agent reads its requests from descriptor 0, so only reads of its /proc descriptors may fail."""
    with traced(judge, "-P", f"/proc/{living.pid}/stat", "-e", f"inject={READ}:error=ESRCH", "-e", f"trace={READ}"):
        answer = judge.judge(living.record, without=LEVELS[level])

    assert answer == ("gone", "no_such_pid")


@pytest.mark.parametrize("error", ["EIO", "EPERM", "EACCES"])
def test_a_stat_that_cannot_be_read_never_proves_death(judge: Agent, living: Subject, error: str) -> None:
    """Rows 24 and 19."""
    with traced(judge, "-P", f"/proc/{living.pid}/stat", "-e", f"inject={READ}:error={error}", "-e", f"trace={READ}"):
        verdict, _ = judge.judge(living.record, without=LEVELS["proc"])

    assert verdict == "unknown"
