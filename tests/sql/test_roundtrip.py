"""Several statements in one round trip: prepared where that is allowed, and good again after the server has forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event, text

from tenure.sql import EpochFence, ScopeLostError
from tests.sql.conftest import POSTGRESQL
from tests.sql.databases import SCOPE, STORE, Database, Writer
from tests.sql.recording import recorded

pytestmark = pytest.mark.parametrize("empty", [POSTGRESQL], indirect=True)


def prepared(writer: Writer) -> list[str]:
    """The names that the connection's server has of ours."""
    with writer.fence.read(SCOPE) as snap:
        names = snap.execute(text("SELECT name FROM pg_prepared_statements WHERE name LIKE 'tenure%'"))
        return [str(row.name) for row in names]


def single(database: Database, **options: Any) -> Writer:
    return Writer(EpochFence(database.engine(pool_size=1, max_overflow=0, **options))).load()


def test_the_fence_is_prepared_once_per_connection(database: Database) -> None:
    writer = single(database)
    for number in range(3):
        writer.append(f"+{number}")
    assert len(prepared(writer)) == 2, "the fence, and the row that a load reads"


def test_and_not_at_all_where_the_driver_was_told_not_to(database: Database) -> None:
    writer = single(database, connect_args={"prepare_threshold": None})
    for number in range(3):
        writer.append(f"+{number}")
    assert prepared(writer) == []


@pytest.mark.parametrize("forget", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_a_server_that_has_forgotten_is_asked_again(database: Database, forget: str) -> None:
    """As after a rollback of psycopg's, or behind a pooler."""
    engine = database.engine(pool_size=1, max_overflow=0)

    @event.listens_for(engine, "checkin")
    def discard(raw: Any, _: object) -> None:
        raw.autocommit = True
        raw.execute(forget)
        raw.autocommit = False

    writer = Writer(EpochFence(engine)).load()
    for number in range(3):
        writer.append(f"+{number}")
    assert database.body() == "base+0+1+2"


def test_an_error_in_between_leaves_the_rest_as_it_was(database: Database) -> None:
    writer = single(database)
    writer.append("+first")
    impatient = single(database, connect_args={"options": "-c lock_timeout=50"})
    with database.fence().write(writer.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        for _ in range(3):
            with pytest.raises(ScopeLostError):
                impatient.append("+A")
        tx.withdraw()
    impatient.append("+A")
    assert len(prepared(impatient)) == 2, "what failed was prepared once, and not once for each failure"
    assert database.body() == "base+first+A"


def test_the_engine_s_level_of_isolation_is_kept(database: Database) -> None:
    level = text("SELECT current_setting('transaction_isolation')")
    for name in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        writer = single(database, isolation_level=name)
        with writer.fence.write(writer.pin) as tx:
            assert tx.scalar(level) == name.lower()
            tx.withdraw()
        with writer.fence.read(SCOPE) as snap:
            assert snap.scalar(level) == "repeatable read"


def test_without_pipelines_it_is_the_same_one_by_one(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psycopg.Pipeline.is_supported", lambda: False)
    with recorded(database) as (engine, said):
        writer = Writer(EpochFence(engine)).load()
        said.forget()
        writer.append("+A")
        assert said.told()[:3] == ["BEGIN", "UPDATE tenure_fence", "INSERT INTO tenure_commit"]
    assert database.body() == "base+A"
