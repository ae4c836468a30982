"""migrate(): from every process at boot, in one transaction where there is one, and in nobody's way."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import inspect, text

from tenure import StoreCannotLockError
from tenure.sql import EpochFence, ScopeLostError, SetLocal
from tests.helpers.servers import STRANGER, SUPERUSER, as_user
from tests.sql.conftest import MARIADB, POOLED, POSTGRESQL, SQLITE
from tests.sql.databases import INSERT, SCOPE, STORE, Database, Writer


def tables(database: Database) -> set[str]:
    return set(inspect(database.engine()).get_table_names())


def test_it_makes_two_tables_and_touches_no_other(empty: Database) -> None:
    with empty.engine().begin() as connection:
        connection.execute(text("CREATE TABLE doc (id VARCHAR(100) PRIMARY KEY, body TEXT)"))
    before = inspect(empty.engine()).get_columns("doc")
    empty.fence().migrate()
    assert tables(empty) == {"doc", "tenure_fence", "tenure_commit"}
    assert [column["name"] for column in inspect(empty.engine()).get_columns("doc")] == [c["name"] for c in before]
    with empty.engine().begin() as connection:
        connection.execute(INSERT, {"id": "old code", "body": "still works"})


def test_a_second_time_it_does_nothing(database: Database) -> None:
    for _ in range(2):
        database.fence().migrate()
    assert database.epoch() == 1


def test_what_was_there_before_gets_a_row_each_and_only_once(empty: Database) -> None:
    with empty.engine().begin() as connection:
        connection.execute(text("CREATE TABLE doc (id VARCHAR(100) PRIMARY KEY, body TEXT)"))
        for name in ("a", "b", "c%", "d"):
            connection.execute(INSERT, {"id": name, "body": name})
    existing = "SELECT id AS scope FROM doc WHERE body NOT LIKE ':x%'"
    empty.fence().migrate(existing=existing)
    writer = Writer(empty.fence(), "b").load()
    writer.append("+B")
    empty.fence().destroy(Writer(empty.fence(), "d").load().pin)
    empty.fence().migrate(existing=existing)
    assert [empty.epoch(name) for name in ("a", "b", "c%", "d")] == [1, 2, 1, 2]
    assert empty.body("b") == "b+B"
    with empty.engine().connect() as connection:
        lineages = connection.scalars(text("SELECT lineage FROM tenure_fence")).all()
    assert len(set(lineages)) == 4


def test_many_processes_may_boot_at_once(empty: Database) -> None:
    for round_ in range(3):
        fences = [empty.fence(table=f"f{round_}", ledger=f"l{round_}") for _ in range(6)]
        errors: list[object] = []
        barrier = threading.Barrier(6)

        def boot(fence: EpochFence, barrier: threading.Barrier = barrier, errors: list[object] = errors) -> None:
            barrier.wait(30)
            try:
                fence.migrate()
            except Exception as error:  # noqa: BLE001  looked at below
                errors.append(error)

        threads = [threading.Thread(target=boot, args=(fence,)) for fence in fences]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert fences[0].create("made").epoch == 1


@pytest.mark.parametrize("empty", [SQLITE, POSTGRESQL, POOLED], indirect=True)
def test_a_step_that_fails_leaves_nothing(empty: Database) -> None:
    """On MySQL and MariaDB DDL commits, so that it cannot be promised there."""
    with empty.engine().begin() as connection:
        connection.execute(text("CREATE VIEW tenure_commit AS SELECT 1 AS one"))
    with pytest.raises(StoreCannotLockError, match="something else stands"):
        empty.fence().migrate()
    assert "tenure_fence" not in tables(empty)
    empty.fence(ledger="another").migrate()


def test_where_all_is_there_it_waits_for_no_writer(database: Database) -> None:
    a = Writer(database.fence()).load()
    with a.fence.write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        database.fence().migrate(patience=0.2)
    assert database.body() == "x"


@pytest.mark.parametrize("empty", [POSTGRESQL, POOLED, MARIADB], indirect=True)
def test_and_no_writer_waits_for_it(database: Database) -> None:
    """A booter that looks holds nothing on which a writer would queue."""
    before = Writer(database.fence()).load()
    with database.fence().read(SCOPE):
        database.fence().migrate(patience=0.2)
        before.append("+A")
    assert database.body() == "base+A"


@pytest.mark.parametrize("empty", [POSTGRESQL, POOLED], indirect=True)
def test_it_waits_no_longer_than_it_was_told_to(empty: Database) -> None:
    """Behind a pooler, too: the lock is the transaction's, and excludes the second booter on another backend."""
    fence = empty.fence()
    statement = fence._settings.statements("postgresql").alone()
    assert statement is not None
    with empty.engine().begin() as connection:
        connection.execute(text(statement.sql), dict(statement.params))
        with pytest.raises(ScopeLostError, match="too long") as waited:
            fence.migrate(patience=0.2)
    assert (waited.value.applied, waited.value.retry) == (False, "same")
    assert tables(empty) == set()
    fence.migrate()


