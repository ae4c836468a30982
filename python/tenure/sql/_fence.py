"""The fence for programs that use SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import Engine

from tenure._clock import Clock
from tenure.errors import StoreCannotLockError
from tenure.sql._alchemy import SqlAlchemyLink
from tenure.sql._base import Fence
from tenure.sql._drivers import driver_of
from tenure.sql._link import Link
from tenure.sql._pin import check_scope
from tenure.sql._publishing import Publish
from tenure.sql._scope import Held, Plan
from tenure.sql._settings import AdvisoryXactLock, Context, SetLocal, Settings
from tenure.sql._transaction import FencedTransaction, Snapshot


class EpochFence(Fence[FencedTransaction, FencedTransaction]):
    """
    Refuses, inside the database, the COMMIT of a writer that loaded its data before somebody else committed.

    Each *scope*, which is any name that has one writer at a time, has a row with a counter in a table of its own. A load
    keeps the counter's value as a `Pin`; a write begins by raising the counter from exactly that value, and is refused if
    it is another by now. No clock and no lock has a part in it.

    Safe to share between threads. Works behind a transaction-pooling PgBouncer, where everything it sets ends with the
    transaction.

    Args:
        engine: for PostgreSQL (psycopg), MySQL or MariaDB (PyMySQL) or SQLite; not in autocommit.
        table: the table of scopes, with or without a schema.
        ledger: the table of commits, which answers `resolve`.
        context: the row-level security context: a `SetLocal`, or a function of connection and scope that is called in each
            transaction before the fence.
        lock: an `AdvisoryXactLock`, if writers are to queue before the fence.
        publish: called with a `Notice` after each commit that is known to have happened.
        clock: for tests.

    Raises:
        StoreCannotLockError: the engine is in autocommit, or its driver cannot be looked into.
        ValueError: a name is no table's name.

    Example:
        >>> from sqlalchemy import create_engine, text
        >>> fence = EpochFence(create_engine("sqlite://"))
        >>> fence.migrate()
        >>> pin = fence.create("doc:42")
        >>> with fence.write(pin) as tx:
        ...     _ = tx.execute(text("CREATE TABLE doc (body TEXT)"))
        >>> tx.committed_pin.epoch
        2
    """

    def __init__(
        self,
        engine: Engine,
        *,
        table: str = "tenure_fence",
        ledger: str = "tenure_commit",
        context: SetLocal | Context | None = None,
        lock: AdvisoryXactLock | None = None,
        publish: Publish | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = Settings(table, ledger, context, lock)
        settings.check(driver_of(engine.dialect.name, engine.dialect.driver).family)
        super().__init__(settings, publish, clock)
        self._engine = checked(engine)

    def read(self, scope: str) -> Snapshot:
        """
        Load within its block: `pin` and data are of one moment. Keep the two together, in caches too.

        Raises, when entered:
            ScopeGoneError: destroyed, or never made.
            ContextError: row-level security hides it.
            ScopeLostError: the database failed; load again.
            StoreCannotLockError: `migrate` was never called here.
        """
        check_scope(scope)
        return Snapshot(self._engine, self._settings, scope)

    @contextmanager
    def _link(self) -> Iterator[Link]:
        with self._engine.connect() as connection:
            yield SqlAlchemyLink(connection)

    def _transaction(self, plan: Plan, hold: Held | None) -> FencedTransaction:
        return FencedTransaction(self._engine, plan, self._finish, hold)


def checked(engine: Engine) -> Engine:
    """
    Refuse at construction what would void the fence.

    Raises:
        StoreCannotLockError: says what, and what to change.
    """
    driver_of(engine.dialect.name, engine.dialect.driver)
    levels = (
        engine.get_execution_options().get("isolation_level"),
        # What create_engine(isolation_level=...) was given has no public name. Connections are asked once more.
        getattr(engine.dialect, "_on_connect_isolation_level", None),
    )
    if any(isinstance(level, str) and level.upper().replace("_", " ") == "AUTOCOMMIT" for level in levels):
        raise StoreCannotLockError(
            "this engine commits every statement by itself, so nothing can be refused as a whole",
            hint="give the fence an engine without AUTOCOMMIT: they can share a pool, engine.execution_options(...)",
        )
    return engine
