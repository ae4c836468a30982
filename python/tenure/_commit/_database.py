"""
A small SQLite file in which what was written is still there after a power cut.

Rollback journal and not WAL: one file to look at, to copy and to keep, and no shared memory, which network file systems
lack. The journal is truncated and not deleted, and SQLite syncs it then, so that a commit cannot be rolled back by a
journal that comes back. Source: sqlite.org, "PRAGMA synchronous", and pager_end_transaction in pager.c.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn

from tenure._store._failures import odd_file, told
from tenure.errors import RecordError, RecordTooNewError, StoreError, StoreUnavailableError

# "TNUR", in the file's header: whoever finds the file, `file` and ourselves included, can tell whose it is.
APPLICATION_ID = 0x544E5552
# How long to wait for another process that writes. Transactions here are short; one that lasts longer is stopped.
BUSY_TIMEOUT_S = 5.0

# Rows in memory at a time, while many are read through.
_BATCH = 256

Row = tuple[Any, ...]
Parameters = Sequence[Any]


class Database:
    """
    One file, one connection, shared by the threads of one process; each call or transaction runs alone.

    Args:
        path: the file; made, with mode 0600, if it is not there. Its directory must be.
        schema: statements that make a new database and bring an older one up to *version*, so each with IF NOT EXISTS.
        version: what `user_version` says then, 1 or higher. Raised without any other change where an older tenure must
            not write what a newer one could not read: it then says "upgrade".

    Raises:
        RecordTooNewError: a newer tenure wrote it.
        RecordError: it is damaged, or no database of ours; it is kept as it is.
        StoreUnavailableError: another process writes in it, or the disk is full.
        StoreError: it cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str], *, schema: str, version: int) -> None:
        self.path = os.path.abspath(path)  # noqa: PTH100  `resolve` follows links
        self._pid = os.getpid()
        self._lock = threading.RLock()
        # Of nested transactions. All of it is one: what fails inside is not committed by whoever carries on outside.
        self._depth = 0
        self._spoilt = False
        self._connection: sqlite3.Connection | None = self._open()
        _opened.add(self)
        try:
            self._prepare(schema, version)
        except BaseException:
            self.close()
            raise

    def execute(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Run one statement, and give all its rows."""
        with self._connected() as connection:
            return connection.execute(sql, parameters).fetchall()

    def change(self, sql: str, parameters: Parameters = ()) -> int:
        """Run one INSERT, UPDATE or DELETE, and say how many rows it changed."""
        with self._connected() as connection:
            return connection.execute(sql, parameters).rowcount

    def executemany(self, sql: str, rows: Iterable[Parameters]) -> int:
        """Run one INSERT, UPDATE or DELETE for each of *rows*, all or none, and say how many rows it changed."""
        with self.transaction(), self._connected() as connection:
            return connection.executemany(sql, rows).rowcount

    def iterate(self, sql: str, parameters: Parameters = ()) -> Iterator[Row]:
        """
        Run one SELECT, and give its rows one by one, in memory that does not grow.

        Until the last one is taken, or the iterator closed, no other process can commit: for reading through, not for
        working on each.
        """
        with self._connected() as connection:
            cursor = connection.execute(sql, parameters)
        try:
            while True:
                # Locked for each batch: another thread may take the next one.
                with self._connected():
                    rows = cursor.fetchmany(_BATCH)
                if not rows:
                    return
                yield from rows
        finally:
            if self._pid == os.getpid():
                with self._lock:
                    cursor.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """
        All that is done inside is done together, and durable after the block; or, when it raises, not at all.

        One inside another joins it. An error of the commit itself has `applied` None: whether it took place shows only
        when somebody reads.
        """
        with self._lock:
            self._depth += 1
            try:
                if self._depth == 1:
                    self._spoilt = False
                    with self._translated():
                        # Not deferred: one that reads first and writes later can be refused half-way.
                        self._live().execute("BEGIN IMMEDIATE")
                yield
            except BaseException:
                self._spoilt = True
                raise
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._end()

    def close(self) -> None:
        """Close it. A second close does nothing, nor does one in a forked child."""
        if self._pid != os.getpid():
            return
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> sqlite3.Connection:
        with told(self.path, "open the database"):
            self._make()
        with self._translated(), _opening:
            return sqlite3.connect(
                self.path,
                timeout=BUSY_TIMEOUT_S,
                # Transactions begin and end where we say so, not where the module guesses.
                isolation_level=None,
                # Every use is under our lock.
                check_same_thread=False,
            )

    def _make(self) -> None:
        """Make the file where it is missing: SQLite would follow a link, and let everybody read."""
        # Alone: POSIX drops all locks of a process on a file when it closes any descriptor of it, also those of a
        # connection that another thread opens meanwhile. Source: sqlite.org, "How To Corrupt", 2.2.
        with _opening:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            try:
                os.close(os.open(self.path, flags, 0o600))
            except FileExistsError:
                mode = os.lstat(self.path).st_mode
                if not stat.S_ISREG(mode):
                    raise odd_file(mode, self.path) from None

    def _prepare(self, schema: str, version: int) -> None:
        # An index or a default in a file that a stranger wrote runs nothing of ours.
        self.execute("PRAGMA trusted_schema = OFF")
        # macOS syncs to the disk, and not only to its cache, when told so. Source: fsync(2) there, F_FULLFSYNC.
        self.execute("PRAGMA fullfsync = ON")
        self.execute("PRAGMA synchronous = FULL")
        found = self._version()
        if found == version:
            self._journal()
            return
        if found > version:
            raise RecordTooNewError(
                f"a newer tenure wrote this database. path=`{self.path}`, schema=`{found}`, understood=`{version}`",
                hint="upgrade tenure on this machine",
                key=self.path,
                reason=f"schema {found}",
                schema=found,
                understood=version,
            )
        self._journal()
        with self.transaction():
            # Another process may have made it meanwhile.
            if self._version() < version:
                for statement in filter(None, map(str.strip, schema.split(";"))):
                    self.execute(statement)
                self.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self.execute(f"PRAGMA user_version = {version}")

    def _journal(self) -> None:
        ((mode,),) = self.execute("PRAGMA journal_mode = TRUNCATE")
        if mode != "truncate":
            self._not_ours(f"its journal mode is {mode}, and cannot be changed")

    def _version(self) -> int:
        """What `user_version` says; 0 for a file with nothing in it yet."""
        ((owner,),) = self.execute("PRAGMA application_id")
        ((version,),) = self.execute("PRAGMA user_version")
        ((tables,),) = self.execute("SELECT count(*) FROM sqlite_master")
        if owner == APPLICATION_ID and version >= 1:
            return int(version)
        if owner or version or tables:
            self._not_ours("another program made it, as its application_id or its tables say")
        return 0

    def _not_ours(self, reason: str, cause: BaseException | None = None) -> NoReturn:
        raise RecordError(
            f"this is no database that can be used. path=`{self.path}`, reason=`{reason}`",
            hint="it is kept as it is; move it away, or restore it from a backup",
            key=self.path,
            reason=reason,
        ) from cause

    def _end(self) -> None:
        if self._pid != os.getpid():
            # Forked inside the block, by its own thread: it is the parent's to end.
            return
        connection = self._live()
        try:
            if not self._spoilt:
                with self._translated(applied=None):
                    connection.execute("COMMIT")
        except StoreError as error:
            # Refused, and open still: what is rolled back below was not applied.
            error.applied = False if connection.in_transaction else None
            raise
        finally:
            if connection.in_transaction:
                with self._translated():
                    connection.execute("ROLLBACK")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one use by this thread alone."""
        with self._lock:
            connection = self._live()
            # After some errors, a full disk among them, SQLite has rolled back by itself: what follows would stand alone.
            if self._depth and (self._spoilt or not connection.in_transaction):
                self._spoilt = True
                raise StoreError(
                    f"this transaction has failed, and nothing more can be done in it. path=`{self.path}`",
                    hint="let the first error end the outermost block",
                )
            with self._translated():
                yield connection

    def _live(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            raise StoreError(
                f"this database was opened by the process that forked this one. path=`{self.path}`",
                hint="open it anew in the child",
            )
        if self._connection is None:
            raise StoreError(f"this database is closed. path=`{self.path}`", hint="open it anew")
        return self._connection

    @contextmanager
    def _translated(self, *, applied: bool | None = False) -> Iterator[None]:
        """Turn SQLite's errors into ours; those that say that a caller is wrong stay as they are."""
        try:
            yield
        except (sqlite3.ProgrammingError, sqlite3.IntegrityError):
            raise
        except sqlite3.DatabaseError as exc:
            said = str(exc)
            error, hint = next((row[1:] for row in _MEANINGS if row[0] in said), (StoreError, "see the cause"))
            if error is RecordError:
                self._not_ours(said, exc)
            raise error(
                f"the database failed: {said}. path=`{self.path}`", hint=hint, applied=applied, filename=self.path
            ) from exc

    def _disown(self) -> None:
        """
        Give up the connection for ever, in a forked child: to close it could roll back what the parent is writing.

        Source: sqlite.org, "How To Corrupt", 2.6, on connections carried across a fork.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            import ctypes  # noqa: PLC0415  only here

            # One reference that nobody gives back, since the interpreter closes at its end all that it can reach.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


# By SQLite's own words (sqlite3_errstr): Python 3.10 does not tell its codes.
_MEANINGS: tuple[tuple[str, type[StoreError | RecordError], str], ...] = (
    ("is locked", StoreUnavailableError, f"another process has been writing for {BUSY_TIMEOUT_S:.0f} s; try again"),
    ("is full", StoreUnavailableError, "free some space and try again"),
    ("readonly", StoreError, "check owner and mode of the file and its directory, and how it is mounted"),
    ("unable to open", StoreError, "check owner and mode of the file and its directory"),
    ("disk I/O error", StoreError, "the disk or the file server reports damage; see the kernel log"),
    ("malformed", RecordError, ""),
    ("not a database", RecordError, ""),
    ("unsupported file format", RecordError, ""),
    ("Could not decode", RecordError, ""),
    # Our statements are fixed, so it is the file that lacks something.
    ("no such", RecordError, ""),
    ("has no column", RecordError, ""),
)

_opened: weakref.WeakSet[Database] = weakref.WeakSet()
_opening = threading.Lock()


def _after_fork_in_child() -> None:
    global _opening
    # Made anew: it may have been taken by a thread that is not here.
    _opening = threading.Lock()
    for database in list(_opened):
        database._disown()  # noqa: SLF001  of this module
    _opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
