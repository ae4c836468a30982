"""What a commit says it changes: long lists and short ones, and bodies that somebody else may have written."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenure import RecordError
from tenure._commit._entry import Entry
from tenure._datastore._blobs import Blobs, Content, content_of_key
from tenure._datastore._changes import INLINE_BYTES, Body, Change, body_of, collect_body
from tenure._datastore._names import is_normal
from tenure._datastore._worktree import Worktree
from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore
from tenure._store._protocol import check_key

DATA = b"hello"
DIGEST = hashlib.sha256(DATA).hexdigest()
ENCODED = base64.b64encode(DATA).decode()
INLINE = {"name": "a.txt", "size": 5, "sha256": DIGEST, "data": ENCODED}
BLOB = {"name": "a.txt", "size": 5, "sha256": DIGEST, "blob": "7"}
CONDEMNED = Content(5, DIGEST, fence=7).key

# A busy machine takes as long as it takes.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,3}", fullmatch=True).filter(is_normal)
BYTES = st.binary(max_size=40)
INLINE_CONTENTS = BYTES.map(lambda data: Content(len(data), hashlib.sha256(data).hexdigest(), data=data))
BLOB_CONTENTS = st.builds(
    Content,
    size=st.integers(0, 2**63 - 1),
    sha256=st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
    fence=st.integers(1, 2**63 - 1),
    turn=st.integers(0, 3),
)
CHANGES = st.builds(
    Change, name=NAMES, content=st.none() | INLINE_CONTENTS | BLOB_CONTENTS, slot=st.integers(0, 2**63 - 1)
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
SEGMENTS = st.sampled_from(
    ["..", ".", "", "a", "etc", "passwd", ".tenure", ".TENURE", "con", "a\0b", "..\\..", "c:", "\ud800"]
)
EVIL_NAMES = st.lists(SEGMENTS, max_size=5).map("/".join) | st.text(max_size=20)


def entry(body: object) -> Entry:
    return Entry(3, 7, "0" * 32, "commit", "one", 2, body)


def body(*lines: object, **fields: Any) -> dict[str, Any]:
    return {"message": None, "count": len(lines), "changes": list(lines)} | fields


def read(found: object, store: MemoryStore | None = None) -> list[Change]:
    """All that a reader of this body would apply."""
    blobs = Blobs(MemoryStore() if store is None else store)
    return list(body_of(entry(json.loads(json.dumps(found)))).read(blobs))


@settings(UNHURRIED)
@given(st.lists(CHANGES, max_size=5), st.none() | st.text(max_size=20), st.lists(st.just(CONDEMNED), max_size=2))
def test_what_is_written_is_read_back(changes: list[Change], message: str | None, condemned: list[str]) -> None:
    blobs = Blobs(MemoryStore())
    written = collect_body(changes, blobs, 7, message=message, condemned=condemned)
    found = body_of(entry(json.loads(json.dumps(written.to_json()))))
    assert found == written
    assert (found.message, found.count, list(found.read(blobs))) == (message, len(changes), changes)


def test_a_seal_says_nothing() -> None:
    assert body_of(Entry(3, 7, "0" * 32, "seal", "one", 2, {"changes": "whatever"})) == Body()


@pytest.mark.parametrize("kind", ["streams", "records"])
def test_a_long_list_lies_in_a_blob_of_its_writer_and_is_read_line_by_line(kind: str, tmp_path: Path) -> None:
    blobs = Blobs(FileStore(tmp_path / "store") if kind == "streams" else MemoryStore())
    changes = [Change(f"many/{number:05d}", Content(5, DIGEST, data=DATA)) for number in range(3000)]
    written = collect_body(changes, blobs, 7, message="many")
    assert (written.changes, written.count) == (None, 3000)
    assert written.spilled is not None
    assert written.spilled.fence == 7
    assert len(entry(written.to_json()).encode()) < 1000
    found = body_of(entry(written.to_json()))
    assert list(found.read(blobs)) == changes
    assert list(found.blobs(changes)) == [written.spilled], "or a collector would take it for unused"


def test_the_blobs_of_a_commit_are_those_that_it_does_not_carry_itself() -> None:
    blob = Content(9000, DIGEST, fence=7)
    changes = (Change("a", Content(5, DIGEST, data=DATA)), Change("b", blob), Change("c", None))
    assert list(Body(changes=changes).blobs(changes)) == [blob]


BAD_BODIES: dict[str, object] = {
    "no object": [],
    "nothing": None,
    "no list": {"count": 1},
    "no count": {"changes": []},
    "a count that is none": body(count="1"),
    "a count that is true": body(count=True),
    "a negative count": body(count=-1),
    "a list that is none": body(changes={}),
    "a line that is none": body("a.txt"),
    "no name": body(INLINE | {"name": None}),
    "a name that leads out": body(INLINE | {"name": "../a.txt"}),
    "an absolute name": body(INLINE | {"name": "/etc/passwd"}),
    "a name in the middle of which it leads out": body(INLINE | {"name": "a/../../b"}),
    "a name of our own": body(INLINE | {"name": ".tenure/catalog.db"}),
    "a name of our own, folded": body(INLINE | {"name": ".Tenure/catalog.db"}),
    "a name with a backslash": body(INLINE | {"name": "..\\a.txt"}),
    "a name with NUL": body(INLINE | {"name": "a\0.txt"}),
    "a name in another normal form": body(INLINE | {"name": "u\u0308.txt"}),
    "a name that leads out, to remove": body({"name": "../a.txt", "gone": True}),
    "a slot that is none": body(INLINE | {"slot": 3}),
    "a slot with a sign": body(INLINE | {"slot": "-3"}),
    "no size": body({name: value for name, value in INLINE.items() if name != "size"}),
    "a negative size": body(BLOB | {"size": -1}),
    "a size that is true": body(BLOB | {"size": True}),
    "a size beyond every file": body(BLOB | {"size": 2**63}),
    "a digest that is none": body(BLOB | {"sha256": "../" + "0" * 61}),
    "a digest in capitals": body(BLOB | {"sha256": DIGEST.upper()}),
    "a digest with a newline": body(BLOB | {"sha256": DIGEST + "\n"}),
    "neither data nor blob": body({"name": "a.txt", "size": 5, "sha256": DIGEST}),
    "a fence that is a number": body(BLOB | {"blob": 7}),
    "a fence that leads out": body(BLOB | {"blob": "../7"}),
    "a turn that is none": body(BLOB | {"turn": "1"}),
    "a turn that is true": body(BLOB | {"turn": True}),
    "a negative turn": body(BLOB | {"turn": -1}),
    "a turn beyond what is ever counted": body(BLOB | {"turn": 10**9}),
    "data that is not its digest": body(INLINE | {"data": base64.b64encode(b"hellO").decode()}),
    "data that is not its size": body(INLINE | {"size": 4}),
    "data that is no base64": body(INLINE | {"data": "?"}),
    "data that is not even ASCII": body(INLINE | {"data": "\u00e9"}),
    "data whose end is cut off": body(INLINE | {"data": ENCODED[:-1]}),
    "condemned what is no list of keys": body(condemned=[3]),
    "condemned a key of the log": body(condemned=["log/00000000000000000001"]),
    "condemned what leads out": body(condemned=["blob/00/../../lease/1"]),
    "a list that lies nowhere": {"count": 1, "spilled": "blob/x"},
    "a list inside itself": {"count": 1, "spilled": {name: value for name, value in INLINE.items() if name != "name"}},
}


@pytest.mark.parametrize("what", BAD_BODIES)
def test_a_body_that_no_datastore_writes_is_named_as_damage(what: str) -> None:
    with pytest.raises(RecordError, match="this commit is damaged") as refused:
        read(BAD_BODIES[what])
    assert refused.value.key == "entry 3"
    assert refused.value.reason


def spill(data: bytes) -> tuple[MemoryStore, dict[str, Any]]:
    """A store in which *data* is the list of a commit, and its body."""
    store = MemoryStore()
    content = Content(len(data), hashlib.sha256(data).hexdigest(), fence=7)
    store.create(f"{content.key}/00000000", data)
    store.create(f"{content.key}/end", b'{"v":1,"pieces":1}')
    return store, {"count": 1, "spilled": {"size": content.size, "sha256": content.sha256, "blob": "7"}}


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"3",
        json.dumps(INLINE | {"name": "../a.txt"}).encode(),
        json.dumps(BLOB | {"sha256": "x"}).encode(),
    ],
    ids=["torn", "no text", "too deep", "no change", "leads out", "no digest"],
)
def test_a_line_of_a_long_list_that_is_no_change_is_named_as_damage(line: bytes) -> None:
    store, found = spill(json.dumps(INLINE).encode() + b"\n" + line + b"\n")
    with pytest.raises(RecordError, match="this commit is damaged") as refused:
        read(found, store)
    assert (refused.value.key or "").startswith("blob/")


def test_a_long_list_whose_last_line_is_cut_off_is_damaged() -> None:
    store, found = spill(json.dumps(INLINE).encode())
    with pytest.raises(RecordError, match="cut off"):
        read(found, store)


def test_a_long_list_that_is_not_its_digest_is_damaged() -> None:
    store, found = spill(json.dumps(INLINE).encode() + b"\n")
    found["spilled"]["sha256"] = DIGEST
    content = Content(found["spilled"]["size"], DIGEST, fence=7)
    store.create(f"{content.key}/00000000", json.dumps(INLINE).encode() + b"\n")
    store.create(f"{content.key}/end", b'{"v":1,"pieces":1}')
    with pytest.raises(RecordError, match="a blob is damaged"):
        read(found, store)


def test_an_older_reader_ignores_what_it_does_not_know() -> None:
    assert read(body(INLINE | {"mode": "0755"}, more=1)) == read(body(INLINE))


def test_content_at_the_bound_is_read_inline_and_so_is_more() -> None:
    """How much travels in the entry is the writer's choice: a newer one may have another bound."""
    data = os.urandom(INLINE_BYTES + 1)
    line = {"name": "a", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (change,) = read(body(line | {"data": base64.b64encode(data).decode()}))
    assert change.content is not None
    assert change.content.data == data


WRONG = st.fixed_dictionaries(
    {},
    optional={
        "name": EVIL_NAMES | JSON,
        "gone": st.booleans(),
        "slot": st.just("3") | JSON,
        "size": st.integers(-1, 2**64) | JSON,
        "sha256": EVIL_NAMES,
        "blob": EVIL_NAMES | JSON,
        "turn": st.booleans() | st.integers() | JSON,
        "data": st.text(max_size=9) | JSON,
    },
)
# Right but for a field or two, or every body would be refused for its first one.
LINES = st.builds(lambda line, wrong: line | dict(list(wrong.items())[:2]), st.sampled_from([INLINE, BLOB]), WRONG)


@settings(UNHURRIED, max_examples=300)
@given(
    st.fixed_dictionaries(
        {"count": st.just(1) | JSON},
        optional={
            "changes": st.lists(LINES, max_size=2),
            "spilled": LINES,
            "condemned": st.lists(st.just(CONDEMNED) | EVIL_NAMES, max_size=2),
            "message": JSON,
        },
    )
    | JSON
)
def test_no_body_names_a_path_outside_or_a_key_that_is_no_blobs(found: Any) -> None:
    try:
        read_body = body_of(entry(found))
        changes = list(read_body.read(Blobs(MemoryStore())))
    except RecordError:
        return
    for change in changes:
        path = os.path.normpath(f"/srv/checkout/{change.name}")
        assert path == f"/srv/checkout/{change.name}"
        assert not path.casefold().startswith("/srv/checkout/.tenure")
    for key in [*read_body.condemned, *(content.key for content in read_body.blobs(changes))]:
        check_key(key)
        assert content_of_key(key) is not None


def test_a_name_that_leads_through_a_link_writes_nothing_behind_it(tmp_path: Path) -> None:
    """The names of a body are harmless; what lies in the checkout may be anybody's."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "here" / ".tenure").mkdir(parents=True)
    (tmp_path / "here" / "a").symlink_to(tmp_path / "outside")
    worktree = Worktree(tmp_path / "here")
    with pytest.raises(OSError):
        worktree.write("a/b", lambda fd: None)
    assert list((tmp_path / "outside").iterdir()) == []
