"""The record: what is written, what is read back, and that nothing in it can be believed."""

from __future__ import annotations

import json
import os
import pickle
from typing import Any

import pytest

from tenure import _core
from tenure.errors import IdentityError, RecordError, RecordTooNewError
from tests.helpers import processes
from tests.helpers.capabilities import NEEDS_IDENTITY
from tests.helpers.records import changed, fields

pytestmark = NEEDS_IDENTITY

GOLDEN = (
    '{"v":1,"os":"linux","host":"5f1c5f1c5f1c5f1c5f1c5f1c5f1c5f1c","boot":"3f9c1a52-0d7e-4b61-9a3c-6e2f8b4d7c10",'
    '"ns":"4026531836","ns_id":"6","pid":12041,"start":"59800","uniq":"12042",'
    '"nonce":"00112233445566778899aabbccddeeff"}'
)


def read(text: str | bytes) -> _core.ProcessIdentity:
    return _core.ProcessIdentity.from_json(text)


def test_a_record_of_the_first_schema_is_read_for_ever() -> None:
    identity = read(GOLDEN)

    assert (identity.os, identity.host, identity.host_set_by_operator) == ("linux", "5f1c" * 8, False)
    assert (identity.boot, identity.ns, identity.ns_id) == ("3f9c1a52-0d7e-4b61-9a3c-6e2f8b4d7c10", "4026531836", 6)
    assert (identity.pid, identity.start, identity.uniq) == (12041, 59800, 12042)
    assert identity.nonce == "00112233445566778899aabbccddeeff"


def test_a_record_is_written_as_one_line_that_is_the_same_each_time() -> None:
    assert read(GOLDEN).to_json() == GOLDEN
    assert read(json.dumps(json.loads(GOLDEN), indent=4).encode()).to_json() == GOLDEN


def test_the_order_of_fields_means_nothing() -> None:
    backwards = dict(reversed(fields(GOLDEN).items()))

    assert read(json.dumps(backwards)) == read(GOLDEN)


def test_a_field_that_comes_twice_counts_as_in_other_readers() -> None:
    """The last one, as in Python and JavaScript: two readers of one record must see one process."""
    twice = GOLDEN[:-1] + ',"pid":7}'

    assert read(twice).pid == fields(twice)["pid"] == 7


def test_the_smallest_record_needs_version_os_and_pid() -> None:
    identity = read('{"v":1,"os":"linux","pid":1}')

    optional = (identity.host, identity.boot, identity.ns, identity.ns_id, identity.start, identity.uniq)
    assert (*optional, identity.nonce) == (None,) * 7


