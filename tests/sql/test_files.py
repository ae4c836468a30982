"""Files in a database: the seed's own test and its mirror image, then what each change must do at the fence."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from tenure import FencedError, WriterBusyError, WriterLease
from tenure._lease import _keys
from tenure.sql import (
    EpochFence,
    FileEdit,
    FileStorage,
    ScopedFiles,
    ScopeExistsError,
    ScopeGoneError,
    ScopeLostError,
    StaleEpochError,
)
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.helpers.processes import PATIENCE
from tests.sql.databases import SCOPE, Database
from tests.sql.stalled_writer import SKEW, TTL
from tests.sql.test_lost_update import Stalled


@pytest.fixture
def storage(empty: Database) -> FileStorage:
    return another(empty, migrate=True)


def another(database: Database, *, migrate: bool = False) -> FileStorage:
    """As another program has it, with connections of its own."""
    storage = FileStorage(database.engine())
    if migrate:
        storage.migrate()
    return storage


@pytest.fixture
def files(storage: FileStorage) -> ScopedFiles:
    files = storage.create(SCOPE)
    with files.edit() as edit:
        edit.write("a.txt", b"base")
        edit.mkdir("docs")
        edit.write("docs/b.txt", b"b")
        edit.mkdir("empty")
    return files


def content(database: Database, path: str = "a.txt") -> str | None:
    """A file's content, read from the tables and not through anything of ours."""
    statement = "SELECT data FROM tenure_blob JOIN tenure_entry USING (digest) WHERE scope = :scope AND path = :path"
    with database.engine().connect() as connection:
        data = connection.scalar(text(statement), {"scope": SCOPE, "path": path})
    return None if data is None else bytes(data).decode()


def everything(database: Database) -> list[tuple[object, ...]]:
    with database.engine().connect() as connection:
        entries = connection.execute(text("SELECT scope, path, digest FROM tenure_entry ORDER BY scope, path"))
        return [tuple(row) for row in entries]


# The test


class StalledFiles(Stalled):
    def __init__(self, directory: Path, database: Database) -> None:
        command = [sys.executable, "-m", "tests.sql.stalled_files", str(directory), database.url]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.says() == "base"


@NEEDS_LINUX_PROC
def test_a_writer_whose_lease_expired_before_its_first_write_loses_to_the_one_who_took_over(
    empty: Database, files: ScopedFiles, tmp_path: Path
) -> None:
    # Of another machine by its record, and without a lifeline here: nobody can know whether it lives, and its ttl decides.
    with closing(StalledFiles(tmp_path / "lease", empty)) as a:
        a.stop()
        successor = WriterLease(tmp_path / "lease", ttl=TTL, skew=SKEW, host_id="b", host_id_is_unique=True)
        nonce = successor.inspect().nonce
        assert nonce is not None
        (tmp_path / "lease" / _keys.lifeline(nonce)).unlink()
        with pytest.raises(WriterBusyError):
            successor.acquire()
        with successor.acquire(timeout=PATIENCE):
            the_successor_wins(a, empty)


def test_a_writer_whose_lease_was_deleted_before_its_first_write_loses_too(
    empty: Database, files: ScopedFiles, tmp_path: Path
) -> None:
    with closing(StalledFiles(tmp_path / "lease", empty)) as a:
        a.stop()
        for path in (tmp_path / "lease" / _keys.PREFIX).rglob("*"):
            if path.is_file():
                path.unlink()
        with WriterLease(tmp_path / "lease").acquire(timeout=PATIENCE):
            the_successor_wins(a, empty)


def the_successor_wins(a: StalledFiles, database: Database) -> None:
    before = database.epoch()
    another(database).open(SCOPE).append("a.txt", b"+B")
    a.wake()

    assert [a.says() for _ in range(2)] == ["stale", "stale"], "at its first write, and at COMMIT"
    assert a.says() == "base+B", "what it sees when it loads again"
    assert a.says() == "base+B+A", "and when it has repeated its append"
    assert content(database) == "base+B+A"
    assert database.epoch() == (before or 0) + 2, "one for each commit, none for the refusal"


@pytest.mark.parametrize("first", ["a", "b"])
def test_whoever_reports_success_is_in_the_final_content(empty: Database, files: ScopedFiles, first: str) -> None:
    """The mirror image: if A commits first after all, it is B that is refused."""
    writers = {"a": another(empty).open(SCOPE), "b": another(empty).open(SCOPE)}
    second = "b" if first == "a" else "a"
    writers[first].append("a.txt", f"+{first}".encode())
    with pytest.raises(StaleEpochError):
        writers[second].append("a.txt", f"+{second}".encode())
    assert content(empty) == f"base+{first}"
    writers[second].reload()
    writers[second].append("a.txt", f"+{second}".encode())
    assert content(empty) == f"base+{first}+{second}"


