"""Checkouts: files are put, committed together, and followed everywhere else."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure import (
    Author,
    Checkout,
    ContentMismatchError,
    Datastore,
    FencedError,
    HoldError,
    RecordError,
    RecordTooNewError,
    StoreUnavailableError,
    WriterBusyError,
)
from tenure._commit import _keys
from tenure._datastore._datastore import FORMAT_KEY
from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore

BIG = b"0123456789" * 5000


def files(path: Path) -> dict[str, bytes]:
    """What lies in a checkout, apart from what is tenure's own."""
    return {
        found.relative_to(path).as_posix(): found.read_bytes()
        for found in sorted(path.rglob("*"))
        if found.is_file() and ".tenure" not in found.relative_to(path).parts
    }


def commit(checkout: Checkout, **changes: bytes | None) -> int:
    with checkout.writer() as writer:
        for name, data in changes.items():
            writer.delete(name) if data is None else writer.put(name, data)
        done = writer.commit("some changes")
    assert done is not None
    return done.slot


def test_what_one_checkout_commits_another_one_gets(checkout_at: Callable[[str], Checkout]) -> None:
    here, there = checkout_at("here"), checkout_at("there")
    with here.writer() as writer:
        writer.put("a/b/small", b"small")
        writer.put("big", BIG)
        writer.commit("both")
    assert there.catch_up().files == 2
    assert files(there.path) == {"a/b/small": b"small", "big": BIG}
    with there.writer() as writer:
        writer.put("a/b/small", b"changed")
        writer.delete("big")
        writer.commit()
    here.catch_up()
    assert files(here.path) == {"a/b/small": b"changed"}


def test_a_directory_that_became_empty_is_removed(checkout_at: Callable[[str], Checkout]) -> None:
    here, there = checkout_at("here"), checkout_at("there")
    with here.writer() as writer:
        writer.put("a/b/c", b"x")
        writer.commit()
        there.catch_up()
        writer.delete("a/b/c")
        writer.commit()
    there.catch_up()
    assert not (there.path / "a").exists()
    assert not (here.path / "a").exists()


def test_every_kind_of_source_is_put(checkout: Checkout, datastore: Datastore, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(BIG)
    with checkout.writer() as writer:
        writer.put("bytes", b"x")
        writer.put("path", tmp_path / "source")
        writer.put("text", str(tmp_path / "source"))
        writer.put("stream", io.BytesIO(BIG))
        (checkout.path / "in place").write_bytes(b"written by a tool")
        writer.put("in place")
        writer.put("empty", b"")
        writer.commit()
    expected = {"bytes": b"x", "path": BIG, "text": BIG, "stream": BIG, "in place": b"written by a tool", "empty": b""}
    assert {change.name: datastore.read(change.name) for change in datastore.files()} == expected


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 100_000])
def test_content_is_the_same_whether_it_travels_inline_or_not(
    checkout: Checkout, datastore: Datastore, size: int
) -> None:
    data = os.urandom(size)
    commit(checkout, f=data)
    assert datastore.read("f") == data
    assert bool(list(datastore.blobs.names())) == (size > 8192)


def test_content_that_is_there_already_is_not_stored_again(checkout: Checkout, datastore: Datastore) -> None:
    commit(checkout, a=BIG)
    commit(checkout, b=BIG, c=BIG)
    assert len(list(datastore.blobs.names())) == 1


def test_old_versions_are_read(checkout: Checkout, datastore: Datastore) -> None:
    first = commit(checkout, f=b"one", g=BIG)
    second = commit(checkout, f=b"two", g=None)
    assert (datastore.read("f", at=first), datastore.read("f", at=second), datastore.read("f")) == (
        b"one",
        b"two",
        b"two",
    )
    assert datastore.read("g", at=first) == BIG
    with pytest.raises(FileNotFoundError):
        datastore.read("g")
    with pytest.raises(ValueError, match="no version 99 yet"):
        datastore.read("f", at=99)
    assert [change.name for change in datastore.files(at=first)] == ["f", "g"]


def test_nothing_is_committed_when_nothing_has_changed(checkout: Checkout, datastore: Datastore) -> None:
    commit(checkout, f=b"x")
    newest = datastore.commits.head
    with checkout.writer() as writer:
        writer.put("f", b"x")
        assert writer.commit() is None
    assert datastore.commits.head == newest + 1  # the seal