def test_without_it_every_call_says_what_is_missing(empty: Database) -> None:
    fence = empty.fence()
    for call in (lambda: fence.read(SCOPE).__enter__(), lambda: fence.create(SCOPE), lambda: fence.claim(SCOPE)):
        with pytest.raises(StoreCannotLockError, match="tenure_fence") as missing:
            call()
        assert "migrate()" in (missing.value.hint or "")
        assert missing.value.exit_code == 78


def test_a_table_that_lacks_a_column_counts_as_missing(empty: Database) -> None:
    with empty.engine().begin() as connection:
        connection.execute(text("CREATE TABLE tenure_fence (scope VARCHAR(200) PRIMARY KEY, epoch BIGINT)"))
    with pytest.raises(StoreCannotLockError, match="older than this version"):
        empty.fence().create(SCOPE)
    with pytest.raises(StoreCannotLockError):
        empty.fence().migrate()


def test_tables_may_have_other_names(empty: Database) -> None:
    fence = empty.fence(table="order", ledger="select")
    fence.migrate()
    pin = fence.create(SCOPE)
    assert fence.claim(SCOPE).epoch == pin.epoch + 1


@pytest.mark.parametrize("empty", [POSTGRESQL], indirect=True)
def test_tables_may_be_in_a_schema(empty: Database) -> None:
    with empty.engine().begin() as connection:
        connection.execute(text("CREATE SCHEMA app"))
    fence = empty.fence(table="app.fence", ledger="app.ledger")
    fence.migrate()
    assert fence.create(SCOPE).epoch == 1


@pytest.mark.parametrize("empty", [POSTGRESQL], indirect=True)
def test_a_role_that_may_make_no_table_may_call_it_where_they_are(database: Database) -> None:
    with database.engine(as_user(SUPERUSER, database.url)).begin() as connection:
        connection.execute(text(f"GRANT SELECT, INSERT, UPDATE ON tenure_fence, tenure_commit TO {STRANGER}"))
    fence = EpochFence(database.engine(as_user(STRANGER, database.url)))
    fence.migrate()
    assert fence.claim(SCOPE).epoch == 2


@pytest.mark.parametrize("empty", [POSTGRESQL], indirect=True)
def test_a_replica_is_named(database: Database) -> None:
    replica = EpochFence(database.engine(connect_args={"options": "-c default_transaction_read_only=on"}))
    with replica.read(SCOPE) as snap:
        pin = snap.pin
    with pytest.raises(StoreCannotLockError, match="replica"):
        replica.write(pin).__enter__()
    with database.fence().write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "loaded there, written here"})
        token = tx.token
    with pytest.raises(StoreCannotLockError, match="replica"):
        replica.resolve(token)


@pytest.mark.parametrize("empty", [SQLITE, MARIADB], indirect=True)
def test_what_only_postgresql_has_is_refused_elsewhere(empty: Database) -> None:
    with pytest.raises(ValueError, match="PostgreSQL"):
        empty.fence(context=SetLocal("app.scope"))
