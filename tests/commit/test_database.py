"""A database file: whose it is, what a transaction promises, and what is said when it cannot be used."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure._commit._database import APPLICATION_ID, Database
from tenure.errors import Error, RecordError, RecordTooNewError, StoreError, StoreUnavailableError
from tests.helpers import processes
from tests.helpers.capabilities import NEEDS_MOUNT

SCHEMA = "CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, text TEXT NOT NULL)"


def opened(path: Path, *, schema: str = SCHEMA, version: int = 1) -> Database:
    return Database(path, schema=schema, version=version)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with opened(path) as database:
        yield database


def note(database: Database, text: str) -> None:
    assert database.change("INSERT INTO note (text) VALUES (?)", [text]) == 1


def notes(database: Database) -> list[str]:
    return [text for (text,) in database.iterate("SELECT text FROM note ORDER BY id")]


def note_and_fail(database: Database, text: str) -> None:
    with database.transaction():
        note(database, text)
        raise KeyError


def test_what_was_written_is_there_for_the_next_one(path: Path) -> None:
    with opened(path) as database:
        note(database, "one")
    with opened(path) as database:
        assert notes(database) == ["one"]


def test_nobody_else_may_read_a_new_file(database: Database, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_is_synced_with_a_journal_that_does_not_come_back(database: Database) -> None:
    assert database.execute("PRAGMA journal_mode") == [("truncate",)]
    assert database.execute("PRAGMA synchronous") == [(2,)]


def test_a_transaction_that_raises_changes_nothing(database: Database) -> None:
    with pytest.raises(KeyError):
        note_and_fail(database, "one")
    assert notes(database) == []


def test_a_transaction_inside_another_joins_it(database: Database) -> None:
    def within() -> None:
        with database.transaction():
            with database.transaction():
                note(database, "one")
            raise KeyError

    with pytest.raises(KeyError):
        within()
    assert notes(database) == []


def test_what_failed_inside_is_not_committed_by_whoever_carries_on_outside(database: Database) -> None:
    with database.transaction():
        with pytest.raises(KeyError):
            note_and_fail(database, "one")
        with pytest.raises(StoreError, match="this transaction has failed"):
            note(database, "two")
    assert notes(database) == []
    note(database, "three")
    assert notes(database) == ["three"]


def test_many_are_written_all_or_none(database: Database) -> None:
    assert database.executemany("INSERT INTO note (text) VALUES (?)", [("one",), ("two",)]) == 2
    with pytest.raises(sqlite3.IntegrityError):
        database.executemany("INSERT INTO note (text) VALUES (?)", [("three",), (None,)])
    assert notes(database) == ["one", "two"]


def test_threads_take_turns(database: Database) -> None:
    def write() -> None:
        for _ in range(20):
            with database.transaction():
                ((count,),) = database.execute("SELECT count(*) FROM note")
                note(database, str(count))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert notes(database) == [str(number) for number in range(80)]


def test_a_reader_that_stops_half_way_lets_others_write(database: Database, path: Path) -> None:
    database.executemany("INSERT INTO note (text) VALUES (?)", [("x",)] * 1000)
    rows = database.iterate("SELECT id FROM note")
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    with opened(path) as other:
        note(other, "two")


def test_a_process_that_writes_too_long_is_reported_as_busy(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure._commit._database.BUSY_TIMEOUT_S", 0.0)
    with opened(path) as other, database.transaction():
        with pytest.raises(StoreUnavailableError, match="database is locked") as caught:
            note(other, "one")
        with pytest.raises(StoreUnavailableError), other.transaction():
            pass
    assert caught.value.applied is False
    assert str(path) in str(caught.value)
    assert caught.value.hint


def test_a_commit_that_is_refused_says_that_nothing_was_applied(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure._commit._database.BUSY_TIMEOUT_S", 0.0)
    database.executemany("INSERT INTO note (text) VALUES (?)", [("x",)] * 1000)
    reading = database.iterate("SELECT text FROM note")
    next(reading)
    with opened(path) as other:
        with pytest.raises(StoreUnavailableError) as caught:
            note(other, "late")
        with pytest.raises(StoreUnavailableError) as in_transaction, other.transaction():
            note(other, "late")
    assert (caught.value.applied, in_transaction.value.applied) == (False, False)
    assert len(list(reading)) == 999


def test_a_disk_that_is_full_is_no_damage(database: Database) -> None:
    ((pages,),) = database.execute("PRAGMA page_count")
    database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailableError, match="is full"), database.transaction():
        database.executemany("INSERT INTO note (text) VALUES (?)", [("x" * 1000,)] * 100)
    assert notes(database) == []


def test_nothing_is_written_outside_a_transaction_that_sqlite_has_rolled_back(database: Database) -> None:
    ((pages,),) = database.execute("PRAGMA page_count")
    database.execute(f"PRAGMA max_page_count = {pages}")
    with database.transaction():
        with pytest.raises(StoreUnavailableError, match="is full"):
            note(database, "x" * 100_000)
        with pytest.raises(StoreError, match="this transaction has failed"):
            note(database, "alone")
    assert notes(database) == []


def test_a_newer_one_says_upgrade_and_is_kept(path: Path) -> None:
    opened(path, version=3).close()
    before = path.read_bytes()
    with pytest.raises(RecordTooNewError, match="a newer tenure") as caught:
        opened(path, version=2)
    assert (caught.value.schema, caught.value.understood, caught.value.key) == (3, 2, str(path))
    assert caught.value.hint == "upgrade tenure on this machine"
    assert path.read_bytes() == before


def test_an_older_one_is_brought_up_to_date_and_keeps_what_it_has(path: Path) -> None:
    with opened(path) as database:
        note(database, "old")
    newer = f"{SCHEMA}; CREATE TABLE IF NOT EXISTS more (id INTEGER PRIMARY KEY)"
    with opened(path, schema=newer, version=2) as database:
        assert notes(database) == ["old"]
        assert database.execute("SELECT count(*) FROM more") == [(0,)]
    with pytest.raises(RecordTooNewError):
        opened(path)


def _garbage(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be one" * 100)


def _torn(path: Path) -> None:
    with opened(path) as database:
        database.executemany("INSERT INTO note (text) VALUES (?)", [("x" * 1000,)] * 100)
    os.truncate(path, 4096 * 2)


def _foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE cookies (name TEXT)")
    connection.commit()
    connection.close()


def _of_another_application(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 7")
    connection.close()


def _without_its_table(path: Path) -> None:
    opened(path, schema="CREATE TABLE IF NOT EXISTS other (id INTEGER)").close()


@pytest.mark.parametrize("spoil", [_garbage, _torn, _foreign, _of_another_application, _without_its_table])
def test_a_file_that_is_damaged_or_not_ours_is_said_and_kept(path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(RecordError) as caught, opened(path) as database:
        list(database.iterate("SELECT * FROM note"))
    assert not isinstance(caught.value, RecordTooNewError)
    assert (caught.value.key, bool(caught.value.reason)) == (str(path), True)
    assert "kept as it is" in str(caught.value.hint)
    assert path.read_bytes() == before


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    opened(target).close()
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(StoreError, match="a symbolic link"):
        opened(link)


def test_a_missing_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot open the database"):
        opened(tmp_path / "missing" / "notes.db")


@NEEDS_MOUNT
def test_it_can_be_read_on_a_read_only_mount(path: Path) -> None:
    """SQLite falls back to reading, and nothing of ours writes when there is nothing to do."""
    with opened(path) as database:
        note(database, "one")
    code = (
        "from tenure._commit._database import Database\n"
        f"database = Database({str(path)!r}, schema={SCHEMA!r}, version=1)\n"
        "print(database.execute('SELECT text FROM note'))"
    )
    mounted = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && ! touch "$0/x" 2>/dev/null && exec "$@"'
    found = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, str(path.parent), sys.executable, "-c", code],
        cwd=processes.ROOT / "python",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.stdout, found.stderr) == ("[('one',)]\n", "")


def test_a_second_close_does_nothing_and_a_closed_one_says_so(database: Database) -> None:
    database.close()
    database.close()
    with pytest.raises(StoreError, match="this database is closed"):
        notes(database)


def run(program: str) -> str:
    """What *program* printed, errors included, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=processes.ROOT / "python",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ran.stdout


