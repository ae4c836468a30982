# ruff: noqa: PT012  what is raised at the end of a block depends on all that was done in it
"""
The overlap with a stale writer, at each level of isolation.

Both have pinned the same epoch. B has passed the fence and not yet committed; A's fence waits for B's row, and then B
commits.
"""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import text

from tenure.sql import EpochFence, ScopeLostError, StaleEpochError
from tests.helpers.processes import until
from tests.sql.conftest import MARIADB, POOLED, POSTGRESQL
from tests.sql.databases import SCOPE, STORE, Database, Writer
from tests.sql.waiting import InThread, waiting_for_a_lock

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


def overlap(database: Database, level: str, *, b_rolls_back: bool = False) -> BaseException | None:
    """What A is told."""
    a = Writer(EpochFence(database.engine(isolation_level=level))).load()
    b = Writer(EpochFence(database.engine(isolation_level=level))).load()
    looking = waiting_for_a_lock(database, database.engine())
    tx = b.fence.write(b.pin)
    with tx:
        tx.execute(STORE, {"id": SCOPE, "body": b.body + "+B"})
        late = InThread(lambda: a.append("+A"))
        until(looking, "A does not wait for B")
        if database.family == "mysql":
            # "Updating" is also said of a statement that does not wait; this one would long be over.
            time.sleep(0.2)
            assert late.is_alive()
        if b_rolls_back:
            tx.withdraw()
    return late.end()


@pytest.mark.parametrize("empty", [POSTGRESQL, POOLED, MARIADB], indirect=True)
@pytest.mark.parametrize("level", LEVELS)
def test_a_stale_writer_that_waited_for_the_row_is_refused(database: Database, level: str) -> None:
    """0 rows under READ COMMITTED, an error under the others: to the caller it is the same."""
    error = overlap(database, level)
    assert isinstance(error, StaleEpochError), repr(error)
    assert (error.ours, error.current, error.applied) == (1, 2, False)
    assert (database.body(), database.epoch()) == ("base+B", 2)


@pytest.mark.parametrize("empty", [POSTGRESQL, MARIADB], indirect=True)
@pytest.mark.parametrize("level", LEVELS)
def test_whoever_waited_for_one_that_rolled_back_goes_on(database: Database, level: str) -> None:
    assert overlap(database, level, b_rolls_back=True) is None
    assert (database.body(), database.epoch()) == ("base+A", 2)


@pytest.mark.parametrize("empty", [POSTGRESQL, POOLED, MARIADB], indirect=True)
@pytest.mark.parametrize("level", LEVELS)
def test_without_overlap_it_is_the_same(database: Database, level: str) -> None:
    a = Writer(EpochFence(database.engine(isolation_level=level))).load()
    b = Writer(EpochFence(database.engine(isolation_level=level))).load()
    b.append("+B")
    with pytest.raises(StaleEpochError):
        a.append("+A")
    a.load().append("+A")
    assert database.body() == "base+B+A"


@pytest.mark.parametrize("empty", [MARIADB], indirect=True)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("setting", ["ON", "OFF"])
def test_mariadb_s_snapshot_isolation_changes_nothing(database: Database, level: str, setting: str) -> None:
    """With it the miss is error 1020 where the row has changed since the transaction's snapshot."""
    command = f"SET SESSION innodb_snapshot_isolation = {setting}"
    a = Writer(EpochFence(database.engine(isolation_level=level, connect_args={"init_command": command}))).load()

    def look_first(connection: object, scope: str) -> None:
        # A context that reads gives the transaction a snapshot from before B's commit.
        connection.exec_driver_sql("SELECT count(*) FROM doc").scalar()  # type: ignore[attr-defined]
        if not committed:
            committed.append(True)
            Writer(database.fence()).load().append("+B")

    committed: list[bool] = []
    late = EpochFence(
        database.engine(isolation_level=level, connect_args={"init_command": command}), context=look_first
    )
    if level == "SERIALIZABLE":
        committed.append(True)
        Writer(database.fence()).load().append("+B")
    with pytest.raises(StaleEpochError) as refused, late.write(a.pin):
        pass
    assert (refused.value.ours, refused.value.current) == (1, 2)
    assert database.body() == "base+B"


