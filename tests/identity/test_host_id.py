"""Which machine: an operator's word, else a hash of the machine id, else nothing; never a guess."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tenure import _core
from tests.helpers import namespaces
from tests.helpers.capabilities import NEEDS_IDENTITY, NEEDS_MACHINE_ID, NEEDS_MOUNT
from tests.helpers.processes import Agent, AgentError
from tests.helpers.records import OTHER_BOOT, changed, fields

pytestmark = NEEDS_IDENTITY


def host_and_setter(record: str) -> tuple[object, object]:
    return fields(record).get("host"), fields(record).get("host_by")


@NEEDS_MACHINE_ID
def test_fifty_fresh_processes_agree_on_the_host() -> None:
    """Case B21: without a MAC address Python's uuid.getnode invents one per process."""
    hosts = set()
    for _ in range(50):
        with Agent() as agent:
            hosts.add(host_and_setter(agent.record))

    assert len(hosts) == 1
    assert hosts == {(_core.ProcessIdentity.current().host, None)}


@NEEDS_MACHINE_ID
def test_the_machine_id_is_not_given_out() -> None:
    """Source: machine-id(5), which asks for a keyed hash."""
    host = _core.ProcessIdentity.current().host
    assert host is not None

    assert len(host) == 32
    assert int(host, 16) != int(Path("/etc/machine-id").read_text("ascii"), 16)


@NEEDS_MACHINE_ID
@NEEDS_MOUNT
def test_another_machine_id_is_another_host_and_an_equal_one_the_same() -> None:
    own = Path("/etc/machine-id").read_text("ascii")
    with (
        namespaces.with_text_over("/etc/machine-id", "0123456789abcdef" * 2 + "\n") as elsewhere,
        namespaces.with_text_over("/etc/machine-id", own) as same,
        Agent(elsewhere) as other,
        Agent(same) as copy,
    ):
        ours = _core.ProcessIdentity.current().host
        assert fields(other.record)["host"] != ours
        assert fields(copy.record)["host"] == ours
        assert other.judge(copy.record) == ("unknown", "other_host")
        assert copy.judge(changed(other.record, host=None))[0] == "alive"


@NEEDS_MACHINE_ID
@NEEDS_MOUNT
@pytest.mark.parametrize("text", ["", "\n", "uninitialized\n", "too short\n", "g" * 32 + "\n", "0" * 32 + "\n"])
def test_a_machine_id_that_is_none_gives_no_host(text: str) -> None:
    """Case B21; "uninitialized" is what a fresh image holds before its first boot. Source: machine-id(5)."""
    with namespaces.with_text_over("/etc/machine-id", text) as prefix, Agent(prefix) as agent:
        assert host_and_setter(agent.record) == (None, None)
        assert agent.judge(agent.record) == ("alive", "self")


@NEEDS_MOUNT
def test_without_any_machine_id_there_is_no_host_and_judging_goes_on() -> None:
    """Case B21: absence is no evidence."""
    with namespaces.without_machine_id() as agent, Agent() as other:
        assert host_and_setter(agent.record) == (None, None)
        assert agent.judge(other.record)[0] == "alive"
        assert other.judge(agent.record)[0] == "alive"


def test_the_operators_word_wins_and_says_that_it_is_one() -> None:
    """Case B21."""
    with Agent(TENURE_HOST_ID="from the environment") as agent:
        assert host_and_setter(agent.record) == ("from the environment", "operator")
        assert host_and_setter(agent.ask("current_record", host_id="argument")) == ("argument", "operator")


@NEEDS_MOUNT
def test_the_operators_word_needs_no_machine_id() -> None:
    with namespaces.without_machine_id() as agent:
        assert host_and_setter(agent.ask("current_record", host_id="here")) == ("here", "operator")


def test_the_environment_and_the_argument_are_one_id() -> None:
    with Agent(TENURE_HOST_ID="here") as one, Agent() as other:
        assert other.judge(one.record, host_id="here")[0] == "alive"
        assert one.judge(other.ask("current_record", host_id="here"))[0] == "alive"
        assert other.judge(one.record, host_id="there") == ("unknown", "other_host")


def test_the_environment_can_call_the_host_unique() -> None:
    """Row 5."""
    with (
        Agent(TENURE_HOST_ID="here", TENURE_HOST_ID_IS_UNIQUE="1") as unique,
        Agent(TENURE_HOST_ID="here", TENURE_HOST_ID_IS_UNIQUE="0") as common,
        Agent(TENURE_HOST_ID="here") as silent,
    ):
        before_the_reboot = changed(silent.record, boot=OTHER_BOOT)
        assert unique.judge(before_the_reboot) == ("gone", "rebooted")
        assert unique.judge(before_the_reboot, host_id_is_unique=False) == ("unknown", "other_boot")
        for agent in (common, silent):
            assert agent.judge(before_the_reboot) == ("unknown", "other_boot")
            assert agent.judge(before_the_reboot, host_id_is_unique=True) == ("gone", "rebooted")


@NEEDS_MACHINE_ID
def test_uniqueness_without_an_operators_id_proves_nothing() -> None:
    """Row 5: machine ids are copied with images."""
    with Agent(TENURE_HOST_ID_IS_UNIQUE="1") as agent:
        assert agent.judge(changed(agent.record, boot=OTHER_BOOT)) == ("unknown", "other_boot")


def test_a_host_id_that_is_too_long_is_refused_from_the_environment_too() -> None:
    with Agent(TENURE_HOST_ID="a" * 256) as agent, pytest.raises(AgentError, match="ValueError"):
        agent.ask("current_record")


def test_an_empty_host_id_in_the_environment_names_no_host() -> None:
    """It is what a forgotten expansion leaves; taken as an id, all such hosts would be one. Refusing it is fine too."""
    with Agent(TENURE_HOST_ID="") as agent, contextlib.suppress(AgentError):
        assert host_and_setter(agent.record) == (_core.ProcessIdentity.current().host, None)


def test_the_environment_is_read_once() -> None:
    """A change half-way would make a process differ from its own record."""
    with Agent(TENURE_HOST_ID="here") as agent:
        before = agent.record
        agent.ask("set_environment", name="TENURE_HOST_ID", value="there")

        assert agent.ask("current_record") == before
        assert agent.ask("is_current", record=before)
