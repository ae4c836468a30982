"""
The fence for asyncio: the same code as for threads, in SQLAlchemy's greenlets.

A cancellation never leaves a commit half known: one that has been sent is waited for, and then the cancellation is passed
on. One that comes while a transaction opens leaves none.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql import Executable

from tenure.sql import _operations
from tenure.sql._alchemy import SqlAlchemyLink
from tenure.sql._base import lease_lost, publish_failed
from tenure.sql._drivers import driver_of
from tenure.sql._errors import FenceError
from tenure.sql._fence import checked
from tenure.sql._link import Link
from tenure.sql._operations import Resolution, reading_failed, snapshot
from tenure.sql._pin import CommitToken, Pin, check_pin, check_scope
from tenure.sql._publishing import Deferred, Notice, Publish
from tenure.sql._retrying import Attempts, record, recording
from tenure.sql._scope import Held, Plan, Scope
from tenure.sql._settings import AdvisoryXactLock, Context, SetLocal, Settings
from tenure.sql._statements import Move

if TYPE_CHECKING:
    from sqlalchemy.engine import CursorResult
    from sqlalchemy.ext.asyncio import AsyncSession

P = ParamSpec("P")
T = TypeVar("T")
Also = Callable[["AsyncFencedTransaction"], Awaitable[object]]


class AsyncFencedTransaction:
    """See `FencedTransaction`. Made by `AsyncEpochFence.write`; an async context manager, entered once."""

    def __init__(
        self,
        engine: AsyncEngine,
        plan: Plan,
        finish: Callable[[Pin, Plan, Held | None], Awaitable[None]],
        hold: Held | None,
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._finish = finish
        self._hold = hold
        self._connection: AsyncConnection | None = None
        self._scope: Scope | None = None
        self.pin = plan.pin
        self.committed_pin: Pin | None = None

    @property
    def scope(self) -> str:
        """The scope's name."""
        return self._plan.scope

    @property
    def token(self) -> CommitToken:
        """See `FencedTransaction.token`."""
        token = self._entered().token
        assert token is not None
        return token

    @property
    def connection(self) -> AsyncConnection:
        """SQLAlchemy's connection. Each of its statements is asked about."""
        self._entered().check()
        assert self._connection is not None
        return self._connection

    async def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """As `AsyncConnection.execute`."""
        return await self.connection.execute(statement, parameters)

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """As `AsyncConnection.scalar`."""
        return await self.connection.scalar(statement, parameters)

    def savepoint(self) -> AbstractAsyncContextManager[object]:
        """See `FencedTransaction.savepoint`."""
        return self.connection.begin_nested()

    def session(self, **options: Any) -> AsyncSession:
        """See `FencedTransaction.session`."""
        from sqlalchemy.ext.asyncio import AsyncSession  # noqa: PLC0415  not everybody has an ORM

        return AsyncSession(bind=self.connection, join_transaction_mode="rollback_only", **options)

    def withdraw(self) -> None:
        """See `FencedTransaction.withdraw`."""
        self._entered().withdraw()

    async def __aenter__(self) -> AsyncFencedTransaction:
        if self._scope is not None:
            self._scope.open()
        connection = await self._engine.connect()
        try:
            await connection.run_sync(self._open)
        except BaseException:
            await _to_its_end(connection.close())
            raise
        self._connection = connection
        return self

    def _open(self, connection: Any) -> None:
        link = SqlAlchemyLink(connection)
        link.expose()
        self._scope = Scope(link, self._plan)
        self._scope.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope = self._entered()
        assert self._connection is not None
        try:
            if error is not None:
                meant = await _to_its_end(self._connection.run_sync(lambda _: scope.abandon(error)))
                if meant is not error:
                    raise meant from error
                return
            await _to_its_end(self._commit(scope))
        finally:
            await _to_its_end(self._connection.close())
        if scope.took_a_number:
            assert scope.committed is not None
            await self._finish(scope.committed, self._plan, self._hold)

    async def _commit(self, scope: Scope) -> None:
        assert self._connection is not None
        lost = None
        if self._hold is not None and scope.alive:
            try:
                await asyncio.to_thread(self._hold.check)
            except Exception as error:  # noqa: BLE001  raised by the scope, which first rolls back
                lost = error

        def ask() -> None:
            if lost is not None:
                raise lost

        await self._connection.run_sync(lambda _: scope.commit(ask))
        self.committed_pin = scope.committed

    def _entered(self) -> Scope:
        if self._scope is None:
            raise RuntimeError("a fenced transaction is used in an `async with` block")
        return self._scope


