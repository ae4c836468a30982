"""Whatever stands where a record should stand: never an exception, never GONE, and the kernel is not even asked."""

from __future__ import annotations

import base64
import json
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure import _core
from tests.helpers import independent, processes
from tests.helpers.capabilities import NEEDS_IDENTITY, NEEDS_LINUX_PROC, NEEDS_STRACE
from tests.helpers.processes import Agent
from tests.helpers.records import OTHER_NONCE, changed, fields
from tests.helpers.tracing import traced

pytestmark = NEEDS_IDENTITY

MINE = _core.ProcessIdentity.current().to_json()
_WITH = fields(MINE)


def _raw(name: str, text: str) -> str:
    """One's own record with *text*, which need not be JSON, as the value of *name*."""
    return changed(MINE, **{name: "HERE"}).replace('"HERE"', text)


BAD: dict[str, str | bytes] = {
    "empty": "",
    "empty-bytes": b"",
    "blanks": " \n\t ",
    "10-MB": "a" * 10_000_000,
    "10-MB-of-JSON": changed(MINE, later="a" * 10_000_000),
    "4097-bytes": MINE + " " * (4097 - len(MINE)),
    "NULs": b"\0" * 4096,
    "NULs-after-the-record": MINE.encode() + b"\0" * 64,
    "NULs-before-the-record": b"\0" * 64 + MINE.encode(),
    "twice": MINE + MINE,
    "two-lines": MINE + "\n" + MINE,
    "byte-order-mark": b"\xef\xbb\xbf" + MINE.encode(),
    "utf-16": MINE.encode("utf-16"),
    "latin-1": changed(MINE, host="HERE").encode().replace(b"HERE", b"w\xf6rt"),
    "lone-surrogate": "\ud800",
    "lone-surrogate-in-the-host": changed(MINE, host="HERE").replace("HERE", "\udcff"),
    "lone-surrogate-as-an-escape": _raw("host", '"\\ud800"'),
    "half-an-escape": _raw("host", '"\\ud8'),
    "null": "null",
    "true": "true",
    "a-number": "4242",
    "a-text": '"linux"',
    "a-list": "[]",
    "a-list-of-records": f"[{MINE}]",
    "an-empty-object": "{}",
    "deeply-nested": "[" * 4000,
    "deeply-nested-inside": _raw("later", "[" * 1500 + "]" * 1500),
    "comment": MINE + "// mine",
    "single-quotes": MINE.replace('"', "'"),
    "trailing-comma": MINE[:-1] + ",}",
    "pid-missing": changed(MINE, pid=None),
    "os-missing": changed(MINE, os=None),
    "version-missing": changed(MINE, v=None),
    "version-zero": changed(MINE, v=0),
    "version-negative": changed(MINE, v=-1),
    "version-text": changed(MINE, v="1"),
    "version-float": _raw("v", "1.0"),
    "version-true": changed(MINE, v=True),
    "version-next": changed(MINE, v=2),
    "version-huge": changed(MINE, v=2**200),
    **{
        f"pid-{text[:12].strip()}": _raw("pid", text)
        for text in (
            *("0", "-0", "-1", "2147483648", "4294967297", "18446744073709551617", "1e0", "1.0", "0x1", "01", "+1"),
            *(
                "NaN",
                "Infinity",
                "-Infinity",
                "true",
                "false",
                "null",
                "[1]",
                "{}",
                '"1"',
                '"1\\n2"',
                '"self"',
                '"1/../1"',
            ),
            *("9" * 3000, "1e999999"),
        )
    },
    **{
        f"{name}-{text[:12]}": _raw(name, text)
        for name in ("start", "uniq", "ns_id")
        for text in (
            *(
                '""',
                '"-1"',
                '"+1"',
                '" 1"',
                '"1 "',
                '"1\\n"',
                '"1e3"',
                '"0x1"',
                '"1.0"',
                '"../1"',
                '"18446744073709551616"',
            ),
            *("1.5", "-1", "true", "[]", "{}", '"\u0661"'),
        )
    },
    **{
        f"{name}-{text}": _raw(name, text)
        for name in ("os", "host", "boot", "ns", "nonce", "host_by")
        for text in ("1.5", "-7", "true", "[]", "{}")
    },
    **{f"{name}-NUL": _raw(name, '"\\u0000"') for name in ("os", "boot", "nonce")},
    "host-empty": changed(MINE, host=""),
    "host-too-long": changed(MINE, host="a" * 256),
    "boot-is-a-path": changed(MINE, boot="../../../etc/passwd"),
    # Other systems have words there; with one's own nonce or unique id it would not matter.
    "ns-is-a-path": changed(MINE, ns="../../1/ns/pid", nonce=OTHER_NONCE, uniq=None),
    "ns-NUL": changed(MINE, ns="\0", nonce=OTHER_NONCE, uniq=None),
    "nonce-is-a-path": changed(MINE, nonce="../" * 10 + "aa"),
    "os-is-a-path": changed(MINE, os="../linux"),
}
# Not even wrong: a record of another system, boot, namespace or version, or of nobody.
REASONS = {"malformed", "version", "other_os", "other_boot", "other_host", "other_pid_namespace"}
PROBES = "?pidfd_open,?getpgid,?open_by_handle_at,?open,?openat,?openat2,?readlink,?readlinkat,?poll,?ppoll,?kill"


