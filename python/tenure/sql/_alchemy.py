"""SQLAlchemy's connection as the fence's link. For asyncio it is the same one, in a greenlet."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, RootTransaction
from sqlalchemy.exc import SQLAlchemyError

from tenure.errors import StoreCannotLockError
from tenure.sql._drivers import Standing, driver_of
from tenure.sql._link import Mode, Watcher, refuse_autocommit
from tenure.sql._roundtrip import together
from tenure.sql._statements import Family, Outcome, Statement, render


class SqlAlchemyLink:
    """
    A connection of an engine.

    Whoever has the connection itself runs statements past us, so it is then listened to: see `expose`. SQLAlchemy's events
    cost more than most statements need, hence not before.
    """

    def __init__(self, connection: Connection) -> None:
        dialect = connection.dialect
        self._driver = driver_of(dialect.name, dialect.driver)
        self._pipelines = dialect.driver == "psycopg" and not dialect.is_async
        self._connection = connection
        self._transaction: RootTransaction | None = None
        self._backend: object = None
        self._begun: Any = None
        self._watcher: Watcher | None = None
        self._exposed = False

    @property
    def family(self) -> Family:
        return self._driver.family

    @property
    def handle(self) -> Connection:
        return self._connection

    @property
    def _raw(self) -> Any:
        return self._connection.connection.driver_connection

    def begin(self, mode: Mode) -> None:
        connection = self._connection
        if connection.in_transaction():
            raise StoreCannotLockError(
                "there is a transaction already, so that the fence would not come first",
                hint="give tenure a connection of its own",
            )
        if self.family == "postgresql" and mode != "write":
            # Whatever the engine is set to: one snapshot for a load, and what is there now for a look.
            level = "REPEATABLE READ" if mode == "snapshot" else "READ COMMITTED"
            connection.execution_options(isolation_level=level)
        self._begun = raw = self._raw
        refuse_autocommit(self._driver, raw)
        self._transaction = connection.begin()
        self._backend = self._driver.backend(raw)
        if self.family == "sqlite":
            if self.standing() != "none":
                # Some programs have a hook that begins; nothing has been done in it.
                self._tell("ROLLBACK")
            # IMMEDIATE: a transaction that reads first and writes later may find that it cannot, and no waiting helps.
            self._tell("BEGIN IMMEDIATE" if mode == "write" else "BEGIN")
        elif self.family == "mysql" and mode == "snapshot":
            self._tell("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def run(self, statement: Statement) -> Outcome:
        sql, params = render(statement, self._driver.style)
        result = self._connection.exec_driver_sql(sql, params) if params else self._tell(sql)
        rows = [tuple(row) for row in result.all()] if result.returns_rows else ()
        return Outcome(rows, result.rowcount, None if result.returns_rows else _lastrowid(result))

    def run_together(self, statements: Sequence[Statement]) -> Outcome:
        if self._pipelines:
            return together(self._raw, statements)
        return [self.run(statement) for statement in statements][-1]

    def watch(self, watcher: Watcher | None) -> None:
        self._watcher = watcher

    @property
    def exposed(self) -> bool:
        """Whether SQLAlchemy tells the watcher by itself."""
        return self._exposed

    def expose(self) -> None:
        """From now on have SQLAlchemy tell the watcher of all that anybody runs on this connection."""
        if self._exposed:
            return
        self._exposed = True
        connection = self._connection

        @event.listens_for(connection, "before_cursor_execute")
        def before(_connection: Connection, _cursor: Any, sql: str, *_: Any) -> None:
            if self._watcher is not None:
                self._watcher.before(sql)

        @event.listens_for(connection, "after_cursor_execute")
        def after(*_: Any) -> None:
            if self._watcher is not None:
                self._watcher.after()

        @event.listens_for(connection, "commit")
        def commit(_connection: Connection) -> None:
            if self._watcher is not None:
                self._watcher.ending("commit")

        @event.listens_for(connection, "rollback")
        def rollback(_connection: Connection) -> None:
            if self._watcher is not None:
                self._watcher.ending("rollback")

    def standing(self) -> Standing:
        # Asked before every statement: SQLAlchemy's own way to the driver's connection is a long one.
        return "none" if self._connection.invalidated else self._driver.standing(self._begun)

    def same_backend(self) -> bool:
        return not self._connection.invalidated and self._driver.backend(self._begun) == self._backend

    def commit(self) -> None:
        assert self._transaction is not None
        if self.family == "sqlite":
            # The driver's own commit does nothing when it is set to autocommit.
            self._tell("COMMIT")
        self._transaction.commit()

    def rollback(self) -> None:
        self.watch(None)
        try:
            if self.family == "sqlite" and self.standing() != "none":
                self._tell("ROLLBACK")
            if self._transaction is not None and self._transaction.is_active:
                self._transaction.rollback()
            # Inactive transactions are not rolled back a second time, however they became so.
            if not self._connection.invalidated and self.standing() != "none":
                self._connection.connection.rollback()
        except Exception:  # noqa: BLE001  whatever it is, the connection is of no use any more
            self.discard()

    def discard(self) -> None:
        self.watch(None)
        with contextlib.suppress(Exception):
            self._connection.invalidate()
        if self._transaction is not None:
            with contextlib.suppress(Exception):
                self._transaction.close()

    def _tell(self, sql: str) -> Any:
        return self._connection.exec_driver_sql(sql, execution_options={"no_parameters": True})


def _lastrowid(result: Any) -> int | None:
    try:
        value = result.lastrowid
    except (AttributeError, SQLAlchemyError):
        # PostgreSQL's drivers have none.
        return None
    return value if isinstance(value, int) else None
