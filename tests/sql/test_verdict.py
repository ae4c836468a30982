# ruff: noqa: PT012  what is raised at the end of a block depends on all that was done in it
"""The verdict sticks: what went wrong once in a fenced transaction cannot end well, whatever the program does about it."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from tenure import StoreCannotLockError
from tenure.sql import EpochFence, FenceError, ScopeLostError, StaleEpochError
from tests.sql.conftest import MARIADB, POSTGRESQL, SQLITE
from tests.sql.databases import BASE, INSERT, SCOPE, STORE, Database, Writer

BAD = text("INSERT INTO no_such_table VALUES (1)")


def stored(body: str) -> dict[str, str]:
    return {"id": SCOPE, "body": body}


def test_after_a_refusal_nothing_can_be_written_or_committed(database: Database) -> None:
    """Whoever catches the refusal and commits anyway has changed nothing."""
    a, b = Writer(database.fence()).load(), Writer(database.fence()).load()
    b.append("+B")
    tx = a.fence.write(a.pin)
    for step in (
        tx.__enter__,
        lambda: tx.execute(STORE, stored("x")),
        lambda: tx.__exit__(None, None, None),
        tx.__enter__,
    ):
        with pytest.raises(StaleEpochError):
            step()
    with pytest.raises(StaleEpochError):
        _ = tx.connection
    assert tx.committed_pin is None
    assert (database.body(), database.epoch()) == ("base+B", 2)


def test_an_error_that_the_program_swallows_is_raised_at_the_end(database: Database) -> None:
    a = Writer(database.fence()).load()
    tx = a.fence.write(a.pin)
    with pytest.raises(ScopeLostError, match="swallowed") as lost, tx:
        tx.execute(STORE, stored("first"))
        with contextlib.suppress(SQLAlchemyError):
            tx.execute(BAD)
    assert (lost.value.applied, lost.value.retry) == (False, "reload")
    assert tx.committed_pin is None
    assert (database.body(), database.epoch()) == (BASE, 1)


def test_after_an_error_nothing_more_is_written(database: Database) -> None:
    a = Writer(database.fence()).load()
    tx = a.fence.write(a.pin)
    with pytest.raises(ScopeLostError), tx:
        with contextlib.suppress(SQLAlchemyError):
            tx.execute(BAD)
        for _ in range(2):
            with pytest.raises(FenceError):
                tx.execute(STORE, stored("second"))
    assert (database.body(), database.epoch()) == (BASE, 1)


def test_what_the_program_raises_itself_comes_through_as_it_is(database: Database) -> None:
    a = Writer(database.fence()).load()
    with pytest.raises(KeyError, match="mine"), a.fence.write(a.pin) as tx:
        tx.execute(STORE, stored("first"))
        raise KeyError("mine")
    with pytest.raises(IntegrityError), a.fence.write(a.pin) as tx:
        tx.execute(INSERT, stored("twice"))
    assert (database.body(), database.epoch()) == (BASE, 1)
    a.append("+A")
    assert database.body() == "base+A", "and the pin is as good as it was"


def test_a_savepoint_makes_up_for_what_failed_in_it(database: Database) -> None:
    a = Writer(database.fence()).load()
    with a.fence.write(a.pin) as tx:
        with pytest.raises(IntegrityError), tx.savepoint():
            tx.execute(INSERT, stored("twice"))
        tx.execute(STORE, stored("after"))
        with tx.savepoint():
            tx.execute(INSERT, {"id": "other", "body": "x"})
    assert (database.body(), database.body("other"), database.epoch()) == ("after", "x", 2)


def test_a_savepoint_does_not_make_up_for_what_failed_before_it(database: Database) -> None:
    a = Writer(database.fence()).load()
    with pytest.raises(FenceError), a.fence.write(a.pin) as tx:
        with contextlib.suppress(SQLAlchemyError):
            tx.execute(BAD)
        with contextlib.suppress(FenceError), tx.savepoint():
            tx.execute(STORE, stored("x"))
    assert (database.body(), database.epoch()) == (BASE, 1)


def test_a_savepoint_cannot_undo_the_fence(database: Database) -> None:
    """On all databases a bump inside a savepoint is undone with it, and the writes go on."""
    a = Writer(database.fence()).load()
    with a.fence.write(a.pin) as tx:
        tx.execute(STORE, stored("first"))
        with pytest.raises(KeyError), tx.savepoint():
            tx.execute(STORE, stored("second"))
            raise KeyError
    assert (database.body(), database.epoch()) == ("first", 2)


@pytest.mark.parametrize(
    "words",
    ["COMMIT", "  commit ", "/* a\nb */ -- c\n COMMIT", "ROLLBACK", "BEGIN", "START TRANSACTION", "END", "ABORT"],
)
def test_the_fence_alone_ends_its_transaction(database: Database, words: str) -> None:
    a = Writer(database.fence()).load()
    with pytest.raises(FenceError, match="the fence's to do"), a.fence.write(a.pin) as tx:
        tx.execute(STORE, stored("first"))
        tx.execute(text(words))
    assert (database.body(), database.epoch()) == (BASE, 1)


@pytest.mark.parametrize("empty", [MARIADB], indirect=True)
def test_ddl_that_would_commit_is_refused(database: Database) -> None:
    a = Writer(database.fence()).load()
    with pytest.raises(FenceError, match="the fence's to do"), a.fence.write(a.pin) as tx:
        tx.execute(STORE, stored("first"))
        tx.execute(text("CREATE TABLE other (id INTEGER)"))
    assert (database.body(), database.epoch()) == (BASE, 1)


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_neither_does_the_connection_end_it(database: Database, how: str) -> None:
    a = Writer(database.fence()).load()
    with pytest.raises(FenceError), a.fence.write(a.pin) as tx:
        tx.execute(STORE, stored("first"))
        with contextlib.suppress(FenceError):
            getattr(tx.connection, how)()
        tx.execute(STORE, stored("second"))
    assert (database.body(), database.epoch()) == (BASE, 1)


def test_a_session_s_commit_flushes_and_its_rollback_ends_the_block(database: Database) -> None:
    a = Writer(database.fence()).load()
    with a.fence.write(a.pin) as tx, tx.session() as session:
        session.execute(STORE, stored("first"))
        session.commit()
        assert database.body() == BASE, "nobody else sees it yet"
    assert (database.body(), database.epoch()) == ("first", 2)
    assert tx.committed_pin is not None
    with pytest.raises(ScopeLostError, match="rolled back from inside"), a.fence.write(tx.committed_pin) as tx:
        with tx.session() as session:
            session.execute(STORE, stored("second"))
            session.rollback()
    assert (database.body(), database.epoch()) == ("first", 2)


def test_a_block_that_did_nothing_takes_no_number(database: Database) -> None:
    a = Writer(database.fence()).load()
    with a.fence.write(a.pin) as tx:
        pass
    assert tx.committed_pin == a.pin
    with a.fence.write(a.pin) as tx:
        tx.execute(STORE, stored("nearly"))
        tx.withdraw()
    assert tx.committed_pin == a.pin
    assert (database.body(), database.epoch()) == (BASE, 1)


def test_a_transaction_is_entered_once_and_used_inside(database: Database) -> None:
    a = Writer(database.fence()).load()
    with a.fence.write(a.pin) as tx:
        tx.execute(STORE, stored("first"))
        with pytest.raises(ScopeLostError, match="once"):
            tx.__enter__()
    with pytest.raises(ScopeLostError, match="ended"):
        tx.execute(STORE, stored("second"))
    assert database.body() == "first"


def test_a_stale_writer_cannot_launder_its_pin(database: Database) -> None:
    """An unrelated write must not raise the pin of data that was loaded before somebody else's commit."""
    a, b = Writer(database.fence()).load(), Writer(database.fence()).load()
    b.append("+B")
    with pytest.raises(StaleEpochError), a.fence.write(a.pin) as tx:
        tx.execute(INSERT, {"id": "unrelated", "body": "x"})
    with a.fence.read(SCOPE):
        pass
    assert a.pin.epoch == 1, "only the program's own load replaces it"
    with pytest.raises(StaleEpochError):
        a.append("+A")
    assert (database.body(), database.body("unrelated")) == ("base+B", None)


