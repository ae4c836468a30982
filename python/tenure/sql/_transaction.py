"""What a program has of a fenced transaction, and of a load: SQLAlchemy's connection, behind the scope's verdict."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql import Executable
from sqlalchemy.sql.elements import TextClause

from tenure.sql._alchemy import SqlAlchemyLink
from tenure.sql._operations import reading_failed, snapshot
from tenure.sql._pin import CommitToken, Pin
from tenure.sql._scope import Held, Plan, Scope
from tenure.sql._settings import Settings

if TYPE_CHECKING:
    from sqlalchemy.engine import CursorResult
    from sqlalchemy.orm import Session


class FencedTransaction:
    """
    One transaction whose first statement is the fence. Made by `EpochFence.write`; a context manager, entered once.

    Every statement goes through it, or through its `connection` or a `session()`; leaving the block commits, an exception
    rolls back. After any failure nothing more runs and the block cannot end well, even where the program caught the
    error; only a savepoint that is rolled back makes up for what failed in it. COMMIT, ROLLBACK and, where that commits,
    DDL are refused inside.

    Attributes:
        pin: what it was entered with; None where the scope is claimed or made.
        committed_pin: for the next write; None until the commit is known to have happened. The same as `pin` if there was
            nothing to do.
    """

    def __init__(
        self, engine: Engine, plan: Plan, finish: Callable[[Pin, Plan, Held | None], None], hold: Held | None
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._finish = finish
        self._hold = hold
        self._connection: Connection | None = None
        self._link: SqlAlchemyLink | None = None
        self._scope: Scope | None = None
        self.pin = plan.pin
        self.committed_pin: Pin | None = None

    @property
    def scope(self) -> str:
        """The scope's name."""
        return self._plan.scope

    @property
    def token(self) -> CommitToken:
        """Names this commit, for `resolve`; a program that may die in COMMIT stores it elsewhere first."""
        token = self._entered().token
        assert token is not None
        return token

    @property
    def connection(self) -> Connection:
        """SQLAlchemy's connection, for code that wants one. Each of its statements is asked about."""
        self._entered().check()
        assert self._connection is not None
        assert self._link is not None
        self._link.expose()
        return self._connection

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """As `Connection.execute`."""
        scope = self._entered()
        assert self._connection is not None
        assert self._link is not None
        if self._link.exposed:
            # Then SQLAlchemy asks.
            scope.check()
            return self._connection.execute(statement, parameters)
        scope.before(_words(statement))
        result = self._connection.execute(statement, parameters)
        scope.after()
        return result

    def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """As `Connection.scalar`."""
        return self.execute(statement, parameters).scalar()

    def savepoint(self) -> AbstractContextManager[object]:
        """A savepoint, after the fence. If its block fails and the error is caught outside, the rest goes on."""
        return self.connection.begin_nested()

    def session(self, **options: Any) -> Session:
        """
        An ORM session within this transaction. Its `commit` flushes and does not commit; its `rollback` ends the block.

        Args:
            **options: as for `sqlalchemy.orm.Session`.
        """
        from sqlalchemy.orm import Session  # noqa: PLC0415  not everybody has an ORM

        return Session(bind=self.connection, join_transaction_mode="rollback_only", **options)

    def withdraw(self) -> None:
        """Nothing has to be done after all: leaving the block rolls back and takes no number, and the pin stays good."""
        self._entered().withdraw()

    def __enter__(self) -> FencedTransaction:
        if self._scope is not None:
            # Raises: either the verdict, or that it was entered already.
            self._scope.open()
        self._connection = self._engine.connect()
        try:
            self._link = SqlAlchemyLink(self._connection)
            self._scope = Scope(self._link, self._plan)
            self._scope.open()
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope = self._entered()
        assert self._connection is not None
        try:
            if error is not None:
                meant = scope.abandon(error)
                if meant is not error:
                    raise meant from error
                return
            scope.commit(None if self._hold is None else self._hold.check)
        finally:
            self._connection.close()
        self.committed_pin = scope.committed
        if scope.took_a_number:
            assert scope.committed is not None
            self._finish(scope.committed, self._plan, self._hold)

    def _entered(self) -> Scope:
        if self._scope is None:
            raise RuntimeError("a fenced transaction is used in a `with` block")
        return self._scope


def _words(statement: Executable) -> str:
    """What of *statement* could end a transaction: SQL that somebody wrote, and DDL. SQLAlchemy makes nothing else of the kind."""
    if isinstance(statement, TextClause):
        return statement.text
    return "CREATE" if isinstance(statement, ExecutableDDLElement) else ""


class Snapshot:
    """
    One moment of the database, with the pin of a scope. Made by `EpochFence.read`; nothing that is written here is kept.

    Attributes:
        pin: read before everything else.
    """

    def __init__(self, engine: Engine, settings: Settings, scope: str) -> None:
        self._engine = engine
        self._settings = settings
        self._name = scope
        self._connection: Connection | None = None
        self._link: SqlAlchemyLink | None = None
        self.pin: Pin = None  # type: ignore[assignment]  # from __enter__ on

    @property
    def connection(self) -> Connection:
        """SQLAlchemy's connection."""
        if self._connection is None:
            raise RuntimeError("a snapshot is used in a `with` block")
        return self._connection

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """As `Connection.execute`."""
        return self.connection.execute(statement, parameters)

    def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """As `Connection.scalar`."""
        return self.connection.scalar(statement, parameters)

    def session(self, **options: Any) -> Session:
        """An ORM session that reads this moment. What it loaded belongs to `pin`; expunge what is to be kept."""
        from sqlalchemy.orm import Session  # noqa: PLC0415  not everybody has an ORM

        return Session(bind=self.connection, join_transaction_mode="rollback_only", **options)

    def __enter__(self) -> Snapshot:
        self._connection = self._engine.connect()
        try:
            self._link = SqlAlchemyLink(self._connection)
            self.pin = snapshot(self._link, self._settings, self._name)
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._link is not None
        try:
            if error is None:
                self._link.rollback()
                return
            meant = reading_failed(self._link, self._settings, self._name, error)
            if meant is not error and isinstance(error, Exception):
                raise meant from error
        finally:
            self.connection.close()