def test_a_peer_that_commits_after_our_first_look_is_not_overwritten(empty: Database, files: ScopedFiles) -> None:
    """The look is a courtesy. The fence refuses, at COMMIT, inside the database."""
    edit = files.edit()
    edit.append("a.txt", b"+A")
    another(empty).open(SCOPE).append("a.txt", b"+B")
    with pytest.raises(StaleEpochError):
        edit.__exit__(None, None, None)
    assert content(empty) == "base+B"


def test_a_lost_lease_is_told_at_the_first_change_and_at_the_end(
    files: ScopedFiles, empty: Database, tmp_path: Path
) -> None:
    hold = WriterLease(tmp_path / "lease").acquire()
    WriterLease(tmp_path / "lease").force_release(hold.nonce, even_if_alive=True)
    edit = files.edit(hold=hold)
    with pytest.raises(FencedError):
        edit.append("a.txt", b"+A")
    with pytest.raises(FencedError):
        edit.__exit__(None, None, None)
    assert content(empty) == "base"


# Every change

Change = Callable[[FileEdit], None]

CHANGES: dict[str, tuple[Change, Change | None, Change]] = {
    # What it does; what changes nothing; what cannot be done.
    "write": (
        lambda edit: edit.write("c.txt", b"c"),
        lambda edit: edit.write("a.txt", b"base"),
        lambda edit: edit.write("absent/c.txt", b"c"),
    ),
    "append": (
        lambda edit: edit.append("a.txt", b"+"),
        lambda edit: edit.append("a.txt", b""),
        lambda edit: edit.append("docs", b"+"),
    ),
    "mkdir": (
        lambda edit: edit.mkdir("new/deep", parents=True),
        lambda edit: edit.mkdir("docs", exist_ok=True),
        lambda edit: edit.mkdir("a.txt"),
    ),
    "move": (
        lambda edit: edit.move("docs", "moved"),
        lambda edit: edit.move("docs", "docs"),
        lambda edit: edit.move("docs", "docs/inside"),
    ),
    "remove": (lambda edit: edit.remove("docs", recursive=True), None, lambda edit: edit.remove("docs")),
}
each_change = pytest.mark.parametrize("name", CHANGES)


def public(kind: type) -> set[str]:
    return {name for name, member in inspect.getmembers(kind) if callable(member) and not name.startswith("_")}


def test_every_change_has_its_case() -> None:
    """A new one without a case fails here, and one that goes past the edit has no case to be added to."""
    assert public(FileEdit) == set(CHANGES)
    looks = {"read", "list", "look", "reload"}
    assert public(ScopedFiles) == set(CHANGES) | looks | {"edit", "destroy"}
    assert public(FileStorage) == {"create", "open", "load", "migrate", "collect"}


@each_change
def test_a_change_takes_one_number(empty: Database, files: ScopedFiles, name: str) -> None:
    before, pin = everything(empty), files.pin
    with files.edit() as edit:
        CHANGES[name][0](edit)
    assert files.pin.epoch == pin.epoch + 1 == empty.epoch()
    assert everything(empty) != before
    again = another(empty).open(SCOPE)
    assert (again.pin, again._entries) == (files.pin, files._entries), "what is in memory is what is there"


@each_change
def test_a_change_that_changes_nothing_takes_none(empty: Database, files: ScopedFiles, name: str) -> None:
    nothing = CHANGES[name][1]
    if nothing is None:
        # Whatever is removed was there.
        return
    before, pin = everything(empty), files.pin
    with files.edit() as edit:
        nothing(edit)
    assert (files.pin, empty.epoch(), everything(empty)) == (pin, pin.epoch, before)


@each_change
def test_a_change_that_cannot_be_done_takes_none(empty: Database, files: ScopedFiles, name: str) -> None:
    before, pin = everything(empty), files.pin

    def change(edit: FileEdit) -> None:
        with edit:
            CHANGES["write"][0](edit)
            CHANGES[name][2](edit)

    with pytest.raises(OSError, match=r"."):
        change(files.edit())
    assert (files.pin, empty.epoch(), everything(empty)) == (pin, pin.epoch, before)


