"""The rows of the decision table that the record alone decides, 1 to 7 and 12, as claims. The kernel's rows: test_kernel_rows.py."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tenure import _core
from tests.helpers import namespaces, processes
from tests.helpers.capabilities import (
    NEEDS_IDENTITY,
    NEEDS_MACHINE_ID,
    NEEDS_MOUNT,
    NEEDS_NS_ID,
    NEEDS_PIDFS,
    NEEDS_SUBSET_PID,
)
from tests.helpers.processes import Agent
from tests.helpers.records import OTHER_BOOT, OTHER_HOST, OTHER_NONCE, changed, fields, later
from tests.identity.levels import judged_here

pytestmark = NEEDS_IDENTITY

OURS = "rack 7, slot 3"


@pytest.fixture(scope="module")
def record() -> str:
    """Of a process that is gone: whatever keeps it from being judged stands before the kernel is asked."""
    with processes.reaped() as subject:
        assert judged_here(subject.record) == ("gone", "no_such_pid")
        return subject.record


@pytest.fixture(scope="module")
def operator_record() -> str:
    with Agent() as agent:
        return str(agent.ask("current_record", host_id=OURS))


@pytest.mark.parametrize("pid", [0, -1, -4242, 2**31, 2**32, 2**63, None])
def test_a_number_that_no_process_can_have_is_unknown(record: str, pid: int | None) -> None:
    """Row 1. getpgid(0) succeeds and kill(-1) would reach everybody, so these never get to the kernel."""
    assert judged_here(changed(record, pid=pid)) == ("unknown", "malformed")


@pytest.mark.parametrize("version", [2, 3, 255, 256, 2**40])
def test_a_newer_record_is_not_called_malformed(record: str, version: int) -> None:
    """Row 1."""
    assert judged_here(changed(record, v=version)) == ("unknown", "version")


def test_a_newer_record_may_look_like_anything_else() -> None:
    """Row 1: old readers treat a newer record as opaque."""
    assert judged_here('{"v":2,"pid":"no number","start":[],"who":{}}') == ("unknown", "version")


def test_no_record_is_no_identity() -> None:
    """Row 1, and case B02 where a lock holds no identity."""
    assert judged_here(None) == ("unknown", "no_identity")


@pytest.mark.parametrize("system", ["macos", "windows", "freebsd", "plan9"])
def test_a_record_of_another_system_is_unknown(record: str, system: str) -> None:
    """Row 2."""
    assert judged_here(changed(record, os=system)) == ("unknown", "other_os")


@NEEDS_MACHINE_ID
def test_another_host_is_unknown_even_when_its_pid_is_missing_here(record: str) -> None:
    """Row 3, case B19."""
    assert judged_here(changed(record, host=OTHER_HOST)) == ("unknown", "other_host")


def test_another_operator_host_is_unknown(operator_record: str) -> None:
    """Row 3."""
    assert judged_here(operator_record, host_id="another") == ("unknown", "other_host")


def test_a_host_missing_from_the_record_is_no_evidence(record: str) -> None:
    """Row 3."""
    assert judged_here(changed(record, host=None), host_id=OURS) == ("gone", "no_such_pid")


@NEEDS_MOUNT
def test_a_host_missing_here_is_no_evidence(record: str) -> None:
    """Row 3: containers often have no machine id."""
    with namespaces.without_machine_id() as agent:
        assert "host" not in fields(agent.record)
        assert agent.judge(changed(record, host=OTHER_HOST)) == ("gone", "no_such_pid")


@NEEDS_MACHINE_ID
def test_host_ids_of_different_kinds_are_different_hosts(record: str, operator_record: str) -> None:
    """Row 3: a machine id cannot confirm an operator's word, nor the other way round."""
    assert judged_here(operator_record) == ("unknown", "other_host")
    assert judged_here(record, host_id=OURS) == ("unknown", "other_host")


@NEEDS_MACHINE_ID
def test_an_operator_cannot_claim_a_machine_id_by_spelling_it(record: str) -> None:
    """Row 3: what the record says about who set the host counts, not how the id looks."""
    assert judged_here(record, host_id=fields(record)["host"]) == ("unknown", "other_host")


def test_the_host_is_compared_before_the_boot(operator_record: str) -> None:
    """Rows 3 to 5: the first that matches wins."""
    elsewhere = changed(operator_record, boot=OTHER_BOOT)

    assert judged_here(elsewhere, host_id="another", host_id_is_unique=True) == ("unknown", "other_host")


def test_a_record_without_boot_id_is_unknown(record: str) -> None:
    """Row 4."""
    assert judged_here(changed(record, boot=None)) == ("unknown", "no_boot_id")


@NEEDS_SUBSET_PID
def test_a_prober_without_boot_id_is_unknown(record: str) -> None:
    """Row 4: a /proc mounted with subset=pid has no /proc/sys."""
    with Agent(namespaces.with_proc_options("subset=pid")) as agent:
        assert agent.judge(record) == ("unknown", "no_boot_id")


def test_another_boot_alone_is_unknown(record: str) -> None:
    """Row 5, case B06: containers of LXC and systemd-nspawn have invented boot ids."""
    assert judged_here(changed(record, boot=OTHER_BOOT)) == ("unknown", "other_boot")


