# ruff: noqa: PT012  what is raised at the end of a block depends on all that was done in it
"""The fence without SQLAlchemy: the same verdicts on psycopg's own connections and cursors."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tenure import StoreCannotLockError
from tenure.sql import (
    Applied,
    CommitUnknownError,
    NotApplied,
    PsycopgFence,
    ScopeGoneError,
    ScopeLostError,
    SetLocal,
    StaleEpochError,
    epoch_fence,
)
from tests.helpers.proxy import Loss, Proxy
from tests.sql.conftest import POOLED, POSTGRESQL
from tests.sql.databases import BASE, SCOPE, Database, Writer
from tests.sql.recording import Recorder

pytestmark = pytest.mark.parametrize("empty", [POSTGRESQL, POOLED], indirect=True)

STORE = "UPDATE doc SET body = %s WHERE id = %s"


def dsn(database: Database) -> str:
    return database.url.replace("+psycopg", "")


def connect(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, prepare_threshold=None)


@pytest.fixture
def fence(database: Database) -> PsycopgFence:
    return PsycopgFence(lambda: connect(dsn(database)))


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with contextlib.closing(connect(dsn(database))) as connection:
        yield connection


def test_all_that_the_fence_does(empty: Database) -> None:
    fence = PsycopgFence(lambda: connect(dsn(empty)), context=SetLocal("app.scope"))
    fence.migrate()
    fence.migrate()
    pin = fence.create(SCOPE, also=lambda cursor: cursor.execute("CREATE TABLE doc (id TEXT, body TEXT)"))
    with fence.write(pin) as cursor:
        cursor.execute("INSERT INTO doc VALUES (%s, %s)", [SCOPE, "base"])
        cursor.executemany("INSERT INTO doc VALUES (%s, %s)", [("a", "1"), ("b", "2")])
        with cursor.copy("COPY doc FROM STDIN") as copy:
            copy.write_row(("c", "3"))
        token = cursor.token
    assert cursor.committed_pin is not None
    assert fence.resolve(token) == Applied(cursor.committed_pin)
    with fence.read(SCOPE) as snap:
        assert snap.pin == cursor.committed_pin
        assert snap.execute("SELECT count(*) FROM doc").fetchone() == (4,)
    claimed = fence.claim(SCOPE, holder="me")
    with pytest.raises(StaleEpochError):
        fence.write(snap.pin).__enter__()
    fence.destroy(claimed, also=lambda cursor: cursor.execute("DELETE FROM doc"))
    with pytest.raises(ScopeGoneError), fence.read(SCOPE):
        pass
    assert fence.prune(0) > 0


def test_it_shares_its_tables_with_the_other_forms(database: Database, fence: PsycopgFence) -> None:
    a = Writer(database.fence()).load()
    with fence.read(SCOPE) as snap:
        pass
    assert snap.pin == a.pin
    with fence.write(snap.pin) as cursor:
        cursor.execute(STORE, ["base+B", SCOPE])
    with pytest.raises(StaleEpochError):
        a.append("+A")
    assert database.body() == "base+B"


def test_a_connection_that_one_has_stays_one_s_own(database: Database, connection: psycopg.Connection[Any]) -> None:
    pin = Writer(database.fence()).load().pin
    level = connection.isolation_level
    with epoch_fence(connection, pin) as cursor:
        cursor.execute(STORE, ["x", SCOPE])
    with pytest.raises(StaleEpochError), epoch_fence(connection, pin):
        pass
    assert not connection.closed
    assert connection.isolation_level == level
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert database.body() == "x"


def test_a_connection_in_a_transaction_or_in_autocommit_is_refused(
    database: Database, connection: psycopg.Connection[Any]
) -> None:
    """The fence would be in a savepoint, or after something else."""
    pin = Writer(database.fence()).load().pin
    with connection.transaction(), pytest.raises(StoreCannotLockError, match="a transaction already"):
        epoch_fence(connection, pin).__enter__()
    connection.rollback()
    connection.autocommit = True
    with pytest.raises(StoreCannotLockError, match="by itself"):
        epoch_fence(connection, pin).__enter__()
    assert database.epoch() == 1


@pytest.mark.parametrize("query", [b"nonsense", "nonsense", psycopg.sql.SQL("nonsense")])
def test_a_swallowed_error_is_raised_at_the_end(database: Database, fence: PsycopgFence, query: Any) -> None:
    pin = Writer(database.fence()).load().pin
    with pytest.raises(ScopeLostError), fence.write(pin) as cursor:
        cursor.execute(STORE, ["x", SCOPE])
        with contextlib.suppress(psycopg.Error):
            cursor.execute(query)
        with pytest.raises(ScopeLostError):
            cursor.execute(STORE, ["y", SCOPE])
    assert (database.body(), database.epoch()) == (BASE, 1)


def test_a_savepoint_makes_up_for_what_failed_in_it(database: Database, fence: PsycopgFence) -> None:
    pin = Writer(database.fence()).load().pin
    with fence.write(pin) as cursor:
        cursor.execute("SAVEPOINT here")
        with contextlib.suppress(psycopg.Error):
            cursor.execute("nonsense")
        cursor.execute("ROLLBACK TO SAVEPOINT here")
        cursor.execute(STORE, ["x", SCOPE])
    assert (database.body(), database.epoch()) == ("x", 2)


def test_nobody_commits_in_between(database: Database, connection: psycopg.Connection[Any]) -> None:
    pin = Writer(database.fence()).load().pin
    with pytest.raises(ScopeLostError, match="the fence's to send"), epoch_fence(connection, pin) as cursor:
        cursor.execute(STORE, ["x", SCOPE])
        with contextlib.suppress(ScopeLostError):
            connection.commit()
    with pytest.raises(ScopeLostError, match="rolled back from inside"), epoch_fence(connection, pin) as cursor:
        cursor.execute(STORE, ["x", SCOPE])
        connection.rollback()
    with pytest.raises(ScopeLostError, match="the fence's to do"), epoch_fence(connection, pin) as cursor:
        cursor.execute(STORE, ["x", SCOPE])
        cursor.execute("COMMIT")
    assert (database.body(), database.epoch()) == (BASE, 1)
    connection.execute(STORE, ["y", SCOPE])
    connection.commit()
    assert database.body() == "y", "afterwards the connection is as it was"


def test_the_fence_waits_for_the_server_no_oftener_than_begin(database: Database) -> None:
    pin = Writer(database.fence()).load().pin
    waits = []
    recorder = Recorder(database.port)
    with recorder, connect(recorder.before(dsn(database))) as connection:
        cursor = connection.cursor()
        for _ in range(2):
            recorder.forget()
            cursor.execute(STORE, ["x", SCOPE])
            connection.commit()
        waits.append(recorder.waits())
        recorder.forget()
        with epoch_fence(connection, pin) as cursor:
            cursor.execute(STORE, ["y", SCOPE])
        waits.append(recorder.waits())
    assert waits == [3, 3], "BEGIN, with or without the fence; the statement; COMMIT"


def test_a_block_that_did_nothing_takes_no_number(database: Database, fence: PsycopgFence) -> None:
    pin = Writer(database.fence()).load().pin
    with fence.write(pin) as cursor:
        pass
    assert cursor.committed_pin == pin
    with fence.write(pin) as cursor:
        cursor.execute(STORE, ["x", SCOPE])
        cursor.withdraw()
    assert (database.body(), database.epoch()) == (BASE, 1)


@pytest.mark.parametrize(("loss", "applied"), [("answer", True), ("request", False)])
def test_a_lost_commit_is_unknown_until_it_is_resolved(database: Database, loss: Loss, applied: bool) -> None:
    pin = Writer(database.fence()).load().pin
    with Proxy(database.port) as proxy:
        fence = PsycopgFence(lambda: connect(proxy.before(dsn(database))))
        with pytest.raises(CommitUnknownError) as unknown, fence.write(pin) as cursor:
            cursor.execute(STORE, ["x", SCOPE])
            proxy.lose(loss, b"COMMIT")
        state = fence.resolve(unknown.value.token)
    assert isinstance(state, Applied if applied else NotApplied)
    assert database.body() == ("x" if applied else BASE)


def test_a_dead_connection_is_a_lost_scope(database: Database) -> None:
    pin = Writer(database.fence()).load().pin
    with Proxy(database.port) as proxy:
        fence = PsycopgFence(lambda: connect(proxy.before(dsn(database))))
        with pytest.raises(ScopeLostError), fence.write(pin) as cursor:
            cursor.execute(STORE, ["x", SCOPE])
            proxy.cut()
            cursor.execute(STORE, ["y", SCOPE])
        with fence.write(pin) as cursor:
            cursor.execute(STORE, ["z", SCOPE])
    assert database.body() == "z"


def test_it_needs_no_sqlalchemy(database: Database) -> None:
    code = "import sys; from tenure.sql import PsycopgFence, epoch_fence; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