@pytest.mark.parametrize("empty", [POSTGRESQL], indirect=True)
def test_a_serialization_failure_of_another_statement_is_a_lost_transaction_and_no_stale_pin(
    database: Database,
) -> None:
    engine = database.engine(isolation_level="REPEATABLE READ")
    fence = EpochFence(engine)
    pin = Writer(fence).load().pin
    with database.engine().begin() as connection:
        connection.execute(text("INSERT INTO doc VALUES ('other', 'x')"))
    with pytest.raises(ScopeLostError) as lost, fence.write(pin) as tx:
        tx.scalar(text("SELECT count(*) FROM doc"))
        with database.engine().begin() as connection:
            connection.execute(STORE, {"id": "other", "body": "y"})
        tx.execute(STORE, {"id": "other", "body": "z"})
    assert (lost.value.applied, lost.value.retry) == (False, "reload")
    assert (database.body("other"), database.epoch()) == ("y", 1)


@pytest.mark.parametrize("empty", [POSTGRESQL], indirect=True)
def test_a_serialization_failure_as_the_answer_to_commit_is_an_answer(database: Database) -> None:
    """Write skew under SERIALIZABLE is found out at COMMIT at the latest; the other has committed."""
    engine = database.engine(isolation_level="SERIALIZABLE")
    with database.engine().begin() as connection:
        connection.execute(text("CREATE TABLE duty (name TEXT, here BOOLEAN)"))
        connection.execute(text("INSERT INTO duty VALUES ('a', TRUE), ('b', TRUE)"))
    fence = EpochFence(engine)
    pin = Writer(fence).load().pin
    count, leave = text("SELECT count(*) FROM duty WHERE here"), text("UPDATE duty SET here = FALSE WHERE name = :name")
    with pytest.raises(ScopeLostError, match="conflict") as lost, fence.write(pin) as tx:
        tx.scalar(count)
        tx.execute(leave, {"name": "a"})
        with engine.begin() as other:
            other.scalar(count)
            other.execute(leave, {"name": "b"})
    assert lost.value.applied is False
    assert database.epoch() == 1


@pytest.mark.parametrize("empty", [POSTGRESQL], indirect=True)
@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout"])
def test_whoever_waits_too_long_for_the_row_has_applied_nothing_and_keeps_the_pin(
    database: Database, setting: str
) -> None:
    a = Writer(EpochFence(database.engine(connect_args={"options": f"-c {setting}=100"}))).load()
    with database.fence().write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        with pytest.raises(ScopeLostError) as lost:
            a.append("+A")
        assert (lost.value.applied, lost.value.retry) == (False, "same")
        tx.withdraw()
    a.append("+A")
    assert database.body() == "base+A"


@pytest.mark.parametrize("empty", [MARIADB], indirect=True)
def test_a_lock_timeout_of_mariadb_ends_the_transaction_although_the_server_would_go_on(database: Database) -> None:
    """1205 undoes one statement only; what came before it would be committed by itself."""
    command = "SET SESSION innodb_lock_wait_timeout = 1"
    a = Writer(EpochFence(database.engine(connect_args={"init_command": command}))).load()
    with database.engine().begin() as connection:
        connection.execute(text("INSERT INTO doc VALUES ('other', 'x'), ('first', 'x')"))
    with database.engine().begin() as blocking:
        blocking.execute(STORE, {"id": "other", "body": "theirs"})
        with pytest.raises(ScopeLostError) as lost, a.fence.write(a.pin) as tx:
            tx.execute(STORE, {"id": "first", "body": "ours"})
            tx.execute(STORE, {"id": "other", "body": "ours"})
    assert lost.value.applied is False
    assert (database.body("first"), database.body("other"), database.epoch()) == ("x", "theirs", 1)


@pytest.mark.parametrize("empty", [POSTGRESQL, MARIADB], indirect=True)
def test_the_victim_of_a_deadlock_has_applied_nothing(database: Database) -> None:
    """MariaDB rolls the whole transaction back (1213) and lets the connection write on."""
    with database.engine().begin() as connection:
        connection.execute(text("INSERT INTO doc VALUES ('one', 'x'), ('two', 'x')"))
    fence = database.fence()
    fence.create("other")
    pins = {SCOPE: Writer(fence).load().pin}
    with fence.read("other") as snap:
        pins["other"] = snap.pin
    barrier = threading.Barrier(2)

    def work(scope: str, first: str, second: str) -> None:
        with database.fence().write(pins[scope]) as tx:
            tx.execute(STORE, {"id": first, "body": scope})
            barrier.wait(30)
            tx.execute(STORE, {"id": second, "body": scope})

    one = InThread(lambda: work(SCOPE, "one", "two"))
    two = InThread(lambda: work("other", "two", "one"))
    lost = [error for error in (one.end(), two.end()) if error is not None]
    (error,) = lost
    assert isinstance(error, ScopeLostError)
    assert (error.applied, error.retry) == (False, "reload")
    winner = "other" if error.scope == SCOPE else SCOPE
    assert (database.body("one"), database.body("two")) == (winner, winner)