def test_another_boot_of_a_host_that_the_operator_calls_unique_is_gone(operator_record: str) -> None:
    """Row 5, case B06, and the pid is alive or not: it does not matter."""
    before_the_reboot = changed(operator_record, boot=OTHER_BOOT)

    judgement = _core.judge(before_the_reboot, host_id=OURS, host_id_is_unique=True)

    assert (judgement.verdict.value, judgement.reason, judgement.evidence) == ("gone", "rebooted", "record")


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        pytest.param({}, {"host_id": OURS}, id="not-called-unique"),
        pytest.param({}, {"host_id": OURS, "host_id_is_unique": False}, id="called-not-unique"),
        pytest.param({"host": None}, {"host_id": OURS, "host_id_is_unique": True}, id="record-has-no-host"),
        pytest.param(
            {"host": None, "host_by": None}, {"host_id": OURS, "host_id_is_unique": True}, id="no-host-at-all"
        ),
        pytest.param({"host": None, "host_by": None}, {"host_id_is_unique": True}, id="no-host-on-record-machine-here"),
        pytest.param({"host": "another"}, {"host_id": OURS, "host_id_is_unique": True}, id="another-host"),
        pytest.param({"host": OURS.upper()}, {"host_id": OURS, "host_id_is_unique": True}, id="another-case"),
        pytest.param({"host": OURS + " "}, {"host_id": OURS, "host_id_is_unique": True}, id="a-blank-more"),
        pytest.param({"host_by": None}, {"host_id": OURS, "host_id_is_unique": True}, id="not-set-by-an-operator"),
    ],
)
def test_a_reboot_is_proven_by_nothing_less(
    operator_record: str, changes: dict[str, Any], options: dict[str, Any]
) -> None:
    """Row 5: unique, and both hosts set by an operator, and equal."""
    verdict, reason = judged_here(changed(operator_record, boot=OTHER_BOOT, **changes), **options)

    assert verdict == "unknown"
    assert reason in ("other_boot", "other_host", "malformed")


@NEEDS_MACHINE_ID
def test_an_equal_machine_id_never_proves_a_reboot(record: str) -> None:
    """Row 5: machine ids are copied with images, whatever is said about uniqueness."""
    assert judged_here(changed(record, boot=OTHER_BOOT), host_id_is_unique=True) == ("unknown", "other_boot")


def test_the_same_boot_of_a_unique_host_is_judged_as_usual(operator_record: str) -> None:
    """Row 5 is about another boot only."""
    assert judged_here(operator_record, host_id=OURS, host_id_is_unique=True) == ("gone", "no_such_pid")


@NEEDS_MOUNT
def test_a_boot_id_that_a_container_invented_is_another_boot(record: str) -> None:
    """Row 5: systemd-nspawn and LXC mount a file over boot_id."""
    with (
        namespaces.with_text_over("/proc/sys/kernel/random/boot_id", OTHER_BOOT + "\n") as prefix,
        Agent(prefix) as agent,
    ):
        assert agent.judge(record) == ("unknown", "other_boot")
        assert agent.judge(agent.record) == ("alive", "self")


def test_a_process_knows_itself_by_its_nonce() -> None:
    """Row 6: nothing is asked, so it holds without any evidence."""
    mine = _core.ProcessIdentity.current().to_json()

    judgement = _core.judge(mine, without=["handle", "pidfs", "pidfd", "proc"])

    assert (judgement.verdict.value, judgement.reason, judgement.evidence) == ("alive", "self", "record")


def test_the_nonce_of_another_number_is_not_oneself(record: str) -> None:
    """Row 6: a forked child has a parent's record in its memory."""
    nonce = fields(_core.ProcessIdentity.current().to_json())["nonce"]

    assert judged_here(changed(record, nonce=nonce)) == ("gone", "no_such_pid")


@NEEDS_PIDFS
def test_ones_own_number_without_ones_nonce_is_judged_like_any_other() -> None:
    """Row 6, case B01: the number of a predecessor in a container restarted in place."""
    mine = _core.ProcessIdentity.current().to_json()

    assert judged_here(changed(mine, nonce=OTHER_NONCE)) == ("alive", "same_unique_id")
    assert judged_here(changed(later(mine, "uniq", -1), nonce=OTHER_NONCE)) == ("gone", "pid_reused")


def test_a_nonce_does_not_vouch_for_another_boot_or_host() -> None:
    """Rows 3 to 6, case B22: the record of one's own number on another host is not one's own."""
    mine = _core.ProcessIdentity.current(host_id=OURS).to_json()

    assert judged_here(mine, host_id="another") == ("unknown", "other_host")
    assert judged_here(changed(mine, boot=OTHER_BOOT), host_id=OURS) == ("unknown", "other_boot")


def test_a_record_without_pid_namespace_is_unknown(record: str) -> None:
    """Row 7."""
    assert judged_here(changed(record, ns=None)) == ("unknown", "no_pid_namespace")


@NEEDS_NS_ID
@pytest.mark.parametrize("by", [-1, 1])
def test_a_reused_inode_of_the_namespace_proves_that_all_its_processes_are_dead(by: int) -> None:
    """Row 12, case B01: decided before the kernel could find the number alive."""
    with processes.sleeping() as subject:
        assert judged_here(later(subject.record, "ns_id", by)) == ("gone", "namespace_gone")


def test_a_missing_namespace_id_is_no_evidence(record: str) -> None:
    """Row 12: kernels before 6.18 have none."""
    assert judged_here(changed(record, ns_id=None)) == ("gone", "no_such_pid")


def test_a_bare_pid_file_is_never_alive() -> None:
    """Case B02: every container has a living pid 1."""
    for text in ("1", "1\n", str(os.getpid())):
        assert judged_here(text)[0] == "unknown"


def test_the_host_name_never_enters_the_judgement(record: str) -> None:
    """Cases B11 and B12: two machines may share one."""
    named = changed(record, hostname="elsewhere", host_name="elsewhere")

    assert judged_here(named) == ("gone", "no_such_pid")
