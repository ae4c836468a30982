"""The fence comes first, in the transaction and not in a savepoint; and what may stand in its statements."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tenure.sql import AdvisoryXactLock, CommitToken, EpochFence, Pin, SetLocal
from tenure.sql._pin import MAX_EPOCH
from tenure.sql._statements import Family, Outcome, Statement, Statements, render
from tests.sql.conftest import POOLED, POSTGRESQL
from tests.sql.databases import LOAD, SCOPE, STORE, Database, Writer
from tests.sql.recording import Recorder, Trace, recorded

FENCE = "UPDATE tenure_fence"
LEDGER = "INSERT INTO tenure_commit"


@pytest.fixture
def wire(database: Database) -> Iterator[tuple[Engine, Recorder | Trace]]:
    with recorded(database) as (engine, said):
        # What a driver asks when it connects is not the fence's.
        with engine.connect():
            pass
        said.forget()
        yield engine, said


def test_the_fence_is_the_first_data_statement_and_in_no_savepoint(
    database: Database, wire: tuple[Engine, Recorder | Trace]
) -> None:
    engine, said = wire
    pin = Writer(database.fence()).load().pin
    with EpochFence(engine).write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
    begin = {"sqlite": ["BEGIN IMMEDIATE"], "mysql": []}.get(database.family, ["BEGIN"])
    # The pool rolls every connection back that it gets; PyMySQL sends that, too.
    end = ["COMMIT", "ROLLBACK"] if database.family == "mysql" else ["COMMIT"]
    ours = [FENCE, LEDGER, "UPDATE doc"] if database.family == "postgresql" else [FENCE, "UPDATE doc", LEDGER]
    assert said.told() == [*begin, *ours, *end]


@pytest.mark.parametrize("empty", [POSTGRESQL, POOLED], indirect=True)
def test_context_and_lock_come_before_the_fence_each_as_a_statement_of_its_own(
    database: Database, wire: tuple[Engine, Recorder | Trace]
) -> None:
    engine, said = wire
    pin = Writer(database.fence()).load().pin
    fence = EpochFence(engine, context=SetLocal("app.scope"), lock=AdvisoryXactLock())
    with fence.write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
    assert said.told() == [
        "BEGIN",
        "SELECT set_config",
        "SELECT pg_advisory_xact_lock",
        FENCE,
        LEDGER,
        "UPDATE doc",
        "COMMIT",
    ]


@pytest.mark.parametrize("empty", [POSTGRESQL, POOLED], indirect=True)
def test_a_fenced_transaction_waits_for_the_server_no_oftener_than_one_without(
    database: Database, wire: tuple[Engine, Recorder | Trace]
) -> None:
    engine, said = wire
    assert isinstance(said, Recorder)
    fence = EpochFence(engine, context=SetLocal("app.scope"), lock=AdvisoryXactLock())
    with engine.begin() as connection:
        connection.execute(STORE, {"id": SCOPE, "body": "x"})
    without = said.waits()
    pin = Writer(database.fence()).load().pin
    said.forget()
    with fence.write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
    assert without == 3, "BEGIN, the statement, COMMIT"
    assert said.waits() == 3, "BEGIN with context, lock and fence; the statement; COMMIT"


def test_the_pin_is_read_before_the_data(database: Database, wire: tuple[Engine, Recorder | Trace]) -> None:
    engine, said = wire
    with EpochFence(engine).read(SCOPE) as snap:
        snap.scalar(LOAD, {"id": SCOPE})
    looked = [word for word in said.told() if word.startswith("SELECT")]
    assert looked == ["SELECT epoch, live", "SELECT body"]


def test_a_statement_is_refused_before_the_fence_has_passed(database: Database) -> None:
    tx = database.fence().write(Writer(database.fence()).load().pin)
    with pytest.raises(RuntimeError, match="with"):
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
    assert database.body() == "base"


# Without a database.

FAMILIES: list[Family] = ["postgresql", "mysql", "sqlite"]
PIN = Pin("doc:42", 7, "0" * 32)
TOKEN = CommitToken("doc:42", 0, "0" * 32, "1" * 32)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_test_of_the_epoch_stands_on_the_update(family: Family) -> None:
    sql = Statements(family, "f", "l").advance("commit", TOKEN, PIN).sql
    update = sql[sql.index("UPDATE") :]
    assert update.index("epoch = :epoch") < (update.index("RETURNING") if "RETURNING" in update else len(update))
    assert sql.count(":epoch") == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_scope_is_called_is_bound_and_never_in_the_statement(family: Family) -> None:
    evil = "x'; DROP TABLE doc; --"
    statements = Statements(family, "f", "l")
    token = CommitToken(evil, 0, "0" * 32, "1" * 32)
    pin = Pin(evil, 7, "0" * 32)
    made = [
        statements.advance("commit", token, pin),
        statements.advance("claim", token, holder=evil),
        statements.make(evil, "0" * 32),
        statements.row(evil, lock=True),
        statements.entry(token),
    ]
    assert all("DROP" not in statement.sql for statement in made)


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "a;b", "a.b.c", "1a", "a`b", "ä", "x" * 41, None, 7])
def test_only_a_name_can_be_a_table(name: object) -> None:
    with pytest.raises(ValueError, match="must be a name"):
        Statements("sqlite", name, "ledger")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be a name"):
        Statements("sqlite", "fence", name)  # type: ignore[arg-type]


def test_a_table_may_have_a_schema_and_is_quoted() -> None:
    assert 'UPDATE "app"."order" SET' in Statements("sqlite", "app.order", "l").advance("commit", TOKEN, PIN).sql


def test_table_and_ledger_are_two() -> None:
    with pytest.raises(ValueError, match="two tables"):
        Statements("sqlite", "same", "same")


@pytest.mark.parametrize("rowcount", [0, -1, 2])
def test_a_row_count_other_than_one_is_a_refusal(rowcount: int) -> None:
    assert Statements("mysql", "f", "l").passed(Outcome((), rowcount, 8)) is None
    assert Statements("mysql", "f", "l").passed(Outcome((), 1, 8)) == 8


@pytest.mark.parametrize("rows", [(), ((8,), (9,)), ((None,),)])
def test_rows_other_than_one_number_are_a_refusal(rows: tuple[tuple[object, ...], ...]) -> None:
    assert Statements("postgresql", "f", "l").passed(Outcome(rows, 1)) is None
    assert Statements("sqlite", "f", "l").passed(Outcome(((8,),), 0)) == 8, "SQLite counts after the rows are fetched"


def test_a_statement_is_rendered_for_each_kind_of_driver() -> None:
    statement = Statement("SELECT :b, :a, :b, CAST('5%' AS TEXT)", {"a": 1, "b": 2})
    assert render(statement, "named") == (statement.sql, statement.params)
    assert render(statement, "pyformat") == ("SELECT %(b)s, %(a)s, %(b)s, CAST('5%%' AS TEXT)", statement.params)
    assert render(statement, "numeric_dollar") == ("SELECT $1, $2, $1, CAST('5%' AS TEXT)", (2, 1))


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_advances_past_the_last_number(family: Family) -> None:
    assert f"epoch < {MAX_EPOCH}" in Statements(family, "f", "l").advance("claim", TOKEN).sql
