"""The fence for programs that use psycopg and no SQLAlchemy. The statements and the verdicts are the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Literal

import psycopg
from psycopg import IsolationLevel
from psycopg.sql import Composable

from tenure._clock import Clock
from tenure.errors import StoreCannotLockError
from tenure.sql._base import Fence
from tenure.sql._drivers import DRIVERS, Standing
from tenure.sql._link import Link, Mode, Watcher, refuse_autocommit
from tenure.sql._operations import reading_failed, snapshot
from tenure.sql._pin import CommitToken, Pin, check_scope
from tenure.sql._publishing import Publish
from tenure.sql._roundtrip import one_by_one, together
from tenure.sql._scope import Held, Plan, Scope
from tenure.sql._settings import AdvisoryXactLock, Context, SetLocal, Settings
from tenure.sql._statements import Family, Outcome, Statement

Connection = psycopg.Connection[Any]
Connect = Callable[[], AbstractContextManager[Connection]]
_DRIVER = DRIVERS["postgresql", "psycopg"]
_ENDINGS: tuple[Literal["commit", "rollback"], ...] = ("commit", "rollback")


class PsycopgLink:
    """
    A psycopg connection.

    Its transaction is none of `Connection.transaction()`, which would wait for a BEGIN of its own: that goes with the fence.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begun = False
        self._level = connection.isolation_level
        self._backend: object = None

    @property
    def family(self) -> Family:
        return "postgresql"

    @property
    def handle(self) -> Connection:
        return self._connection

    def begin(self, mode: Mode) -> None:
        refuse_autocommit(_DRIVER, self._connection)
        if int(self._connection.info.transaction_status) != 0:
            raise StoreCannotLockError(
                "there is a transaction already, so that the fence would not come first",
                hint="commit before, or give tenure a connection of its own",
            )
        levels = {"snapshot": IsolationLevel.REPEATABLE_READ, "look": IsolationLevel.READ_COMMITTED}
        self._connection.isolation_level = levels.get(mode, self._level)
        self._backend = _DRIVER.backend(self._connection)
        self._begun = True

    def run(self, statement: Statement) -> Outcome:
        return one_by_one(self._connection, [statement])

    def run_together(self, statements: Sequence[Statement]) -> Outcome:
        return together(self._connection, statements)

    def watch(self, watcher: Watcher | None) -> None:
        # A `FencedCursor` asks by itself. What else ends a transaction are two methods of the connection, in everybody's reach.
        own = vars(self._connection)
        for how in _ENDINGS:
            if watcher is None:
                own.pop(how, None)
            else:
                own[how] = partial(self._end, watcher, how)

    def _end(self, watcher: Watcher, how: Literal["commit", "rollback"]) -> None:
        watcher.ending(how)
        self.watch(None)
        getattr(self._connection, how)()

    def standing(self) -> Standing:
        return "none" if self._connection.closed else _DRIVER.standing(self._connection)

    def same_backend(self) -> bool:
        return not self._connection.closed and _DRIVER.backend(self._connection) == self._backend

    def commit(self) -> None:
        self._begun = False
        try:
            self._connection.commit()
        finally:
            self._restore()

    def rollback(self) -> None:
        self.watch(None)
        if not self._begun:
            # Nothing of ours: a connection that was refused stays as it was.
            return
        self._begun = False
        try:
            self._connection.rollback()
            self._restore()
        except Exception:  # noqa: BLE001  whatever it is, the connection is of no use any more
            self.discard()

    def discard(self) -> None:
        self.watch(None)
        with contextlib.suppress(Exception):
            self._connection.close()

    def _restore(self) -> None:
        if self.standing() == "none" and not self._connection.closed:
            self._connection.isolation_level = self._level


