"""The claim: what is written, what is read back, and what becomes of everything that is no claim."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenure import ProcessIdentity, WriterLease
from tenure._lease import _keys
from tenure._lease._claim import MAX_BYTES, SCHEMA, Claim, check_terms
from tenure._lifeline import Place
from tenure.errors import RecordError, RecordTooNewError
from tests.helpers import holders, independent
from tests.helpers.capabilities import NEEDS_LINUX_PROC

GOLDEN = Path(__file__).parents[1] / "golden" / "claim-v1.json"
OURS = Claim(
    fence=7,
    nonce=holders.NONCE,
    holder=ProcessIdentity.current(),
    ttl=30.0,
    skew=10.0,
    label="nightly import",
    host_name="build-7",
    acquired_at="2026-10-16T08:00:00+00:00",
    lifeline=Place("3f9c1a52-0d7e-4b61-9a3c-6e2f8b4d7c10", "ext4", 2**63 + 5, 131_090),
)


def decoded(data: bytes, fence: int = 1) -> Claim:
    return Claim.decode(_keys.claim(fence), data)


def changed(**changes: Any) -> Claim:
    return decoded(holders.claim(**changes))


@pytest.mark.parametrize(
    "claim",
    [
        OURS,
        replace(OURS, holder=None, lifeline=None, label=None, host_name=None, acquired_at=None),
        replace(OURS, fence=_keys.MAX_FENCE, ttl=0.05, skew=0.0),
        replace(OURS, label="naïve café 試験", holder='{"v": 1, "os": "plan9"}'),
    ],
)
def test_what_is_written_is_read_back(claim: Claim) -> None:
    assert Claim.decode(_keys.claim(claim.fence), claim.encode()) == claim


def test_a_claim_of_the_first_schema_is_read_for_ever() -> None:
    claim = decoded(GOLDEN.read_bytes(), fence=7)

    assert isinstance(claim.holder, ProcessIdentity)
    assert (claim.fence, claim.nonce) == (7, "00112233445566778899aabbccddeeff")
    assert (claim.holder.pid, claim.holder.uniq, claim.holder.start) == (12041, 12042, 59800)
    assert (claim.ttl, claim.skew, claim.label, claim.host_name) == (30.0, 10.0, "nightly import", "build-7")
    assert claim.acquired_at == "2026-10-16T08:00:00+00:00"
    assert claim.lifeline == Place("3f9c1a52-0d7e-4b61-9a3c-6e2f8b4d7c10", "ext4", 2049, 131_090)


def test_a_claim_is_written_as_its_golden_record_is() -> None:
    golden = GOLDEN.read_bytes()

    assert decoded(golden, fence=7).encode() == golden
    assert golden.startswith(b'{"v":%d,' % SCHEMA), "a reader of another version needs the schema number first"


def test_an_older_reader_ignores_what_it_does_not_know() -> None:
    newer = json.loads(GOLDEN.read_bytes()) | {"checkout": {"id": "x", "path": "/srv"}, "priority": 9}
    newer["holder"]["cgroup"] = "11"
    newer["lifeline"]["kind"] = "ofd"

    assert decoded(json.dumps(newer).encode(), fence=7).nonce == decoded(GOLDEN.read_bytes(), fence=7).nonce


@pytest.mark.parametrize("schema", [2, 3, 10**12])
def test_a_newer_schema_says_upgrade_and_never_damaged(schema: int) -> None:
    with pytest.raises(RecordTooNewError) as refused:
        changed(v=schema)

    assert (refused.value.schema, refused.value.understood, refused.value.key) == (schema, 1, _keys.claim(1))
    assert "upgrade" in (refused.value.hint or "")


DAMAGED = {
    "empty": b"",
    "torn": holders.claim()[:-30],
    "torn in its first byte": b"{",
    "NUL-filled": b"\0" * 324,
    "NULs behind": holders.claim() + b"\0" * 100,
    "oversized": b" " * MAX_BYTES + holders.claim(),
    "no JSON": b"pid 1",
    "a bare pid": b"1",
    "a list": b"[]",
    "null": b"null",
    "two records": holders.claim() * 2,
    "not UTF-8": b'{"v":1,"label":"\xff"}',
    "deep": b'{"v":' * 2000 + b"1" + b"}" * 2000,
    "deep lists": b"[" * 8000,
    "no schema": holders.claim(v=...),
    "schema of a wrong type": holders.claim(v="1"),
    "schema true": holders.claim(v=True),
    "schema 0": holders.claim(v=0),
    "schema 1.0": holders.claim(v=1.0),
    "a fence that is not its key's": holders.claim(fence=2),
    "a fence of a wrong type": holders.claim().replace(b'"fence": "1"', b'"fence": 1'),
    "a fence with a sign": holders.claim().replace(b'"fence": "1"', b'"fence": "+1"'),
    "no nonce": holders.claim(nonce=...),
    "a nonce that is a path": holders.claim(nonce="../../../../etc/passwd-0123456789"),
    "a nonce in capitals": holders.claim(nonce="ABCDEF01" * 4),
    "a nonce of a wrong type": holders.claim(nonce=5),
    "no ttl": holders.claim(ttl=...),
    "ttl 0": holders.claim(ttl=0),
    "a negative ttl": holders.claim(ttl=-30),
    "a ttl of ten years": holders.claim(ttl=315_360_000),
    "a ttl that is no number": holders.claim(ttl=math.nan),
    "an endless ttl": holders.claim(ttl=math.inf),
    "ttl true": holders.claim(ttl=True),
    "a ttl in words": holders.claim(ttl="30"),
    "no skew": holders.claim(skew=...),
    "a negative skew": holders.claim(skew=-0.5),
    "an endless skew": holders.claim(skew=math.inf),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_what_is_no_claim_is_damaged_and_says_what_is_wrong(data: bytes) -> None:
    """B38, B62: torn, empty and absurd records have no owner, and say so."""
    with pytest.raises(RecordError) as refused:
        decoded(data)

    assert not isinstance(refused.value, RecordTooNewError)
    assert refused.value.key == _keys.claim(1)
    assert refused.value.reason
    assert str(refused.value).isprintable(), "what a stranger wrote must not steer a terminal"


@pytest.mark.parametrize("holder", [7, "pid 1", [], {}, {"v": 1}, {"v": 1, "os": "linux", "pid": "1"}, True, {"v": 99}])
def test_a_wrong_identity_makes_a_claim_without_identity(holder: object) -> None:
    """Never an invalid claim: time and the fence decide, and the text is kept so that the judgement can say why."""
    claim = changed(holder=holder)

    assert not isinstance(claim.holder, ProcessIdentity)
    assert claim.holder is not None
    assert json.loads(claim.holder) == holder


@pytest.mark.parametrize(
    "lifeline",
    [
        7,
        [],
        {},
        {"boot": "b", "fs": "ext4", "dev": 1, "ino": 2},
        {"boot": "b", "fs": "ext4", "dev": "-1", "ino": "2"},
        {"boot": "b", "fs": "ext4", "dev": "1", "ino": "2" * 21},
        {"boot": "b", "fs": "ext4", "dev": "1", "ino": "٣"},
        {"boot": None, "fs": "ext4", "dev": "1", "ino": "2"},
    ],
)
def test_a_wrong_lifeline_is_no_lifeline(lifeline: object) -> None:
    assert changed(lifeline=lifeline).lifeline is None


ESCAPES = "\x1b]0;owned\x07\x1b[2Jx\r\n\x9b31m\u202eevil\u200b"


@pytest.mark.parametrize("field", ["label", "host_name", "acquired_at"])
def test_words_for_people_cannot_steer_a_terminal(field: str) -> None:
    words = getattr(changed(**{field: ESCAPES}), field)

    assert words.isprintable()
    assert "owned" in words


@pytest.mark.parametrize("field", ["label", "host_name", "acquired_at"])
@pytest.mark.parametrize("value", [7, None, [], {"a": 1}, "", True])
def test_words_of_a_wrong_type_are_no_words(field: str, value: object) -> None:
    assert getattr(changed(**{field: value}), field) is None


def test_words_are_cut_to_what_fits_a_line() -> None:
    claim = changed(label="l" * 5000, host_name="h" * 5000)

    assert (len(claim.label or ""), len(claim.host_name or "")) == (200, 255)


@pytest.mark.parametrize("ttl", [0, -1, 0.049, 86_400.5, 315_360_000, math.nan, math.inf, True, "30", None])
def test_an_absurd_ttl_is_refused_before_it_is_written(tmp_path: Path, ttl: Any) -> None:
    """B14, B62: a record without a usable ttl would leave an unknowable holder for ever."""
    with pytest.raises(ValueError, match="ttl"):
        WriterLease(tmp_path / "store", ttl=ttl)

    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("skew", [-0.1, 86_401, math.nan, math.inf, False, "10"])
def test_an_absurd_skew_is_refused_before_it_is_written(skew: Any) -> None:
    with pytest.raises(ValueError, match="skew"):
        check_terms(30.0, skew, None)


@pytest.mark.parametrize("label", ["", "l" * 201, "two\nlines", ESCAPES, "tab\t"])
def test_a_label_is_one_printable_line(label: str) -> None:
    with pytest.raises(ValueError, match="label"):
        check_terms(30.0, 10.0, label)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([*json.loads(GOLDEN.read_bytes()), "unknown"])


@given(st.binary(max_size=600))
def test_no_bytes_make_reading_fail_in_another_way(data: bytes) -> None:
    try:
        decoded(data)
    except RecordError:
        pass


# A busy machine makes these slowly.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(FIELDS, JSON, max_size=4), st.sampled_from(["keep", "cut"]), st.integers(0, 600))
def test_no_field_makes_reading_fail_in_another_way(changes: dict[str, Any], what: str, cut: int) -> None:
    data = json.dumps(json.loads(GOLDEN.read_bytes()) | changes).encode()
    try:
        claim = decoded(data if what == "keep" else data[:cut], fence=7)
    except RecordError:
        return
    for words in (claim.label, claim.host_name, claim.acquired_at):
        assert words is None or words.isprintable()
    assert 0.05 <= claim.ttl <= 86_400
    assert 0 <= claim.skew <= 86_400


def test_nesting_of_any_depth_is_damage_and_no_crash() -> None:
    """Reading JSON and writing it again may give up at different depths."""
    for depth in range(10, sys.getrecursionlimit() + 50):
        data = holders.claim(holder="HERE").replace(b'"HERE"', b"[" * depth + b"]" * depth)
        try:
            decoded(data)
        except RecordError:
            pass


@NEEDS_LINUX_PROC
def test_a_written_claim_says_what_other_programs_see(tmp_path: Path) -> None:
    """B50: `test` compared a field with the expression that had made it; here uname, stat and the shell are asked."""
    store = tmp_path / "store"
    with holders.holding(store, label="import") as agent:
        path = store / _keys.claim(1)
        claim = json.loads(path.read_bytes())
        holder, lifeline = claim["holder"], claim["lifeline"]
        comm = "a) R 1 (b"
        agent.ask("set_comm", name=comm)

        def said(*command: str) -> str:
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

        assert claim["host_name"] == said("uname", "-n")
        assert holder["pid"] == agent.pid
        assert holder["boot"] == lifeline["boot"] == said("cat", "/proc/sys/kernel/random/boot_id")
        assert f"pid:[{holder['ns']}]" == said("readlink", f"/proc/{agent.pid}/ns/pid")
        assert int(holder["start"]) == independent.start_time(agent.pid)
        found = store / _keys.lifeline(claim["nonce"])
        assert [lifeline["dev"], lifeline["ino"]] == said("stat", "-c", "%d %i", str(found)).split()
        assert (claim["ttl"], claim["skew"], claim["label"], claim["fence"], claim["v"]) == (30, 10, "import", "1", 1)
        assert re.fullmatch("[0-9a-f]{32}", claim["nonce"])
        assert claim["nonce"] != holder["nonce"]


@NEEDS_LINUX_PROC
def test_two_holds_of_one_process_have_two_nonces(tmp_path: Path) -> None:
    lease = WriterLease(tmp_path / "store")
    nonces = set()
    for _ in range(3):
        with lease.acquire() as hold:
            nonces.add(hold.nonce)

    assert len(nonces) == 3
