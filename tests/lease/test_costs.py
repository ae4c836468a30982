"""What a lease asks of the system, counted: syncs, and that nobody is ever signalled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_STRACE
from tests.helpers.processes import Agent
from tests.helpers.tracing import Trace, traced

pytestmark = [NEEDS_LINUX_PROC, NEEDS_STRACE]

SYNCS = "fsync,fdatasync,sync,syncfs,sync_file_range,msync"
SIGNALS = "kill,tkill,tgkill,rt_sigqueueinfo,rt_tgsigqueueinfo,pidfd_send_signal"
TIMES = 5


def counted(trace: Trace) -> dict[str, int]:
    # strace(1) says so in a line of its own when the traced process is signalled.
    assert not [line for line in trace.lines if "--- SIG" in line]
    return dict(trace.calls)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    """A process that has taken and released the lease once, so that the store and its directories are there."""
    made = Agent()
    assert made.ask("take", store=str(tmp_path / "store"))["fence"] == 1
    made.ask("release_hold")
    return made


def test_an_acquire_and_release_syncs_its_claim_and_the_name_of_it_and_nothing_else(
    tmp_path: Path, agent: Agent
) -> None:
    with agent, traced(agent, "-e", f"trace={SYNCS}") as trace:
        for fence in range(2, 2 + TIMES):
            assert agent.ask("take", store=str(tmp_path / "store"))["fence"] == fence
            agent.ask("release_hold")

    assert counted(trace) == {"fsync": 2 * TIMES}


def test_an_acquire_and_release_opens_each_thing_once_or_nearly_so(tmp_path: Path, agent: Agent) -> None:
    """
    The directories of claims, beats and lifelines, by descriptor and without following a link; the claim of the last holder, its
    beat and its lifeline; a lifeline, a temporary file and a beat of its own.
    """
    with agent, traced(agent, "-e", "trace=openat,clone3,?clone") as trace:
        for fence in range(2, 2 + TIMES):
            assert agent.ask("take", store=str(tmp_path / "store"))["fence"] == fence
            agent.ask("release_hold")

    calls = counted(trace)
    assert calls.pop("openat") <= 20 * TIMES
    assert not calls, "and starts no thread"


def test_renewals_and_checks_sync_nothing(tmp_path: Path, agent: Agent) -> None:
    """After a power cut the holder is dead anyway."""
    with agent:
        # The pulse beats too, every 0.1 s.
        agent.ask("take", store=str(tmp_path / "store"), ttl=0.3)
        with traced(agent, "-e", f"trace={SYNCS},pwrite64") as trace:
            for _ in range(TIMES):
                assert agent.ask("renew_hold") == "ok"
                assert agent.ask("check_hold") == "ok"

        calls = counted(trace)
        assert calls.pop("pwrite64") >= TIMES, "strace saw the renewals"
        assert not calls


def test_looking_and_waiting_sync_nothing(tmp_path: Path, agent: Agent) -> None:
    store = str(tmp_path / "store")
    with agent, Agent() as holder:
        holder.ask("take", store=store)
        with traced(agent, "-e", f"trace={SYNCS}") as trace:
            assert agent.ask("look_at", store=store)["state"] == "held"
            assert agent.ask("take", store=store, timeout=0.2)["kind"] == "writer_busy"

    assert not counted(trace)


def test_nobody_is_signalled_from_the_first_look_to_the_takeover_of_a_killed_holder(
    tmp_path: Path, agent: Agent
) -> None:
    """A signal, also the one that does nothing, disturbs: it wakes, and it may end what the asker did not mean."""
    store = str(tmp_path / "store")
    with agent, Agent() as holder:
        with traced(agent, "-e", f"trace={SIGNALS}") as trace:
            agent.ask("take", store=store, timeout=1.0)
            agent.ask("renew_hold")
            agent.ask("check_hold")
            agent.ask("release_hold")
            holder.ask("take", store=store)
            assert agent.ask("take", store=store, timeout=0.2)["kind"] == "writer_busy"
            holder.kill()
            assert agent.ask("take", store=store, timeout=5.0)["fence"] == 4
            agent.ask("release_hold")

    assert not counted(trace)