class AsyncSnapshot:
    """See `Snapshot`. Made by `AsyncEpochFence.read`."""

    def __init__(self, engine: AsyncEngine, settings: Settings, scope: str) -> None:
        self._engine = engine
        self._settings = settings
        self._name = scope
        self._connection: AsyncConnection | None = None
        self._link: Link | None = None
        self.pin: Pin = None  # type: ignore[assignment]  # from __aenter__ on

    @property
    def connection(self) -> AsyncConnection:
        """SQLAlchemy's connection."""
        if self._connection is None:
            raise RuntimeError("a snapshot is used in an `async with` block")
        return self._connection

    async def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """As `AsyncConnection.execute`."""
        return await self.connection.execute(statement, parameters)

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """As `AsyncConnection.scalar`."""
        return await self.connection.scalar(statement, parameters)

    async def __aenter__(self) -> AsyncSnapshot:
        connection = await self._engine.connect()
        try:
            await connection.run_sync(self._open)
        except BaseException:
            await _to_its_end(connection.close())
            raise
        self._connection = connection
        return self

    def _open(self, connection: Any) -> None:
        self._link = SqlAlchemyLink(connection)
        self.pin = snapshot(self._link, self._settings, self._name)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        link = self._link
        assert link is not None
        try:
            if error is None:
                await self.connection.run_sync(lambda _: link.rollback())
                return
            meant = await self.connection.run_sync(lambda _: reading_failed(link, self._settings, self._name, error))
            if meant is not error:
                raise meant from error
        finally:
            await _to_its_end(self.connection.close())