def test_what_was_not_committed_is_moved_aside_when_the_writer_closes(checkout: Checkout) -> None:
    commit(checkout, f=b"committed")
    writer = checkout.writer()
    writer.put("f", b"changed")
    writer.put("new", b"new")
    fence = writer.fence
    moved = writer.close()
    assert files(checkout.path) == {"f": b"committed"}
    assert set(moved) == {f".tenure/interrupted/{fence}/f", f".tenure/interrupted/{fence}/new"}
    assert (checkout.path / ".tenure" / "interrupted" / str(fence) / "f").read_bytes() == b"changed"
    assert list((checkout.path / ".tenure").glob("*." + str(fence))) == []


def test_a_file_that_changed_between_put_and_commit_refuses_the_whole_commit(
    checkout: Checkout, datastore: Datastore
) -> None:
    with checkout.writer() as writer:
        writer.put("small", b"x")
        writer.put("big", BIG)
        (checkout.path / "big").write_bytes(BIG[:-1] + b"?")
        with pytest.raises(ContentMismatchError) as caught:
            writer.commit()
        assert caught.value.path == "big"
        assert caught.value.staged == f"{len(BIG)}:{hashlib.sha256(BIG).hexdigest()}"
        assert list(datastore.files()) == []
        assert list(datastore.blobs.names()) == []
        writer.put("big", BIG)
        assert writer.commit() is not None
    assert datastore.read("big") == BIG


@pytest.mark.parametrize("how", ["shorter", "longer", "gone", "a link"])
def test_every_way_to_change_a_staged_file_is_noticed(checkout: Checkout, how: str) -> None:
    with checkout.writer() as writer:
        writer.put("big", BIG)
        path = checkout.path / "big"
        if how == "shorter":
            path.write_bytes(BIG[:-1])
        elif how == "longer":
            path.write_bytes(BIG + b"x")
        else:
            path.unlink()
            if how == "a link":
                path.symlink_to("/etc/passwd")
        with pytest.raises(ContentMismatchError):
            writer.commit()


def test_content_stored_before_is_compared_with_the_file_all_the_same(checkout: Checkout) -> None:
    commit(checkout, a=BIG)
    with checkout.writer() as writer:
        writer.put("b", BIG)
        (checkout.path / "b").write_bytes(BIG[:-1] + b"?")
        with pytest.raises(ContentMismatchError):
            writer.commit()


def test_a_local_change_is_moved_aside_and_listed_when_a_catch_up_needs_its_place(
    checkout_at: Callable[[str], Checkout],
) -> None:
    here, there = checkout_at("here"), checkout_at("there")
    commit(here, f=b"one", g=b"one")
    there.catch_up()
    (there.path / "f").write_bytes(b"mine")
    (there.path / "untracked").write_bytes(b"mine too")
    (there.path / "dir").mkdir()
    (there.path / "dir" / "x").write_bytes(b"deep")
    commit(here, f=b"two", untracked=b"from there", dir=b"a file", g=None)
    done = there.catch_up()
    assert files(there.path) == {"f": b"two", "untracked": b"from there", "dir": b"a file"}
    assert set(done.moved_aside) == {".tenure/aside/f", ".tenure/aside/untracked", ".tenure/aside/dir"}
    assert (there.path / ".tenure/aside/f").read_bytes() == b"mine"
    assert (there.path / ".tenure/aside/dir/x").read_bytes() == b"deep"


def test_a_file_where_a_directory_is_needed_is_moved_aside(checkout_at: Callable[[str], Checkout]) -> None:
    here, there = checkout_at("here"), checkout_at("there")
    (there.path / "a").write_bytes(b"in the way")
    with here.writer() as writer:
        writer.put("a/b", b"x")
        writer.commit()
    assert there.catch_up().moved_aside == (".tenure/aside/a",)
    assert files(there.path) == {"a/b": b"x"}


def test_nothing_is_written_through_a_link(checkout_at: Callable[[str], Checkout], tmp_path: Path) -> None:
    here, there = checkout_at("here"), checkout_at("there")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"precious")
    (there.path / "dir").symlink_to(outside)
    (there.path / "f").symlink_to(outside / "f")
    with here.writer() as writer:
        writer.put("dir/f", b"x")
        writer.put("f", b"x")
        writer.commit()
    there.catch_up()
    assert (outside / "f").read_bytes() == b"precious"
    assert files(there.path) == {"dir/f": b"x", "f": b"x"}