@each_change
@pytest.mark.parametrize("blind", [False, True], ids=["looking", "blind"])
def test_a_stale_writer_cannot_change_anything_whatever_it_catches(
    empty: Database, files: ScopedFiles, name: str, blind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    another(empty).open(SCOPE).append("docs/b.txt", b"+B")
    before, epoch = everything(empty), empty.epoch()
    if blind:
        # Then only the fence is left, in the database.
        monkeypatch.setattr(ScopedFiles, "look", lambda _: None)
    edit = files.edit()
    for _ in range(2):
        try:
            CHANGES[name][0](edit)
        except StaleEpochError:
            assert not blind
        except OSError:
            # The second time, what there was to do has been done, in memory.
            assert blind
    with pytest.raises(StaleEpochError):
        edit.__exit__(None, None, None)
    assert (everything(empty), empty.epoch()) == (before, epoch)


@each_change
def test_a_change_by_itself_is_the_same_as_in_an_edit(storage: FileStorage, files: ScopedFiles, name: str) -> None:
    parameters = [inspect.signature(getattr(kind, name)).parameters for kind in (FileEdit, ScopedFiles)]
    assert list(parameters[0].values()) == list(parameters[1].values())
    with files.edit() as edit:
        CHANGES[name][0](edit)
    twin = storage.create("twin")
    with twin.edit() as edit:
        edit.write("a.txt", b"base")
        edit.mkdir("docs")
        edit.write("docs/b.txt", b"b")
        edit.mkdir("empty")
    CHANGES[name][0](twin)  # type: ignore[arg-type]  # they have the same methods
    assert twin._entries == files._entries


# Looking


def test_what_a_stale_writer_has_in_memory_is_not_shown_as_current(empty: Database, files: ScopedFiles) -> None:
    another(empty).open(SCOPE).remove("docs", recursive=True)
    for look in (lambda: files.read("a.txt"), lambda: files.list("docs"), files.look):
        with pytest.raises(StaleEpochError):
            look()
    files.reload()
    assert files.list() == ["a.txt", "empty/"]


def test_no_look_raises_the_pin(empty: Database, files: ScopedFiles) -> None:
    """A pin that rose under what was read before would launder it."""
    another(empty).open(SCOPE).append("a.txt", b"+B")
    pin = files.pin
    with pytest.raises(StaleEpochError):
        files.read("a.txt")
    assert files.pin == pin
    with pytest.raises(StaleEpochError):
        files.append("a.txt", b"+A")


def test_files_and_directories_are_listed(files: ScopedFiles) -> None:
    assert files.list() == ["a.txt", "docs/", "empty/"]
    assert files.list("docs") == ["b.txt"]
    assert files.list("empty") == []
    with pytest.raises(FileNotFoundError):
        files.list("absent")
    with pytest.raises(NotADirectoryError):
        files.list("a.txt")
    with pytest.raises(FileNotFoundError):
        files.read("absent")
    with pytest.raises(IsADirectoryError):
        files.read("docs")


@pytest.mark.parametrize("path", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a\0b", "a ", "a" * 501])
def test_what_is_no_path_is_refused(files: ScopedFiles, path: str) -> None:
    for change in (
        lambda: files.write(path, b""),
        lambda: files.append(path, b""),
        lambda: files.mkdir(path),
        lambda: files.move("a.txt", path),
        lambda: files.remove(path),
        lambda: files.read(path),
    ):
        with pytest.raises(ValueError, match="not a path"):
            change()


def test_case_and_accents_make_different_files(files: ScopedFiles, empty: Database) -> None:
    """MySQL's own collations would take them for one."""
    with files.edit() as edit:
        for name in ("A.TXT", "ä.txt"):
            edit.write(name, name.encode())
    again = another(empty).open(SCOPE)
    assert [again.read(name) for name in ("a.txt", "A.TXT", "ä.txt")] == [b"base", b"A.TXT", "ä.txt".encode()]


def test_a_large_file_comes_back_whole(files: ScopedFiles) -> None:
    data = bytes(range(256)) * 8192
    files.write("large", data)
    assert files.read("large") == data


# Scopes


def test_a_destroyed_scope_is_gone_for_whoever_has_it_in_memory(empty: Database, files: ScopedFiles) -> None:
    other, idle = another(empty).open(SCOPE), another(empty).open(SCOPE)
    other.destroy()
    assert everything(empty) == []
    for use in (lambda: idle.read("a.txt"), lambda: idle.append("a.txt", b"x"), idle.reload, idle.list, idle.destroy):
        with pytest.raises(ScopeGoneError):
            use()


def test_a_scope_that_is_made_anew_refuses_its_old_writers(storage: FileStorage, files: ScopedFiles) -> None:
    old = storage.open(SCOPE)
    files.destroy()
    new = storage.create(SCOPE)
    assert new.pin.epoch > old.pin.epoch
    for use in (lambda: old.append("a.txt", b"x"), lambda: old.read("a.txt"), old.destroy):
        with pytest.raises(StaleEpochError):
            use()
    assert new.list() == []
    with pytest.raises(ScopeExistsError):
        storage.create(SCOPE)


def test_a_stale_writer_cannot_destroy(empty: Database, files: ScopedFiles) -> None:
    another(empty).open(SCOPE).append("a.txt", b"+B")
    with pytest.raises(StaleEpochError):
        files.destroy()
    assert content(empty) == "base+B"


def test_scopes_do_not_fence_each_other_and_share_contents(
    empty: Database, storage: FileStorage, files: ScopedFiles
) -> None:
    other = storage.create("other")
    other.write("a.txt", b"base")
    files.append("a.txt", b"+A")
    assert other.read("a.txt") == b"base"
    with empty.engine().connect() as connection:
        assert connection.scalar(text("SELECT COUNT(*) FROM tenure_blob")) == 3


def test_an_edit_whose_commit_is_only_known_later_leaves_the_tree_as_it_was(
    empty: Database, files: ScopedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, pin = dict(files._entries), files.pin

    def fail(*_: object) -> None:
        raise ScopeLostError("as if the database had failed")

    monkeypatch.setattr(type(files._storage.tables), "change", fail)
    with pytest.raises(ScopeLostError):
        files.append("a.txt", b"+A")
    assert (files._entries, files.pin, content(empty)) == (before, pin, "base")


# Contents that nobody needs


def test_only_what_no_tree_refers_to_is_collected_and_only_after_its_grace(
    storage: FileStorage, files: ScopedFiles, empty: Database
) -> None:
    files.write("a.txt", b"new")
    make_older(empty, 3600)
    assert storage.collect() == 0, "it was touched within its grace"
    make_older(empty, 3 * 3600)
    assert storage.collect() == 1, "base"
    assert [files.read(path) for path in ("a.txt", "docs/b.txt")] == [b"new", b"b"]
    assert storage.collect() == 0


def test_a_content_that_was_collected_before_it_was_referred_to_refuses_the_change(
    storage: FileStorage, files: ScopedFiles, empty: Database
) -> None:
    edit = files.edit()
    edit.write("c.txt", b"c")
    make_older(empty, 4 * 3600)
    assert storage.collect() == 1
    with pytest.raises(ScopeLostError, match="collected") as refused:
        edit.__exit__(None, None, None)
    assert refused.value.applied is False
    assert content(empty, "c.txt") is None
    files.write("c.txt", b"c")
    assert files.read("c.txt") == b"c"


def test_a_content_that_exists_already_is_touched_and_not_collected(
    storage: FileStorage, files: ScopedFiles, empty: Database
) -> None:
    files.remove("a.txt")
    make_older(empty, 4 * 3600)
    with files.edit() as edit:
        edit.write("again.txt", b"base")
        assert storage.collect() == 0
    assert files.read("again.txt") == b"base"


def make_older(database: Database, seconds: int) -> None:
    with database.engine().begin() as connection:
        connection.execute(text("UPDATE tenure_blob SET touched = touched - :seconds"), {"seconds": seconds})


# Tables


def test_a_change_past_the_fence_is_found_out(empty: Database, files: ScopedFiles) -> None:
    with empty.engine().begin() as connection:
        connection.execute(text("DELETE FROM tenure_entry WHERE path = 'a.txt'"))
    with pytest.raises(ScopeLostError, match="without the fence"):
        files.remove("a.txt")


def test_migrating_twice_changes_nothing(empty: Database, files: ScopedFiles, storage: FileStorage) -> None:
    before = everything(empty)
    storage.migrate()
    another(empty, migrate=True)
    assert everything(empty) == before


@pytest.mark.parametrize("name", ["", "a-b", "a;drop", "a.b.c", "x" * 41])
def test_a_name_that_is_no_tables_is_refused(empty: Database, name: str) -> None:
    with pytest.raises(ValueError, match="must be a name"):
        FileStorage(empty.engine(), entries=name)
    with pytest.raises(ValueError, match="must be a name"):
        FileStorage(empty.engine(), blobs=name)


def test_a_fence_of_ones_own_is_used(empty: Database) -> None:
    engine = empty.engine()
    storage = FileStorage(engine, fence=EpochFence(engine, table="own_fence"), entries="own_entry", blobs="own_blob")
    storage.migrate()
    storage.create("box").write("a", b"a")
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT epoch FROM own_fence")) == 2
        assert connection.scalar(text("SELECT COUNT(*) FROM own_entry")) == 1