class AsyncEpochFence:
    """
    `EpochFence` for asyncio, on an engine of `sqlalchemy.ext.asyncio`.

    Args:
        engine: for PostgreSQL (psycopg, asyncpg), MySQL or MariaDB (asyncmy) or SQLite (aiosqlite); not in autocommit.
        table, ledger, context, lock: as for `EpochFence`. A `context` that is a function gets the connection that
            `AsyncConnection.run_sync` gives, and is not async.
        publish: as for `EpochFence`; may be async.

    Example:
        >>> async def append(fence, scope, tail):
        ...     async with fence.read(scope) as snap:
        ...         pin, body = snap.pin, await snap.scalar(load, {"id": scope})
        ...     async with fence.write(pin) as tx:
        ...         await tx.execute(store, {"id": scope, "body": body + tail})
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        table: str = "tenure_fence",
        ledger: str = "tenure_commit",
        context: SetLocal | Context | None = None,
        lock: AdvisoryXactLock | None = None,
        publish: Publish | None = None,
    ) -> None:
        self._settings = Settings(table, ledger, context, lock)
        self._settings.check(driver_of(engine.dialect.name, engine.dialect.driver).family)
        checked(engine.sync_engine)
        self._engine = engine
        self._publish = publish
        self._deferred = Deferred()

    async def migrate(self, *, existing: str | None = None, patience: float = 10.0) -> None:
        """See `EpochFence.migrate`."""
        await self._run(lambda link: _operations.migrate(link, self._settings, existing, patience))

    def read(self, scope: str) -> AsyncSnapshot:
        """See `EpochFence.read`."""
        check_scope(scope)
        return AsyncSnapshot(self._engine, self._settings, scope)

    def write(self, pin: Pin, *, hold: Held | None = None) -> AsyncFencedTransaction:
        """See `EpochFence.write`. A `tenure.aio.AsyncHold` has its `hold` for this."""
        return self._transaction(Plan(self._settings, "commit", check_pin(pin).scope, pin), hold)

    async def claim(self, scope: str, *, holder: str | None = None, also: Also | None = None) -> Pin:
        """See `EpochFence.claim`."""
        check_scope(scope)
        return await self._at_once("claim", scope, None, holder, also)

    async def create(self, scope: str, *, also: Also | None = None) -> Pin:
        """See `EpochFence.create`."""
        check_scope(scope)
        return await self._at_once("create", scope, None, None, also)

    async def destroy(self, pin: Pin, *, also: Also | None = None) -> None:
        """See `EpochFence.destroy`."""
        await self._at_once("destroy", check_pin(pin).scope, pin, None, also)

    async def resolve(self, token: CommitToken, timeout: float = 10.0) -> Resolution:
        """See `EpochFence.resolve`."""
        if not timeout >= 0:
            raise ValueError(f"timeout must be 0 or more seconds, not {timeout!r}")
        try:
            connection = await self._engine.connect()
        except Exception as error:  # noqa: BLE001  what is not about the connection is raised again
            return _operations.unreachable(error)
        try:
            return await connection.run_sync(
                lambda raw: _operations.resolve(SqlAlchemyLink(raw), self._settings, token, timeout)
            )
        finally:
            await _to_its_end(connection.close())

    def retry(
        self, *, tries: int = 5, pause: float = 0.02, longest: float = 1.0
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
        """See `EpochFence.retry`; for coroutine functions."""

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
            @functools.wraps(function)
            async def retrying(*args: P.args, **kwargs: P.kwargs) -> T:
                attempts = Attempts(tries, pause, longest)
                while True:
                    applied: list[Pin] = []
                    try:
                        with recording(applied):
                            return await function(*args, **kwargs)
                    except FenceError as error:
                        seconds = attempts.pause(error, applied)
                        if seconds is None:
                            raise
                    await asyncio.sleep(seconds)

            return retrying

        return decorate

    async def publish_deferred(self) -> int:
        """See `EpochFence.publish_deferred`."""
        for notice in self._deferred.all():
            await self._tell(notice)
        return len(self._deferred.all())

    async def prune(self, older_than: float) -> int:
        """See `EpochFence.prune`."""
        if not older_than >= 0:
            raise ValueError(f"older_than must be 0 or more seconds, not {older_than!r}")
        return await self._run(lambda link: _operations.prune(link, self._settings, int(older_than)))

    async def _run(self, work: Callable[[Link], T]) -> T:
        async with self._engine.connect() as connection:
            return await connection.run_sync(lambda raw: work(SqlAlchemyLink(raw)))

    def _transaction(self, plan: Plan, hold: Held | None) -> AsyncFencedTransaction:
        return AsyncFencedTransaction(self._engine, plan, self._finish, hold)

    async def _at_once(self, move: Move, scope: str, pin: Pin | None, holder: str | None, also: Also | None) -> Pin:
        transaction = self._transaction(Plan(self._settings, move, scope, pin, holder), None)
        async with transaction:
            if also is not None:
                await also(transaction)
        assert transaction.committed_pin is not None
        return transaction.committed_pin

    async def _finish(self, pin: Pin, plan: Plan, hold: Held | None) -> None:
        record(pin)
        notice = Notice(pin.scope, pin.epoch, gone=plan.move == "destroy")
        failed = await self._tell(notice)
        if failed is not None:
            raise publish_failed(notice) from failed
        if hold is not None and hold.state == "lost":
            raise lease_lost(pin)

    async def _tell(self, notice: Notice) -> Exception | None:
        if self._publish is None:
            return None
        try:
            published = self._publish(notice)
            if inspect.isawaitable(published):
                await published
        except Exception as error:  # noqa: BLE001  whatever it is, the commit has happened
            self._deferred.keep(notice)
            return error
        self._deferred.done(notice)
        return None


async def _to_its_end(work: Awaitable[T]) -> T:
    """Await *work*, also when cancelled meanwhile; the cancellation is passed on afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:  # noqa: BLE001  told by `result` below
            break
    if cancelled is not None:
        if not task.cancelled():
            # Looked at, or asyncio would complain that nobody has.
            task.exception()
        raise cancelled
    return task.result()