def test_a_file_that_somebody_deleted_comes_back_with_its_next_change(checkout_at: Callable[[str], Checkout]) -> None:
    here, there = checkout_at("here"), checkout_at("there")
    commit(here, f=b"one")
    there.catch_up()
    (there.path / "f").unlink()
    commit(here, f=b"two")
    there.catch_up()
    assert files(there.path) == {"f": b"two"}


@pytest.mark.parametrize(
    ("first", "second"), [("README", "readme"), ("a", "a/b"), ("a/b", "a"), ("A/x", "a/y"), ("straße", "STRASSE")]
)
@pytest.mark.parametrize("committed", [True, False])
def test_names_that_cannot_stand_side_by_side_are_refused(
    checkout: Checkout, first: str, second: str, committed: bool
) -> None:
    with checkout.writer() as writer:
        writer.put(first, b"x")
        if committed:
            writer.commit()
        with pytest.raises(ValueError, match="cannot stand beside"):
            writer.put(second, b"y")
        if committed:
            writer.delete(first)
            writer.put(second, b"y")
            assert writer.commit() is not None


def test_a_second_writer_is_busy_and_says_who(checkout_at: Callable[[str], Checkout]) -> None:
    here = checkout_at("here")
    with here.writer() as writer:
        with pytest.raises((WriterBusyError, HoldError)):
            checkout_at("here").writer()
        writer.put("f", b"x")
        writer.commit()
    assert here.position == 2


def test_a_replaced_writer_commits_nothing_and_leaves_the_files_to_its_successor(
    checkout: Checkout, datastore: Datastore
) -> None:
    commit(checkout, f=b"one")
    writer = checkout.writer()
    writer.put("f", b"two")
    lease = datastore.lease()
    lease.force_release(lease.inspect().nonce, even_if_alive=True)
    with datastore.lease().acquire() as hold:
        datastore.commits.open(hold)
        with pytest.raises(FencedError):
            writer.commit()
        writer.close()
    assert checkout.outbox.undecided_floor() is None
    assert datastore.read("f") == b"one"
    # Nobody has touched the files since; the next writer puts them right.
    assert files(checkout.path) == {"f": b"two"}
    assert checkout.recover().moved_aside == (f".tenure/interrupted/{writer.fence}/f",)
    assert files(checkout.path) == {"f": b"one"}


def test_a_closed_writer_says_so(checkout: Checkout) -> None:
    writer = checkout.writer()
    writer.close()
    with pytest.raises(HoldError):
        writer.put("f", b"x")
    with pytest.raises(HoldError):
        writer.commit()
    writer.close()


def test_a_commit_tried_again_with_its_id_lands_once(checkout: Checkout, datastore: Datastore) -> None:
    def nightly() -> int:
        with checkout.writer() as writer:
            writer.put("report", b"today")
            done = writer.commit(id="report-2026-11-30")
        assert done is not None
        return done.slot

    assert nightly() == nightly()
    assert [line.count for line in datastore.log() if line.kind == "commit"] == [1]


def test_a_snapshot_is_where_a_new_checkout_begins(
    checkout_at: Callable[[str], Checkout], datastore: Datastore
) -> None:
    here = checkout_at("here")
    for number in range(5):
        commit(here, f=b"%d" % number, g=BIG)
    with here.writer() as writer:
        writer.snapshot()
    commit(here, h=b"later")
    there = checkout_at("there")
    assert there.catch_up().files == 3
    assert files(there.path) == {"f": b"4", "g": BIG, "h": b"later"}
    assert datastore.read("f", at=5) == b"1"


def test_retention_gives_up_old_versions_and_their_content_in_two_passes(
    checkout: Checkout, datastore: Datastore
) -> None:
    old = commit(checkout, f=os.urandom(10_000))
    newest = commit(checkout, f=os.urandom(10_000), g=b"x")
    kept = datastore.read("f")
    done = checkout.retain(keep=1)
    assert (done.skipped, done.condemned, done.deleted) == (None, 1, 0)
    assert len(list(datastore.blobs.names())) == 2
    assert checkout.retain(keep=1).deleted == 1
    assert len(list(datastore.blobs.names())) == 1
    assert datastore.read("f") == kept
    with pytest.raises(ValueError, match="no version"):
        datastore.read("f", at=old)
    assert newest < done.oldest
    assert list(datastore.verify()) == []