def _answers_of_a_child(do: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            do()
        except Error:
            os._exit(3)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_is_refused_and_closes_nothing(database: Database) -> None:
    assert _answers_of_a_child(lambda: note(database, "from the child")) == 3
    assert _answers_of_a_child(database.close) == 0
    note(database, "from the parent")
    assert notes(database) == ["from the parent"]


def test_a_forked_child_that_ends_as_usual_rolls_nothing_back(path: Path) -> None:
    """An interpreter closes at its end all that it can reach; the parent is in the middle of a transaction."""
    code = f"""
import os, sys
from tenure._commit._database import Database
database = Database({str(path)!r}, schema={SCHEMA!r}, version=1)
with database.transaction():
    # Enough to be written to the file before the end.
    database.execute("PRAGMA cache_size = 1")
    database.executemany("INSERT INTO note (text) VALUES (?)", [("x" * 1000,)] * 1000)
    if os.fork() == 0:
        sys.exit()
    os.wait()
print(database.execute("SELECT count(*) FROM note"), database.execute("PRAGMA integrity_check"))
"""
    assert run(code) == "[(1000,)] [('ok',)]\n"


def test_a_writer_that_is_killed_in_the_middle_leaves_nothing_of_it(path: Path) -> None:
    code = f"""
import os, signal
from tenure._commit._database import Database
database = Database({str(path)!r}, schema={SCHEMA!r}, version=1)
database.change("INSERT INTO note (text) VALUES ('kept')")
with database.transaction():
    database.execute("PRAGMA cache_size = 1")
    database.executemany("INSERT INTO note (text) VALUES (?)", [("x" * 1000,)] * 1000)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    run(code)
    with opened(path) as database:
        assert notes(database) == ["kept"]


def test_its_header_says_whose_it_is(database: Database, path: Path) -> None:
    assert path.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4, "big") == b"TNUR"
