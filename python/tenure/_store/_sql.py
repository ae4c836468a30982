"""A table in a database as a store: SQLite, PostgreSQL, MySQL and MariaDB, through SQLAlchemy's Core."""

from __future__ import annotations

import itertools
import os
import secrets
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from sqlalchemy import Executable
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from tenure._clock import Clock, SystemClock
from tenure._store._failures import told, too_large
from tenure._store._protocol import Created, Stored, check_key, check_prefix
from tenure._store._records import MAX_SIZE_BYTES, check_data
from tenure._store._sql_address import AbsentError, find
from tenure._store._sql_failures import lacks_table, sql_error
from tenure.errors import StoreError, StoreUnavailableError

Result = TypeVar("Result")

# How long an unclear outcome is followed up: several times what one request may take.
_PATIENCE_S = 20.0
_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
_PAGE = 500
# How often a create starts over when the record it lost to is gone before it could be read.
_ATTEMPTS = 10
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


class SqlStore:
    """
    A store in one table of a database, made at the first write. See `open_store` for its URLs.

    Each operation is one statement and a transaction of its own, so that it works through a pooler that gives every
    transaction another connection. Nothing is kept in a session: no lock, no setting, no prepared statement.

    Args:
        url: as for `open_store`.
        clock: times the patience with a database that does not answer; for tests.
    """

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        address = find(url)
        self._records = address.records
        self._shown = address.shown
        self._file = address.file
        self._pool = address.engine
        self._clock: Clock = SystemClock() if clock is None else clock
        self._pid = os.getpid()
        weakref.finalize(self, _close, address.engine, self._pid)

    @property
    def url(self) -> str:
        return self._shown

    def create(self, key: str, data: bytes) -> Created:
        check_key(key)
        check_data(data)
        # Drawn once: a statement that is sent again finds its own record where only the answer was lost.
        version = secrets.token_hex(16)
        row: dict[str, Any] = {"key": key, "data": bytes(data), "version": version}

        def insert(connection: Connection) -> Created | None:
            try:
                if _count(connection, self._records.insert(), row) == 1:
                    return Created(True, row["data"])
            except IntegrityError:
                found = self._found(connection, key)
                return None if found is None else Created(found.version == version, found.data)
            raise StoreError(f"a new record was swallowed by a rule or trigger. store=`{self.url}`", hint="remove it")

        for _ in range(_ATTEMPTS):
            try:
                created = self._do("create a record", insert, writes=True)
            except _NoTableError:
                self._make()
                continue
            if created is not None:
                return created
            # The winner's record was deleted before we could read it.
        raise StoreUnavailableError(f"records vanish as fast as they are made. store=`{self.url}`", hint="try again")

    def read(self, key: str, *, durable: bool = False) -> Stored | None:  # noqa: ARG002  what can be seen is committed
        check_key(key)
        return self._look("read a record", lambda connection: self._found(connection, key))

    def replace(self, key: str, data: bytes, version: str) -> str | None:
        check_key(key)
        check_data(data)
        fresh = secrets.token_hex(16)
        values = {"key_": key, "old": version, "data": bytes(data), "version": fresh}
        tries = itertools.count(1)

        def update(connection: Connection) -> str | None:
            again = next(tries) > 1
            if _count(connection, self._records.replace(), values) == 1:
                return fresh
            if not again:
                return None
            found = self._found(connection, key)
            if found is not None and found.version == fresh:
                return fresh
            # Refused now; but an earlier try may have been applied, and then overwritten by somebody else.
            raise StoreUnavailableError(
                f"nobody can tell whether a record was replaced. store=`{self.url}`, key=`{key}`",
                hint="read it again",
                applied=None,
            )

        return self._look("replace a record", update, writes=True)

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        check_prefix(prefix)
        return self._walk(prefix, after)

    def delete(self, key: str) -> None:
        check_key(key)
        self._look("delete a record", lambda c: _count(c, self._records.delete(), {"key": key}), writes=True)

    def _walk(self, prefix: str, after: str) -> Iterator[str]:
        above = max(prefix, after)
        # "0" comes next after the "/" that a prefix ends with; no key has a "~".
        below = prefix[:-1] + "0" if prefix else "~"
        while page := self._page(above, below):
            yield from page
            above = page[-1]

    def _page(self, above: str, below: str) -> list_[str]:
        def select(connection: Connection) -> list_[str]:
            return [str(key) for key in connection.scalars(self._records.page(_PAGE), {"above": above, "below": below})]

        return self._look("list records", select) or []

    def _found(self, connection: Connection, key: str) -> Stored | None:
        row = connection.execute(self._records.read(), {"key": key}).one_or_none()
        if row is None:
            return None
        data, size, version = row
        if data is None:
            raise too_large(size, MAX_SIZE_BYTES, f"{self.url}#{key}")
        return Stored(bytes(data), version)

    def _look(self, doing: str, work: Callable[[Connection], Result | None], *, writes: bool = False) -> Result | None:
        """As `_do`; None where there is no table yet."""
        try:
            return self._do(doing, work, writes=writes)
        except _NoTableError:
            return None

    def _do(self, doing: str, work: Callable[[Connection], Result], *, writes: bool) -> Result:
        """
        Do *work* with a connection, and again while its outcome is unclear and there is time.

        Every statement may be sent twice: a version that nobody else can draw tells whose write it was.
        """
        give_up = self._clock.awake() + _PATIENCE_S
        unclear = False
        for pause in itertools.chain(_PAUSES_S, itertools.repeat(_PAUSES_S[-1])):
            sent = False
            try:
                # What a driver says of files that its options name.
                with told(self.url, doing), self._engine().connect() as connection:
                    sent = True
                    return work(connection)
            except AbsentError as exc:
                raise _NoTableError from exc
            except SQLAlchemyError as exc:
                if isinstance(exc, DBAPIError) and lacks_table(exc):
                    raise _NoTableError from exc
                # A connection may have been closed long ago, by a server that was restarted or a pooler that was weary
                # of it. That shows only in use, and then nobody knows how far the request came.
                lost = sent and isinstance(exc, DBAPIError) and exc.connection_invalidated
                unclear = unclear or (lost and writes)
                if not (lost or unclear) or self._clock.awake() >= give_up:
                    raise sql_error(exc, self.url, doing, applied=None if unclear else False) from exc
            self._clock.sleep(pause)
        raise AssertionError("unreachable")

    def _engine(self) -> Engine:
        if self._pid != os.getpid():
            # A connection that a fork has copied would be written to by two processes. Not closed: it is the parent's.
            self._pool.dispose(close=False)
            self._pid = os.getpid()
        return self._pool

    def _make(self) -> None:
        if self._file is not None:
            # By us, so that only its owner may read it. Never opened where it exists: to close any descriptor of a
            # database drops this process's locks on it. Source: SQLite, "How To Corrupt An SQLite Database File".
            with told(str(self._file), "make a database"), suppress(FileExistsError):
                os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC, 0o600))
        self._do("make a table of records", self._records.make, writes=False)


class _NoTableError(Exception):
    """The store is empty: nobody has made its table, or its file."""


def _count(connection: Connection, statement: Executable, values: dict[str, Any]) -> int:
    """How many rows *statement* wrote."""
    return connection.execute(statement, values, execution_options={"preserve_rowcount": True}).rowcount


def _close(engine: Engine, pid: int) -> None:
    if os.getpid() == pid:
        engine.dispose()


# Inside the class, `list` is the method.
list_ = list