def test_content_that_is_needed_again_after_it_was_condemned_is_stored_anew(
    checkout: Checkout, datastore: Datastore
) -> None:
    """So that a collector that slept deletes what nobody refers to."""
    commit(checkout, f=BIG)
    commit(checkout, f=b"x")
    checkout.retain(keep=1)
    condemned = [key for key, _ in checkout._workspace.catalog.condemned()]
    commit(checkout, f=BIG)
    for key in condemned:
        datastore.blobs.delete(key)
    assert datastore.read("f") == BIG
    with checkout.writer() as writer:
        # The same within one reign.
        writer.put("f", b"y")
        writer.commit()
        writer.retain(keep=1)
        condemned = [key for key, _ in checkout._workspace.catalog.condemned()]
        writer.put("f", BIG)
        writer.commit()
        for key in condemned:
            datastore.blobs.delete(key)
        assert datastore.read("f") == BIG


@pytest.mark.parametrize("terms", [{}, {"keep": 0}, {"older_than": -1.0}, {"older_than": float("nan")}])
def test_terms_of_retention_that_make_no_sense_are_refused(checkout: Checkout, terms: dict[str, float]) -> None:
    commit(checkout, f=b"x")
    with pytest.raises(ValueError):
        checkout.retain(**terms)  # type: ignore[arg-type]


def test_versions_younger_than_asked_for_are_kept(checkout: Checkout, datastore: Datastore) -> None:
    first = commit(checkout, f=b"one")
    commit(checkout, f=b"two")
    assert checkout.retain(keep=1, older_than=3600.0).entries == 0
    assert datastore.read("f", at=first) == b"one"


def test_verify_names_what_is_damaged(checkout: Checkout, datastore: Datastore, tmp_path: Path) -> None:
    commit(checkout, f=BIG)
    commit(checkout, g=BIG[::-1])
    assert list(datastore.verify()) == []
    store = datastore.store
    assert isinstance(store, FileStore)
    damaged, missing = sorted(datastore.blobs.names())
    store.path_of(damaged).write_bytes(b"?")
    store.path_of(missing).unlink()
    assert {problem.key for problem in datastore.verify()} == {damaged, missing}
    store.path_of(_keys.entry(3)).write_bytes(b"?")
    assert _keys.entry(3) in {problem.key for problem in datastore.verify()}


def test_a_datastore_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no datastore") as caught:
        Datastore(tmp_path / "nothing")
    assert "tenure init" in (caught.value.hint or "")


def test_making_one_twice_opens_the_first(tmp_path: Path) -> None:
    assert Datastore.create(tmp_path / "data").id == Datastore.create(tmp_path / "data").id


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (b'{"v":9,"kind":"datastore","format":9,"reader":9,"id":"x"}', RecordTooNewError),
        (b'{"v":2,"kind":"datastore","format":2,"reader":1,"id":"x","more":1}', None),
        (b"{", RecordError),
        (b'{"kind":"else"}', RecordError),
        (b"[]", RecordError),
    ],
)
def test_the_format_says_who_may_read_it(record: bytes, error: type[Exception] | None) -> None:
    store = MemoryStore()
    store.create(FORMAT_KEY, record)
    if error is None:
        assert Datastore(store).id == "x"
    else:
        with pytest.raises(error):
            Datastore(store)


def test_a_checkout_of_another_datastore_is_refused(tmp_path: Path, checkout: Checkout) -> None:
    other = Datastore.create(tmp_path / "other")
    with pytest.raises(RecordError, match="another datastore"):
        other.checkout(checkout.path)


def test_a_damaged_catalog_is_kept_and_named(datastore: Datastore, tmp_path: Path) -> None:
    datastore.checkout(tmp_path / "c").close()
    catalog = tmp_path / "c" / ".tenure" / "catalog.db"
    catalog.write_bytes(b"no database at all" * 100)
    with pytest.raises(RecordError, match=r"catalog\.db"):
        datastore.checkout(tmp_path / "c")
    assert catalog.read_bytes() == b"no database at all" * 100