# What would void the fence is refused.


@pytest.mark.parametrize("empty", [SQLITE, POSTGRESQL, MARIADB], indirect=True)
def test_an_engine_in_autocommit_is_refused_when_the_fence_is_made(empty: Database) -> None:
    for engine in (
        empty.engine(isolation_level="AUTOCOMMIT"),
        empty.engine(execution_options={"isolation_level": "AUTOCOMMIT"}),
        empty.engine().execution_options(isolation_level="AUTOCOMMIT"),
    ):
        with pytest.raises(StoreCannotLockError, match="by itself"):
            EpochFence(engine)


@pytest.mark.parametrize("empty", [POSTGRESQL, MARIADB], indirect=True)
def test_a_driver_that_was_set_to_autocommit_behind_the_engine_s_back_is_refused(database: Database) -> None:
    engine = database.engine()
    fence = EpochFence(engine)
    pin = Writer(fence).load().pin

    @event.listens_for(engine, "checkout")
    def autocommit(raw: object, *_: object) -> None:
        if database.family == "postgresql":
            raw.autocommit = True  # type: ignore[attr-defined]
        else:
            raw.autocommit(True)  # type: ignore[attr-defined]

    with pytest.raises(StoreCannotLockError, match="by itself"), fence.write(pin):
        pass
    assert database.epoch() == 1


@pytest.mark.parametrize("empty", [SQLITE], indirect=True)
def test_sqlite_is_fenced_whatever_its_driver_thinks_of_transactions(database: Database) -> None:
    """BEGIN and COMMIT are the fence's own: the driver's autocommit, and hooks that begin, are how programs differ."""
    for level in (None, "", "IMMEDIATE"):
        engine = database.engine()

        @event.listens_for(engine, "connect")
        def configure(raw: sqlite3.Connection, _: object, level: str | None = level) -> None:
            raw.isolation_level = level  # type: ignore[assignment]

        if level is None:

            @event.listens_for(engine, "begin")
            def begin(connection: object) -> None:
                connection.exec_driver_sql("BEGIN")  # type: ignore[attr-defined]

        a, b = Writer(EpochFence(engine)).load(), Writer(database.fence()).load()
        a.append("+A")
        with pytest.raises(StaleEpochError):
            b.append("+B")
    assert database.body() == "base+A+A+A"


def test_a_driver_that_cannot_be_looked_into_is_refused() -> None:
    from sqlalchemy import create_mock_engine

    engine = create_mock_engine("oracle+oracledb://", lambda *_: None)
    with pytest.raises(StoreCannotLockError, match="oracle"):
        EpochFence(engine)  # type: ignore[arg-type]