@pytest.mark.parametrize("name", BAD)
def test_it_is_unknown_and_says_why(name: str) -> None:
    judgement = _core.judge(BAD[name])

    assert judgement.verdict.value == "unknown"
    assert judgement.reason in REASONS
    assert judgement.evidence in ("record", "none")
    assert judgement.detail or judgement.reason != "malformed"
    assert len(judgement.detail) < 500
    assert _core.judge_many([BAD[name], MINE, BAD[name]])[1].reason == "self"


def test_a_torn_record_is_malformed_wherever_it_was_torn() -> None:
    for length in range(len(MINE)):
        for torn in (MINE[:length], MINE[:length] + "\0" * (len(MINE) - length)):
            judgement = _core.judge(torn)
            assert (judgement.verdict.value, judgement.reason) == ("unknown", "malformed"), torn


@NEEDS_STRACE
def test_the_kernel_is_not_asked() -> None:
    """A record names the pid to probe, so a bad one must not get that far."""
    texts = [record for record in BAD.values() if isinstance(record, str) and len(record) < 10_000]
    with Agent() as agent:
        agent.judge(changed(MINE, nonce=None))
        with traced(agent, "-e", f"trace={PROBES}") as trace:
            for text in texts:
                assert agent.judge(text)[0] == "unknown"

    assert trace.calls.total() == 0, trace.lines


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_values = (
    _json
    | st.integers(-3, 2**32).map(str)
    | st.integers(0, 70_000)
    | st.integers(0, 2**64).map(str)
    | st.text(string.hexdigits, min_size=32, max_size=32)
    | st.sampled_from(list(_WITH.values()))
)


@settings(deadline=None)
@given(st.binary() | st.text(st.characters(exclude_categories=[])) | _json.map(json.dumps))
def test_nobody_is_gone_by_chance(text: str | bytes) -> None:
    """GONE needs this boot's id in the record, 122 random bits."""
    judgement = _core.judge(text)

    assert judgement.verdict.value == "unknown"
    assert _core.judge_many([text]) == [judgement]


@NEEDS_LINUX_PROC
@given(st.dictionaries(st.sampled_from([*_WITH, "host_by", "later"]), _values, max_size=4))
@settings(max_examples=300, deadline=None)
def test_a_changed_record_is_gone_only_if_it_names_another_process_of_this_boot(changes: dict[str, Any]) -> None:
    living = independent.Seen.of(_core.ProcessIdentity.current().pid)
    text = json.dumps(_WITH | {"nonce": OTHER_NONCE} | changes)

    judgement = _core.judge(text)

    if judgement.verdict.value == "unknown":
        return
    read = _core.ProcessIdentity.from_json(text)
    same = (
        read.pid == living.pid
        and read.ns == living.ns
        and read.uniq in (None, living.uniq)
        and read.ns_id in (None, living.ns_id)
        and (read.uniq is not None or read.start == living.start)
    )
    assert read.boot == living.boot
    assert same == (judgement.verdict.value == "alive") or judgement.reason in ("self", "handle_opens")


@settings(deadline=None)
@given(st.binary(max_size=600))
def test_bytes_inside_a_host_id_do_no_harm(content: bytes) -> None:
    for text in (content.decode("utf-8", "surrogateescape"), base64.b64encode(content).decode()):
        judgement = _core.judge(json.dumps(_WITH | {"nonce": OTHER_NONCE, "host": text}))
        assert judgement.verdict.value in ("unknown", "alive")


def test_a_record_of_the_living_is_never_harmed_by_what_else_it_says() -> None:
    with processes.sleeping() as subject:
        crowded = changed(subject.record, gone=True, verdict="gone", signal=9, kill=subject.pid, state="Z")

        assert _core.judge(crowded).verdict.value == "alive"
