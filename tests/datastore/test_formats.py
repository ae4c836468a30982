"""Records of the datastore: those of the first version are read for ever, newer ones say "upgrade", damaged ones are kept."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from tenure import Datastore, Entry, Outbox, RecordError, RecordTooNewError
from tenure._commit import _keys
from tenure._datastore._blobs import Blobs, Content
from tenure._datastore._catalog import VERSION, Catalog
from tenure._datastore._changes import Change, body_of
from tenure._datastore._datastore import FORMAT, FORMAT_KEY
from tenure._datastore._staging import Journal
from tenure._lease import _keys as lease_keys
from tenure._lease._claim import Claim, WorksIn
from tenure._store._memory import MemoryStore

GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = Content(5, hashlib.sha256(b"hello").hexdigest(), data=b"hello")
BIG = Content(1048576, hashlib.sha256(b"big").hexdigest(), fence=7)
AGAIN = Content(9000, hashlib.sha256(b"again").hexdigest(), fence=6, turn=2)
OLD = Content(-1, hashlib.sha256(b"old").hexdigest(), fence=3)
IN_PIECES = b"x" * (3 * 512 * 1024)


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def changes_of(name: str, slot: int) -> list[Change]:
    entry = Entry.decode(_keys.entry(slot), golden(name))
    body = body_of(entry)
    assert body.to_json() == entry.body, "written as it was read"
    return list(body.read(Blobs(MemoryStore())))


def test_a_commit_of_the_first_schema_is_read_for_ever() -> None:
    assert changes_of("commit-v1.json", 41) == [
        Change("a.txt", SMALL),
        Change("data/big.bin", BIG),
        Change("na\u00efve/\u8a66\u9a13", AGAIN),
        Change("old.txt", None),
    ]
    body = body_of(Entry.decode(_keys.entry(41), golden("commit-v1.json")))
    assert (body.message, body.count, body.condemned) == ("say hello", 4, (OLD.key,))


def test_a_commit_whose_list_lies_in_a_blob_is_read_for_ever() -> None:
    body = body_of(Entry.decode(_keys.entry(42), golden("commit-spilled-v1.json")))
    assert (body.message, body.count, body.changes) == ("many files", 3000, None)
    assert body.spilled == Content(300000, hashlib.sha256(b"list").hexdigest(), fence=7)


def test_a_snapshot_of_the_first_schema_is_read_for_ever() -> None:
    assert changes_of("snapshot-v1.json", 43) == [Change("a.txt", SMALL, 41), Change("data/big.bin", BIG, 41)]


def test_the_names_of_blobs_are_for_ever() -> None:
    digest = AGAIN.sha256
    assert AGAIN.key == f"blob/{digest[:2]}/{digest}.00000000000000000006.2"
    assert BIG.key == f"blob/{BIG.sha256[:2]}/{BIG.sha256}.00000000000000000007"


def test_a_format_of_the_first_version_is_read_for_ever_and_written_so_today() -> None:
    store, today = MemoryStore(), MemoryStore()
    store.create(FORMAT_KEY, golden("format-v1.json"))
    assert Datastore(store).id == "d5" * 16
    made = Datastore.create(today)
    stored = today.read(FORMAT_KEY)
    assert stored is not None
    assert stored.data.replace(made.id.encode(), b"d5" * 16) == golden("format-v1.json")


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b'{"v":1,"kind":"datastore","reader":true,"id":"x"}'])
def test_a_format_that_cannot_be_read_is_named_and_kept(data: bytes) -> None:
    store = MemoryStore()
    store.create(FORMAT_KEY, data)
    with pytest.raises(RecordError, match="damaged") as refused:
        Datastore(store)
    assert (refused.value.key, refused.value.hint) == (FORMAT_KEY, "restore the record `format.json` from a backup")
    with pytest.raises(RecordError):
        Datastore.create(store)
    stored = store.read(FORMAT_KEY)
    assert stored is not None
    assert stored.data == data


def test_a_newer_format_says_upgrade_whatever_else_it_says() -> None:
    store = MemoryStore()
    newer = {"v": 3, "kind": "datastore", "format": 3, "reader": FORMAT + 1, "id": "x", "id_of_owner": "y"}
    store.create(FORMAT_KEY, json.dumps(newer).encode())
    with pytest.raises(RecordTooNewError, match="a newer tenure") as refused:
        Datastore(store)
    assert (refused.value.schema, refused.value.understood) == (FORMAT + 1, FORMAT)
    assert "upgrade" in (refused.value.hint or "")


def test_a_claim_that_names_a_checkout_is_read_for_ever_and_written_so_today() -> None:
    data = golden("claim-with-checkout-v1.json")
    claim = Claim.decode(lease_keys.claim(7), data)
    assert claim.checkout == WorksIn("c4" * 16, "/srv/here")
    assert claim.encode() == data


def test_a_catalog_of_the_first_version_is_read_for_ever(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "catalog-v1.db", tmp_path / "catalog.db")
    catalog = Catalog(tmp_path / "catalog.db")
    assert (catalog.id, catalog.about("datastore"), catalog.about("url")) == ("c4" * 16, "d5" * 16, "file:///srv/data")
    assert catalog.position == 43
    assert [(one.name, one.content, one.slot) for one in catalog.files()] == [
        ("a.txt", SMALL, 41),
        ("data/big.bin", BIG, 41),
        ("na\u00efve/\u8a66\u9a13", AGAIN, 41),
    ]
    found = catalog.get("a.txt")
    assert found is not None
    assert found.stamp == (5, 1792137600000000000, 131091)
    assert list(catalog.condemned()) == [(OLD.key, 41)]
    outbox = Outbox(catalog.database)
    assert [(entry.commit_id, entry.slot, entry.state) for entry in outbox.entries()] == [("order-19", 44, "prepared")]
    assert outbox.undecided_floor() == 44
    catalog.close()


def tables(path: Path) -> dict[str, str]:
    with sqlite3.connect(path) as connection:
        found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"))
        ((found["user_version"],),) = connection.execute("PRAGMA user_version")
    connection.close()
    return found


def test_a_catalog_has_the_tables_of_its_golden_record(tmp_path: Path) -> None:
    """Whoever changes a table without raising its version finds that here, before a reader of the old one does."""
    catalog = Catalog(tmp_path / "catalog.db")
    Outbox(catalog.database)
    catalog.close()
    assert tables(tmp_path / "catalog.db") == tables(GOLDEN / "catalog-v1.db")


def test_a_newer_catalog_says_upgrade_and_is_not_touched(tmp_path: Path) -> None:
    datastore = Datastore.create(tmp_path / "data")
    datastore.checkout(tmp_path / "here").close()
    path = tmp_path / "here" / ".tenure" / "catalog.db"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(RecordTooNewError, match="a newer tenure") as refused:
        datastore.checkout(tmp_path / "here")
    assert (refused.value.schema, refused.value.understood, refused.value.key) == (VERSION + 1, VERSION, str(path))
    assert path.read_bytes() == before


def in_pieces() -> tuple[MemoryStore, Content]:
    """A blob in a store that takes records only."""
    store, content = MemoryStore(), Content(len(IN_PIECES), hashlib.sha256(IN_PIECES).hexdigest(), fence=7)
    Blobs(store).put(content, io.BytesIO(IN_PIECES))
    return store, content


def ending(data: bytes) -> tuple[MemoryStore, Content]:
    store, content = in_pieces()
    store.delete(f"{content.key}/end")
    store.create(f"{content.key}/end", data)
    return store, content


def test_the_end_of_a_blob_in_pieces_is_read_for_ever_and_written_so_today() -> None:
    store, content = in_pieces()
    stored = store.read(f"{content.key}/end")
    assert stored is not None
    assert stored.data == golden("blob-end-v1.json")
    with Blobs(store).open(content) as source:
        assert source.read() == IN_PIECES


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"3", b"{}", b'{"v":1}', b'{"v":1,"pieces":"3"}', b'{"v":1,"pieces":-1}', b'{"v":true,"pieces":3}'],
)
def test_the_end_of_a_blob_that_cannot_be_read_is_named_and_kept(data: bytes) -> None:
    store, content = ending(data)
    with pytest.raises(RecordError, match="damaged") as refused:
        Blobs(store).open(content)
    assert not isinstance(refused.value, RecordTooNewError)
    assert refused.value.key == f"{content.key}/end"
    stored = store.read(f"{content.key}/end")
    assert stored is not None
    assert stored.data == data


def test_a_newer_end_of_a_blob_says_upgrade() -> None:
    store, content = ending(b'{"v":2,"chunks":"many"}')
    with pytest.raises(RecordTooNewError, match="a newer tenure") as refused:
        Blobs(store).open(content)
    assert (refused.value.schema, refused.value.understood) == (2, 1)


def test_a_piece_that_is_missing_is_damage_like_any_other() -> None:
    store, content = in_pieces()
    store.delete(f"{content.key}/00000001")
    with pytest.raises(RecordError, match="missing") as refused, Blobs(store).open(content) as source:
        source.read()
    assert refused.value.key == f"{content.key}/00000001"


def test_verify_names_a_blob_of_which_a_piece_is_missing_and_goes_on(tmp_path: Path) -> None:
    store = MemoryStore()
    datastore = Datastore.create(store)
    with datastore.checkout(tmp_path / "here") as checkout, checkout.writer() as writer:
        writer.put("a", IN_PIECES)
        writer.put("b", b"y" * len(IN_PIECES))
        writer.commit()
    assert list(datastore.verify()) == []
    pieces = [key for key in store.list("blob/") if key.endswith("/00000001")]
    for piece in pieces:
        store.delete(piece)
    assert len(pieces) == 2
    assert {damage.key for damage in datastore.verify()} == {piece.rpartition("/")[0] for piece in pieces}


def damaged_in_the_middle(tmp_path: Path) -> tuple[Datastore, MemoryStore]:
    """A store with five versions, of which the fourth cannot be read, and the second has lost its content."""
    store = MemoryStore()
    datastore = Datastore.create(store)
    with datastore.checkout(tmp_path / "there") as checkout, checkout.writer() as writer:
        for number in range(4):
            writer.put(f"{number}", b"%d" % number * 10_000 if number == 0 else b"small")
            writer.commit()
    store.delete(_keys.entry(4))
    store.create(_keys.entry(4), b"?")
    return datastore, store


def test_a_catch_up_brings_the_files_to_the_version_before_a_damaged_one(tmp_path: Path) -> None:
    datastore, _ = damaged_in_the_middle(tmp_path)
    with datastore.checkout(tmp_path / "here") as checkout:
        with pytest.raises(RecordError, match=_keys.entry(4)):
            checkout.catch_up()
        assert checkout.position == 3
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == [".tenure", "0", "1"]


def test_verify_says_which_version_is_damaged_and_looks_at_all_before_it(tmp_path: Path) -> None:
    datastore, store = damaged_in_the_middle(tmp_path)
    blob = next(datastore.blobs.names())
    datastore.blobs.delete(blob)
    assert [(damage.slot, damage.key) for damage in datastore.verify()] == [(2, blob), (4, _keys.entry(4))]
    assert store.read(_keys.entry(4)) is not None


def test_a_list_of_what_is_under_way_passes_over_what_it_does_not_understand(tmp_path: Path) -> None:
    """It has no version: whoever writes it dies with it, or is put right by a reader of the same machine."""
    journal = Journal(tmp_path, 7)
    journal.note("a.txt")
    journal.close()
    with (tmp_path / "underway.7").open("ab") as file:
        file.write(b'{"v":2}\n"../x"\n' + b"[" * 100_000 + b'\n"b.t')
    assert list(Journal(tmp_path, 7).names()) == ["a.txt"]
