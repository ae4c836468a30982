"""A forked child is somebody else, with or without the hooks that tell it so: case B46 where it concerns judging."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tenure import _core
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_MOUNT, NEEDS_PID_NAMESPACE, NEEDS_PIDFS
from tests.helpers.independent import Seen
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.processes import Agent
from tests.helpers.records import OTHER_BOOT, changed, fields, later
from tests.identity.levels import judged_here

pytestmark = NEEDS_LINUX_PROC

WAYS = ["spawn", "spawn_by_raw_clone"]


def forked(agent: Agent, way: str) -> dict[str, Any]:
    """The record of the agent, taken first, and what its child says."""
    parent = agent.record
    return {"parent": parent, **agent.ask(way)}


@pytest.mark.parametrize("way", WAYS)
def test_a_child_has_an_identity_of_its_own(way: str) -> None:
    """The raw clone runs no pthread_atfork handler, as CRIU, some runtimes and some sandboxes do."""
    with Agent() as agent:
        told = forked(agent, way)
        seen = Seen.of(told["pid"])
        child, parent = fields(told["record"]), fields(told["parent"])

        assert (child["pid"], child["start"]) == (seen.pid, str(seen.start))
        assert child.get("uniq", "None") == str(seen.uniq)
        assert child["nonce"] != parent["nonce"]
        assert [child.get(name) for name in ("boot", "ns", "host")] == [
            parent.get(name) for name in ("boot", "ns", "host")
        ]


@pytest.mark.parametrize("way", WAYS)
def test_the_parents_record_is_not_current_in_the_child(way: str) -> None:
    with Agent() as agent:
        told = forked(agent, way)

        assert told["parent_record_is_current_in_the_child"] is False
        assert agent.ask("is_current", record=told["parent"]) is True
        assert agent.ask("is_current", record=told["record"]) is False


@pytest.mark.parametrize("way", WAYS)
def test_parent_and_child_are_judged_apart(way: str) -> None:
    with Agent() as agent:
        told = forked(agent, way)
        assert judged_here(told["record"])[0] == judged_here(told["parent"])[0] == "alive"
        assert agent.judge(told["record"])[1] != "self"
        agent.ask("end", pid=told["pid"])

        assert judged_here(told["record"]) == ("gone", "no_such_pid")
        assert agent.judge(told["parent"]) == ("alive", "self")


@pytest.mark.parametrize("way", WAYS)
def test_a_child_does_not_take_the_parent_for_itself(way: str) -> None:
    with Agent() as agent:
        agent.judge(agent.record)
        verdict = agent.ask("judged_in_a_fork", record=agent.record, raw=way != "spawn")

    assert verdict[:2] in (["alive", "same_unique_id"], ["alive", "same_start_time"])


@NEEDS_PID_NAMESPACE
@pytest.mark.parametrize("way", WAYS)
def test_what_was_learnt_about_proc_is_void_in_a_child_of_another_namespace(way: str) -> None:
    """The child of a process that called unshare has the parent's /proc, which is foreign to it."""
    with Agent(OWN_PROC) as agent:
        agent.judge(changed(agent.record, nonce=None), without=["handle", "pidfs"])
        told = agent.ask("record_in_a_new_pid_namespace", raw=way != "spawn")

    record = json.loads(told["record"])
    assert record["pid"] == 1
    assert record["ns"] != fields(told["parent"])["ns"]
    assert "start" not in record
    assert told["judged"][:2] == ["unknown", "foreign_or_missing_proc"]


def test_one_process_has_one_nonce() -> None:
    first, second = _core.ProcessIdentity.current(), _core.ProcessIdentity.current(host_id="another name")

    assert first.nonce == second.nonce
    assert first == _core.ProcessIdentity.current()


def test_nonces_do_not_repeat() -> None:
    with Agent() as agent:
        nonces = set()
        for _ in range(20):
            child = agent.spawn()
            nonces.add(fields(child.record)["nonce"])
            agent.ask("end", pid=child.pid)

    assert len(nonces) == 20


def test_a_restored_checkpoint_is_not_current() -> None:
    """CRIU restores the memory, and with it the cached identity, into a process with another start time."""
    mine = changed(_core.ProcessIdentity.current().to_json(), uniq=None)

    assert _core.ProcessIdentity.from_json(mine).is_current()
    assert not _core.ProcessIdentity.from_json(later(mine, "start")).is_current()


@NEEDS_PIDFS
def test_a_checkpoint_restored_within_the_same_tick_is_not_current() -> None:
    """... and with another inode."""
    mine = _core.ProcessIdentity.current().to_json()

    assert _core.ProcessIdentity.from_json(mine).is_current()
    assert not _core.ProcessIdentity.from_json(later(mine, "uniq")).is_current()


@NEEDS_MOUNT
def test_a_checkpoint_restored_on_another_machine_is_not_current(tmp_path: Path) -> None:
    """The boot id is read anew and not remembered."""
    other = tmp_path / "boot_id"
    other.write_text(OTHER_BOOT + "\n", "ascii")
    with Agent(("unshare", "--mount")) as agent:
        assert agent.ask("is_current", record=agent.record) is True
        mount = ["mount", "--bind", str(other), "/proc/sys/kernel/random/boot_id"]
        subprocess.run(["nsenter", "--mount", "--target", str(agent.pid), *mount], check=True, timeout=20)
        assert agent.ask("is_current", record=agent.record) is False


@pytest.mark.parametrize("changes", [{"boot": OTHER_BOOT}, {"ns": "4026599999"}, {"pid": 1}])
def test_another_boot_namespace_or_number_is_not_current(changes: dict[str, Any]) -> None:
    mine = _core.ProcessIdentity.current().to_json()

    assert not _core.ProcessIdentity.from_json(changed(mine, **changes)).is_current()