def test_an_unknown_commit_is_settled_by_the_next_call(tmp_path: Path) -> None:
    store = MemoryStore()
    datastore = Datastore.create(store, patience_s=0.0)
    with datastore.checkout(tmp_path / "c") as checkout, checkout.writer() as writer:
        writer.put("f", b"x")
        store.on("create", "log/0", nth=0).lose_reply()
        store.on("read", "log/0", nth=0).fail()
        with pytest.raises(Exception, match="may have landed"):
            writer.commit("once")
        assert checkout.outbox.undecided_floor() == 2
        store.heal()
        done = writer.commit("once")
        assert done is not None
        assert done.slot == 2
        assert checkout.outbox.undecided_floor() is None
    assert [line.message for line in datastore.log() if line.kind == "commit"] == ["once"]


def test_a_commit_that_was_not_sent_stays_staged(tmp_path: Path) -> None:
    store = MemoryStore()
    datastore = Datastore.create(store, patience_s=0.0)
    with datastore.checkout(tmp_path / "c") as checkout, checkout.writer() as writer:
        writer.put("f", b"x")
        store.on("create", "log/0").fail()
        with pytest.raises(StoreUnavailableError):
            writer.commit()
        assert checkout.outbox.undecided_floor() is None
        assert writer.commit() is not None
    assert datastore.read("f") == b"x"


def test_a_prepared_commit_that_was_never_sent_is_taken_back_before_the_next_takes_its_slot(
    checkout: Checkout, datastore: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the model: once the slot was collected, it would have been said to have landed."""

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with checkout.writer() as writer:
        writer.put("f", b"x")
        with monkeypatch.context() as patch:
            patch.setattr(writer._log, "put", cut_off)
            with pytest.raises(KeyboardInterrupt):
                writer.commit("cut off")
        assert checkout.outbox.undecided_floor() == 2
        done = writer.commit("again")
        assert done is not None
        assert done.slot == 2
        assert checkout.outbox.undecided_floor() is None
    assert [line.message for line in datastore.log() if line.kind == "commit"] == ["again"]


def test_a_commit_that_landed_while_its_writer_was_cut_off_is_found_by_the_next_call(
    checkout: Checkout, datastore: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with checkout.writer() as writer:
        writer.put("f", b"x")
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_record", cut_off)
            with pytest.raises(KeyboardInterrupt):
                writer.commit("landed")
        done = writer.commit("landed")
        assert done is not None
        assert done.slot == 2
        assert checkout.outbox.undecided_floor() is None
    assert [line.message for line in datastore.log() if line.kind == "commit"] == ["landed"]


def test_a_name_that_this_writer_condemned_is_not_used_again_while_it_writes(
    checkout: Checkout, datastore: Datastore
) -> None:
    """A delete that got no answer may still be on its way."""
    with checkout.writer() as writer:
        writer.put("f", BIG)
        writer.commit()
        writer.put("f", b"x")
        writer.commit()
        writer.retain(keep=1)
        (late,) = [key for key, _ in checkout._workspace.catalog.condemned()]
        writer.retain(keep=1)
        assert list(datastore.blobs.names()) == []
        writer.put("f", BIG)
        writer.commit()
        datastore.blobs.delete(late)
        assert datastore.read("f") == BIG


@pytest.mark.parametrize("how", ["refused", "unknown"])
def test_a_commit_that_landed_is_not_reported_as_failed_because_of_the_snapshot_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Found by the simulation, seed 30."""
    monkeypatch.setattr("tenure._datastore._writer.SNAPSHOT_EVERY", 1)
    store = MemoryStore()
    datastore = Datastore.create(store, patience_s=0.0)
    with datastore.checkout(tmp_path / "c") as checkout, checkout.writer() as writer:
        writer.put("f", b"x")
        fault = store.on("create", _keys.entry(3))
        if how == "refused":
            fault.fail()
        else:
            fault.lose_reply()
            store.on("read", _keys.entry(3)).fail()
        done = writer.commit("landed")
        assert done is not None
        assert done.slot == 2
        writer.put("f", b"y")
        assert writer.commit("next") is not None
    assert datastore.read("f") == b"y"
    assert [line.message for line in datastore.log() if line.kind == "commit"] == ["landed", "next"]


def test_an_outbox_entry_that_cannot_be_read_keeps_nobody_from_writing(
    checkout: Checkout, datastore: Datastore
) -> None:
    commit(checkout, f=b"x")
    checkout.outbox.prepare("damaged", b"no entry", author=Author(1, "0" * 32, None), slot=2)
    commit(checkout, f=b"y")
    (entry,) = checkout.outbox.entries("landing")
    assert "damaged" in (entry.note or "")
    assert datastore.read("f") == b"y"