@pytest.mark.parametrize("value", [0, 1, 2**32, 2**53 + 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("name", ["start", "uniq", "ns_id"])
def test_large_numbers_lose_nothing(name: str, value: int) -> None:
    identity = read(changed(GOLDEN, **{name: str(value)}))

    assert getattr(identity, name) == value
    assert fields(identity.to_json())[name] == str(value)


def test_ids_are_written_as_strings() -> None:
    written = fields(_core.ProcessIdentity.current().to_json())

    for name in ("start", "uniq", "ns_id", "ns"):
        assert isinstance(written.get(name, ""), str)
    assert next(iter(written)) == "v"


@pytest.mark.parametrize(
    "extra",
    [
        {"later": "text"},
        {"later": {"nested": [1, {"deeper": None}], "pid": 1}},
        {"later": 2**70, "much_later": -1.5, "yes": True, "none": None},
        {"": "empty name", "näme": "wört", "quote": '" \\ \n \u0000 \u2028'},
        {"hostname": "for people"},
    ],
)
def test_unknown_fields_are_kept(extra: dict[str, Any]) -> None:
    written = fields(read(json.dumps(fields(GOLDEN) | extra)).to_json())

    assert written == fields(GOLDEN) | extra


@pytest.mark.parametrize("host", ["x", "rack 7", "wört", "\u202e", '"', "\\", "a" * 255, "\x7f", "../../etc/passwd"])
def test_any_text_may_be_a_host_id(host: str) -> None:
    identity = read(changed(GOLDEN, host=host, host_by="operator"))

    assert (identity.host, identity.host_set_by_operator) == (host, True)
    assert read(identity.to_json()) == identity


def test_ones_own_record_survives_writing_reading_and_pickling() -> None:
    mine = _core.ProcessIdentity.current()

    assert read(mine.to_json()) == mine
    assert hash(read(mine.to_json())) == hash(mine)
    again = pickle.loads(pickle.dumps(mine))
    assert again == mine
    assert again.to_json() == mine.to_json()
    assert read(mine.to_json()).is_current()


def test_pickling_keeps_unknown_fields() -> None:
    text = changed(GOLDEN, later="text")

    assert fields(pickle.loads(pickle.dumps(read(text))).to_json()) == fields(text)


@pytest.mark.parametrize("name", ["pid", "start", "uniq", "ns", "ns_id", "boot", "host", "os", "nonce"])
def test_identities_differ_by_every_field(name: str) -> None:
    other = {"pid": 7, "os": "macos", "host": "another", "boot": "another", "nonce": "f" * 32}

    assert read(changed(GOLDEN, **{name: other.get(name, "7")})) != read(GOLDEN)


def test_an_identity_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        setattr(read(GOLDEN), "pid", 1)  # noqa: B010  mypy knows that it is read-only


def test_identities_are_for_sets_and_compare_with_anything() -> None:
    assert len({read(GOLDEN), read(GOLDEN)}) == 1
    assert read(GOLDEN) != GOLDEN


@pytest.mark.parametrize("version", [2, 300, 2**40])
def test_a_newer_record_asks_for_an_upgrade(version: int) -> None:
    with pytest.raises(RecordTooNewError) as caught:
        read(changed(GOLDEN, v=version))

    assert (caught.value.schema, caught.value.understood) == (version, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pid", 0),
        ("pid", -1),
        ("pid", 2**31),
        ("pid", 1.0),
        ("pid", True),
        ("pid", "1\n2"),
        ("start", "-1"),
        ("start", str(2**64)),
        ("uniq", "0x10"),
        ("ns_id", [6]),
        ("host", ""),
        ("host", "a" * 256),
        ("host", 7),
        ("boot", {}),
        ("os", 1),
        ("nonce", "too short"),
    ],
)
def test_a_damaged_field_is_named(name: str, value: object) -> None:
    damaged = changed(GOLDEN, **{name: value})

    with pytest.raises(RecordError, match=name) as caught:
        read(damaged)
    judgement = _core.judge(damaged)

    assert caught.value.kind == "record_damaged"
    assert (judgement.verdict.value, judgement.reason) == ("unknown", "malformed")
    assert name in judgement.detail


def test_another_process_is_described_as_it_would_describe_itself_but_for_the_nonce() -> None:
    with processes.sleeping() as subject:
        described = _core.ProcessIdentity.of(subject.pid)

        assert described.nonce is None
        assert fields(described.to_json()) == fields(changed(subject.record, nonce=None))
        assert not described.is_current()
        assert _core.judge(described).verdict.value == "alive"


def test_who_has_ended_cannot_be_described() -> None:
    with processes.zombie() as zombie, processes.reaped() as reaped, processes.leader_exited_then_all() as leader:
        for subject in (zombie, reaped, leader):
            with pytest.raises(ProcessLookupError):
                _core.ProcessIdentity.of(subject.pid)


def test_a_leader_that_left_its_threads_behind_can_be_described() -> None:
    with processes.leader_exited() as subject:
        assert _core.judge(_core.ProcessIdentity.of(subject.pid)).verdict.value == "alive"


def test_a_thread_is_not_described_as_a_process() -> None:
    with processes.thread_number_taken() as taken, pytest.raises((ProcessLookupError, IdentityError)):
        _core.ProcessIdentity.of(taken.pid)


@pytest.mark.parametrize("pid", [0, -1, 2**31, 2**32 + 1, -(2**63), 2**64])
def test_a_number_that_no_process_can_have_is_refused(pid: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        _core.ProcessIdentity.of(pid)


def test_an_operator_host_id_is_said_to_be_one() -> None:
    identity = _core.ProcessIdentity.current(host_id="rack 7")

    assert (identity.host, identity.host_set_by_operator) == ("rack 7", True)
    assert fields(identity.to_json())["host_by"] == "operator"
    assert "host_by" not in fields(_core.ProcessIdentity.current().to_json())
    assert _core.ProcessIdentity.of(os.getpid(), host_id="rack 7").host_set_by_operator


@pytest.mark.parametrize("host_id", ["", "a" * 256])
def test_a_host_id_that_says_nothing_or_too_much_is_refused(host_id: str) -> None:
    for use in (_core.ProcessIdentity.current, lambda **options: _core.judge(GOLDEN, **options)):
        with pytest.raises(ValueError):
            use(host_id=host_id)


def test_a_judgement_is_a_value() -> None:
    judgement = _core.judge(GOLDEN)

    assert pickle.loads(pickle.dumps(judgement)) == judgement
    assert len({judgement, _core.judge(GOLDEN)}) == 1
    with pytest.raises(AttributeError):
        setattr(judgement, "reason", "self")  # noqa: B010  mypy knows that it is read-only


def test_evidence_that_does_not_exist_cannot_be_left_out() -> None:
    with pytest.raises(ValueError):
        _core.judge(GOLDEN, without=["signals"])  # type: ignore[list-item]
