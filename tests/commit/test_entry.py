"""An entry of the log: what is written is read back, and whatever is no entry is named and never believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenure import CommitLog, RecordError, RecordTooNewError
from tenure._commit import _keys
from tenure._commit._entry import SCHEMA, Entry, Kind
from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore
from tenure._store._records import MAX_SIZE_BYTES

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDS = {"seal": 40, "commit": 41, "commit-spilled": 42, "snapshot": 43}
NONCE = "00112233445566778899aabbccddeeff"
KEY = _keys.entry(41)
COMMIT = (GOLDEN / "commit-v1.json").read_bytes()

# A busy machine takes as long as it takes.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}", fullmatch=True)
SLOTS = st.integers(1, _keys.MAX_SLOT)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    kind: Kind = draw(st.sampled_from(get_args(Kind)))
    return Entry(
        slot=draw(SLOTS),
        fence=draw(SLOTS),
        nonce=draw(st.from_regex(r"[0-9a-f]{32}", fullmatch=True)),
        kind=kind,
        id=draw(IDS),
        base=draw(st.integers(0, _keys.MAX_SLOT)),
        body=draw(JSON),
        at=draw(st.none() | st.just("2026-10-16T08:00:00+00:00")),
        replaces=tuple(draw(st.lists(IDS, max_size=4))) if kind == "snapshot" else (),
    )


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}-v1.json").read_bytes()


def changed(**fields: Any) -> bytes:
    """The golden commit with other values; `...` takes a field away."""
    merged = json.loads(COMMIT) | fields
    return json.dumps({name: value for name, value in merged.items() if value is not ...}).encode()


@settings(UNHURRIED)
@given(entries())
def test_what_is_written_is_read_back(entry: Entry) -> None:
    assert Entry.decode(_keys.entry(entry.slot), entry.encode()) == entry


@pytest.mark.parametrize("name", RECORDS)
def test_an_entry_is_written_as_its_golden_record_is(name: str) -> None:
    data = golden(name)
    assert Entry.decode(_keys.entry(RECORDS[name]), data).encode() == data
    assert data.startswith(b'{"v":%d,' % SCHEMA), "a reader of another version needs the schema number first"


@pytest.mark.parametrize("name", RECORDS)
def test_an_entry_of_the_first_schema_is_read_for_ever(name: str) -> None:
    entry = Entry.decode(_keys.entry(RECORDS[name]), golden(name))
    assert (entry.slot, entry.fence, entry.nonce) == (RECORDS[name], 7, NONCE)
    assert (entry.kind, entry.base, entry.at) == (
        name.split("-", maxsplit=1)[0],
        entry.slot - 1,
        "2026-10-16T08:00:00+00:00",
    )
    assert entry.replaces == (("order-16", "order-17", "order-18") if name == "snapshot" else ())
    assert (entry.body is None) is (name == "seal")


def test_an_older_reader_ignores_what_it_does_not_know() -> None:
    assert Entry.decode(KEY, changed(priority=9, replaces=...)) == Entry.decode(KEY, COMMIT)


@pytest.mark.parametrize("schema", [SCHEMA + 1, 10**12])
def test_a_newer_schema_says_upgrade_and_never_damaged(schema: int) -> None:
    with pytest.raises(RecordTooNewError, match="a newer tenure") as refused:
        # Whatever else has changed with it.
        Entry.decode(KEY, json.dumps({"v": schema}).encode())
    assert (refused.value.schema, refused.value.understood, refused.value.key) == (schema, SCHEMA, KEY)
    assert "upgrade" in (refused.value.hint or "")


DAMAGED = {
    "it is empty": b"",
    "not JSON": COMMIT[:-30],
    "not JSON: NUL-filled": b"\0" * 300,
    "not JSON: too deep": b"[" * 100_000,
    "not JSON: no text": b"\xff\xfe\xfd",
    "not a JSON object": b"[1]",
    "v: missing": changed(v=...),
    "v: true": changed(v=True),
    "v: text": changed(v="1"),
    "v: zero": changed(v=0),
    "slot: another": changed(slot="42"),
    "slot: a number": changed(slot=41),
    "kind: unknown": changed(kind="merge"),
    "kind: missing": changed(kind=...),
    "nonce: short": changed(nonce="00"),
    "nonce: upper case": changed(nonce="A" * 32),
    "nonce: a number": changed(nonce=7),
    "id: a path": changed(id="../order-17"),
    "id: empty": changed(id=""),
    "id: too long": changed(id="x" * 101),
    "id: missing": changed(id=...),
    "fence: zero": changed(fence="0"),
    "fence: a number": changed(fence=7),
    "fence: signed": changed(fence="-7"),
    "fence: other digits": changed(fence="\u0667"),
    "fence: too long": changed(fence="7" * 20),
    "base: missing": changed(base=...),
    "base: a space": changed(base=" 40"),
    "replaces: no list": changed(replaces="order-16"),
    "replaces: no ids": changed(replaces=[16]),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_entry_is_named_with_what_is_wrong(what: str) -> None:
    with pytest.raises(RecordError) as refused:
        Entry.decode(KEY, DAMAGED[what])
    assert not isinstance(refused.value, RecordTooNewError)
    assert refused.value.key == KEY
    assert refused.value.reason.startswith(what.split(":", maxsplit=1)[0])
    assert "kept" in (refused.value.hint or "")


@settings(UNHURRIED)
@given(
    st.binary(max_size=200)
    | st.dictionaries(st.sampled_from([*json.loads(COMMIT)]), JSON).map(lambda few: changed(**few))
)
def test_no_bytes_make_reading_fail_in_another_way(data: bytes) -> None:
    try:
        entry = Entry.decode(KEY, data)
    except RecordError:
        return
    assert (entry.slot, entry.kind in get_args(Kind)) == (41, True)
    assert entry.at is None or entry.at.isprintable()


def test_a_time_that_could_steer_a_terminal_is_no_time() -> None:
    assert Entry.decode(KEY, changed(at="\x1b[2J")).at is None


@pytest.mark.parametrize("data", [b"", changed(v=SCHEMA + 1)])
def test_nothing_behind_an_entry_that_cannot_be_read_is_handed_out_and_its_bytes_stay(
    tmp_path: Path, data: bytes
) -> None:
    store = FileStore(tmp_path / "store")
    store.create(_keys.floor(0), _keys.NOTE)
    for slot in (1, 3):
        store.create(_keys.entry(slot), Entry(slot, 1, NONCE, "commit", f"id-{slot}", 0, slot).encode())
    store.create(_keys.entry(2), data)
    seen = CommitLog(store).read()
    with pytest.raises(RecordError) as refused:
        list(seen)
    assert refused.value.key == _keys.entry(2)
    assert store.path_of(_keys.entry(2)).read_bytes() == data


def test_a_body_exactly_at_the_bound_is_written_and_one_byte_more_is_refused() -> None:
    empty = len(Entry(1, 1, NONCE, "commit", "x", 0, "").encode())
    largest = Entry(1, 1, NONCE, "commit", "x", 0, "y" * (MAX_SIZE_BYTES - empty)).encode()
    assert len(largest) == MAX_SIZE_BYTES
    assert MemoryStore().create(_keys.entry(1), largest).won
    with pytest.raises(ValueError, match="too large"):
        Entry(1, 1, NONCE, "commit", "x", 0, "y" * (MAX_SIZE_BYTES - empty + 1)).encode()


@pytest.mark.parametrize("directory", [_keys.PREFIX, _keys.SNAPSHOTS, _keys.FLOORS])
def test_a_key_is_of_one_directory_and_one_slot(directory: str) -> None:
    key = {_keys.PREFIX: _keys.entry, _keys.SNAPSHOTS: _keys.snapshot, _keys.FLOORS: _keys.floor}[directory](41)
    assert {other: _keys.slot_of(key, other) for other in (_keys.PREFIX, _keys.SNAPSHOTS, _keys.FLOORS)} == {
        _keys.PREFIX: None,
        _keys.SNAPSHOTS: None,
        _keys.FLOORS: None,
        directory: 41,
    }
    assert _keys.slot_of(f"{directory}{_keys.MAX_SLOT + 1:020d}", directory) is None
    assert _keys.slot_of(f"{directory}41", directory) is None


def test_a_note_is_written_as_its_golden_record_is() -> None:
    """What it says is its key: a reader of any version takes it for what it is, whatever stands in it."""
    assert golden("note") == _keys.NOTE
    store = MemoryStore()
    for key in (_keys.floor(0), _keys.snapshot(9), _keys.floor(9)):
        store.create(key, b'{"v":2,"more":1}')
    store.create(_keys.entry(9), Entry(9, 1, NONCE, "snapshot", "all", 8, None).encode())
    log = CommitLog(store)
    assert (log.floor, log.newest_snapshot(), log.head) == (9, 9, 9)
