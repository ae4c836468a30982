# ruff: noqa: PT012  what is raised at the end of a block depends on all that was done in it
"""SQLite: BEGIN is ours and IMMEDIATE, and what its two kinds of busy mean."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import IntegrityError, OperationalError

from tenure import StoreCannotLockError
from tenure.sql import Applied, EpochFence, FenceError, NotApplied, ScopeLostError
from tenure.sql._failures import classify
from tests.sql.conftest import SQLITE
from tests.sql.databases import LOAD, SCOPE, STORE, Database, Writer

pytestmark = pytest.mark.parametrize("empty", [SQLITE], indirect=True)

IMPATIENT: dict[str, Any] = {"connect_args": {"timeout": 0.05}}


def test_busy_before_the_fence_has_applied_nothing_and_the_pin_is_still_good(database: Database) -> None:
    a = Writer(EpochFence(database.engine(**IMPATIENT))).load()
    with database.fence().write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        with pytest.raises(ScopeLostError) as busy:
            a.append("+A")
        assert (busy.value.applied, busy.value.retry) == (False, "same")
        tx.withdraw()
    a.append("+A")
    assert database.body() == "base+A"


def test_a_snapshot_that_is_too_old_to_write_from_is_a_conflict_and_no_lock(database: Database, tmp_path: Path) -> None:
    """The reason for IMMEDIATE: no patience cures it, and any change of the file brings it about."""
    with database.engine().connect() as late:
        late.exec_driver_sql("BEGIN")
        late.scalar(LOAD, {"id": SCOPE})
        Writer(database.fence()).load().append("+B")
        with pytest.raises(OperationalError) as failed:
            late.execute(STORE, {"id": SCOPE, "body": "x"})
    assert classify(failed.value) == "conflict"


def test_a_write_that_read_first_is_not_too_late(database: Database) -> None:
    a = Writer(database.fence()).load()
    with a.fence.write(a.pin) as tx:
        tx.scalar(LOAD, {"id": SCOPE})
        with pytest.raises(ScopeLostError, match="locked"):
            Writer(EpochFence(database.engine(**IMPATIENT))).load().append("+B")
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
    assert database.body() == "x"


def test_a_conflict_clause_that_rolls_back_leaves_nothing_to_write_on(database: Database) -> None:
    """Afterwards each statement would be durable by itself."""
    a = Writer(database.fence()).load()
    with pytest.raises(FenceError), a.fence.write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "first"})
        with pytest.raises(IntegrityError):
            tx.execute(text("INSERT OR ROLLBACK INTO doc VALUES (:id, 'x')"), {"id": SCOPE})
        with pytest.raises(FenceError):
            tx.execute(STORE, {"id": SCOPE, "body": "second"})
    assert (database.body(), database.epoch()) == ("base", 1)


def test_even_when_the_driver_did_it_behind_sqlalchemy_s_back(database: Database) -> None:
    a = Writer(database.fence()).load()
    with pytest.raises(FenceError) as unknown, a.fence.write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "first"})
        token = tx.token
        raw = tx.connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.rollback()
        raw.execute("UPDATE doc SET body = 'unfenced'")
    assert unknown.value.applied is None, "whoever ended it may have committed it"
    assert a.fence.resolve(token) == NotApplied()


def test_a_commit_that_finds_a_reader_in_its_way_is_refused_and_known(tmp_path: Path, empty: Database) -> None:
    """Without a write-ahead log a reader holds COMMIT up: that is an answer, and the transaction is still there."""
    engine = rollback_journal(tmp_path)
    fence = EpochFence(engine)
    fence.migrate()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE doc (id TEXT PRIMARY KEY, body TEXT)"))
        connection.execute(text("INSERT INTO doc VALUES (:id, 'base')"), {"id": SCOPE})
    pin = fence.create(SCOPE)
    reader = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    with pytest.raises(ScopeLostError, match="COMMIT") as lost, fence.write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        token = tx.token
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM doc").fetchall()
    assert (lost.value.applied, lost.value.retry) == (False, "reload")
    reader.close()
    assert fence.resolve(token) == NotApplied()
    with fence.write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "y"})
        token = tx.token
    assert fence.resolve(token) == Applied(tx.committed_pin)  # type: ignore[arg-type]
    engine.dispose()


def rollback_journal(directory: Path) -> Engine:
    return create_engine(f"sqlite:///{directory / 'journal.db'}", **IMPATIENT)


def test_a_read_only_database_is_named(database: Database, tmp_path: Path) -> None:
    pin = Writer(database.fence()).load().pin
    engine = create_engine(f"sqlite:///file:{tmp_path / 'app.db'}?mode=ro&uri=true")
    with pytest.raises(StoreCannotLockError, match="takes no writes"):
        EpochFence(engine).write(pin).__enter__()
    engine.dispose()