class FencedCursor(psycopg.Cursor[Any]):
    """
    A psycopg cursor in a transaction whose first statement was the fence. Made by `PsycopgFence.write`.

    Every statement goes through it; another cursor of the same connection is not asked about. Savepoints are made with
    SQL. What `FencedTransaction` says of failures holds here too.
    """

    fenced: Scope
    committed_pin: Pin | None = None

    @property
    def token(self) -> CommitToken:
        """Names this commit, for `resolve`."""
        token = self.fenced.token
        assert token is not None
        return token

    def withdraw(self) -> None:
        """See `FencedTransaction.withdraw`."""
        self.fenced.withdraw()

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> FencedCursor:
        """As `psycopg.Cursor.execute`."""
        self.fenced.before(self._text(query))
        super().execute(query, *args, **kwargs)
        self.fenced.after()
        return self

    def executemany(self, query: Any, *args: Any, **kwargs: Any) -> None:
        """As `psycopg.Cursor.executemany`."""
        self.fenced.before(self._text(query))
        super().executemany(query, *args, **kwargs)
        self.fenced.after()

    def stream(self, query: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """As `psycopg.Cursor.stream`; a stream that is not read to its end counts as a failed statement."""
        self.fenced.before(self._text(query))
        yield from super().stream(query, *args, **kwargs)
        self.fenced.after()

    @contextmanager
    def copy(self, statement: Any, *args: Any, **kwargs: Any) -> Iterator[psycopg.Copy]:
        """As `psycopg.Cursor.copy`."""
        self.fenced.before(self._text(statement))
        with super().copy(statement, *args, **kwargs) as copy:
            yield copy
        self.fenced.after()

    def _text(self, query: Any) -> str:
        if isinstance(query, bytes):
            return query.decode("utf-8", "replace")
        return query.as_string(self) if isinstance(query, Composable) else str(query)


class PsycopgTransaction:
    """One transaction whose first statement is the fence; entered, it is a `FencedCursor`."""

    def __init__(
        self, connect: Connect, plan: Plan, finish: Callable[[Pin, Plan, Held | None], None], hold: Held | None
    ) -> None:
        self._connect = connect
        self._plan = plan
        self._finish = finish
        self._hold = hold
        self._stack = contextlib.ExitStack()
        self._cursor: FencedCursor | None = None
        self.committed_pin: Pin | None = None

    def __enter__(self) -> FencedCursor:
        if self._cursor is not None:
            self._cursor.fenced.open()
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(self._connect())
            self._cursor = FencedCursor(connection, row_factory=connection.row_factory)
            self._cursor.fenced = Scope(PsycopgLink(connection), self._plan)
            self._cursor.fenced.open()
            self._stack = stack.pop_all()
        return self._cursor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._cursor is not None
        scope = self._cursor.fenced
        # By now the transaction has ended: whatever gave the connection finds it idle.
        with self._stack, self._cursor:
            if error is not None:
                meant = scope.abandon(error)
                if meant is not error:
                    raise meant from error
                return
            scope.commit(None if self._hold is None else self._hold.check)
        self.committed_pin = self._cursor.committed_pin = scope.committed
        if scope.took_a_number:
            assert scope.committed is not None
            self._finish(scope.committed, self._plan, self._hold)


class PsycopgSnapshot:
    """One moment of the database, with the pin of a scope. Made by `PsycopgFence.read`."""

    def __init__(self, connection: Connection, pin: Pin) -> None:
        self.connection = connection
        self.pin = pin

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> psycopg.Cursor[Any]:
        """As `psycopg.Connection.execute`."""
        return self.connection.execute(query, *args, **kwargs)


class PsycopgFence(Fence[PsycopgTransaction, FencedCursor]):
    """
    `EpochFence` for psycopg alone: `write` gives a cursor, and `read` a snapshot with `pin` and `execute`.

    Args:
        connect: gives a connection for one operation, as a context manager: `pool.connection` of psycopg_pool, or
            `lambda: psycopg.connect(...)`. Not in autocommit. Behind PgBouncer before 1.21 with `prepare_threshold=None`.
        table, ledger, context, lock, publish, clock: as for `EpochFence`.

    Example:
        >>> fence = PsycopgFence(lambda: psycopg.connect("dbname=app"))
    """

    def __init__(
        self,
        connect: Connect,
        *,
        table: str = "tenure_fence",
        ledger: str = "tenure_commit",
        context: SetLocal | Context | None = None,
        lock: AdvisoryXactLock | None = None,
        publish: Publish | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(Settings(table, ledger, context, lock), publish, clock)
        self._connect = connect

    @contextmanager
    def read(self, scope: str) -> Iterator[PsycopgSnapshot]:
        """See `EpochFence.read`."""
        check_scope(scope)
        with self._connect() as connection:
            link = PsycopgLink(connection)
            pin = snapshot(link, self._settings, scope)
            try:
                yield PsycopgSnapshot(connection, pin)
            except BaseException as error:
                meant = reading_failed(link, self._settings, scope, error)
                if meant is error:
                    raise
                raise meant from error
            link.rollback()

    @contextmanager
    def _link(self) -> Iterator[Link]:
        with self._connect() as connection:
            yield PsycopgLink(connection)

    def _transaction(self, plan: Plan, hold: Held | None) -> PsycopgTransaction:
        return PsycopgTransaction(self._connect, plan, self._finish, hold)


def epoch_fence(connection: Connection, pin: Pin, *, hold: Held | None = None, **options: Any) -> PsycopgTransaction:
    """
    `PsycopgFence.write` on a connection that you have: it must be idle, and it stays yours.

    Args:
        connection: not in autocommit, and not in a transaction.
        pin: of the load.
        hold: as for `EpochFence.write`.
        **options: as for `PsycopgFence`.

    Example:
        >>> def append(connection, pin, tail):
        ...     with epoch_fence(connection, pin) as cursor:
        ...         cursor.execute("UPDATE doc SET body = body || %s WHERE id = 42", [tail])
        ...     return cursor.committed_pin
    """
    return PsycopgFence(lambda: contextlib.nullcontext(connection), **options).write(pin, hold=hold)
