"""The two tables of files: entries, one tree for each scope, and blobs, which all scopes share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from sqlalchemy import (
    CHAR,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    LargeBinary,
    MetaData,
    String,
    Table,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect, Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateTable

from tenure.sql._errors import ScopeLostError
from tenure.sql._pin import check_name
from tenure.sql._tree import LONGEST_PATH, Entry, Tree

# The database's clock in whole seconds: no two writers need agree on the time.
_NOW = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS BIGINT)",
    "sqlite": "CAST(strftime('%s', 'now') AS INTEGER)",
    "mysql": "UNIX_TIMESTAMP()",
    "mariadb": "UNIX_TIMESTAMP()",
}
# "files" in ASCII; see the store's table.
_MAKING = 0x66696C6573
# What the fence allows.
_LONGEST_SCOPE = 200


class FileTables:
    """The tables *entries* and *blobs* in the words of *dialect*."""

    def __init__(self, entries: str, blobs: str, dialect: Dialect) -> None:
        check_name(entries, "entries")
        check_name(blobs, "blobs")
        self._is_postgresql = dialect.name == "postgresql"
        self._now: ColumnElement[int] = literal_column(_NOW[dialect.name])
        metadata = MetaData()
        self._entries = Table(
            entries.rpartition(".")[2],
            metadata,
            Column("scope", _bytewise(_LONGEST_SCOPE), primary_key=True),
            Column("path", _bytewise(LONGEST_PATH), primary_key=True),
            Column("digest", CHAR(64)),
            Column("size", BigInteger, nullable=False),
            schema=entries.rpartition(".")[0] or None,
        )
        self._blobs = Table(
            blobs.rpartition(".")[2],
            metadata,
            Column("digest", CHAR(64), primary_key=True),
            # MySQL would give it 64 KiB.
            Column("data", LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"), nullable=False),
            Column("touched", BigInteger, nullable=False),
            schema=blobs.rpartition(".")[0] or None,
        )

    def make(self, engine: Engine) -> None:
        """Make the tables that are missing, whoever else does."""
        with engine.begin() as connection:
            if self._is_postgresql:
                connection.execute(select(func.pg_advisory_xact_lock(_MAKING)))
            for table in (self._blobs, self._entries):
                connection.execute(CreateTable(table, if_not_exists=True))

    def load(self, connection: Connection, scope: str) -> Tree:
        """The tree of *scope*."""
        columns = self._entries.c
        rows = connection.execute(select(columns.path, columns.digest, columns.size).where(columns.scope == scope))
        return {str(path): Entry(digest, size) for path, digest, size in rows}

    def data(self, connection: Connection, digest: str) -> bytes | None:
        """The content that *digest* names; None if it was collected."""
        row = connection.execute(select(self._blobs.c.data).where(self._blobs.c.digest == digest)).first()
        return None if row is None else bytes(row[0])

    def put(self, engine: Engine, data: bytes) -> Entry:
        """
        Keep *data*, in a transaction of its own.

        In that of the change, the row of a content that many write, such as the empty one, would be locked for as long as
        that lasts, and scopes that have nothing to do with each other would wait. What is never referred to is collected.
        """
        entry = Entry(hashlib.sha256(data).hexdigest(), len(data))
        with engine.begin() as connection:
            if self._touch(connection, [entry.digest]) == 1:
                return entry
        row = {"digest": entry.digest, "data": data, "touched": self._now}
        try:
            with engine.begin() as connection:
                connection.execute(insert(self._blobs).values(row))
        except IntegrityError:
            # Somebody else has kept the same just now.
            pass
        return entry

    def change(self, connection: Connection, scope: str, before: Tree, after: Tree) -> None:
        """
        Make *after* of *before*, which the fence has shown to be what is there.

        The content is touched again first: a collector that came in between has either deleted it, and then this fails,
        or finds it young when it looks at the row that we have locked.
        """
        made = {path: entry for path, entry in after.items() if before.get(path) != entry}
        gone = [path for path in before if path not in after or path in made]
        # In order, so that two who need the same contents never wait for each other.
        digests = sorted({entry.digest for entry in made.values() if entry.digest is not None})
        if sum(self._touch(connection, [digest]) for digest in digests) != len(digests):
            raise ScopeLostError(
                f"content was collected before it was referred to. scope=`{scope}`",
                hint="nothing was applied; load again and try again, and collect with a longer grace",
                scope=scope,
            )
        mine = (self._entries.c.scope == scope, self._entries.c.path == bindparam("gone"))
        for path in gone:
            if connection.execute(delete(self._entries).where(*mine), {"gone": path}).rowcount != 1:
                raise ScopeLostError(
                    f"somebody changes files without the fence. scope=`{scope}`, path=`{path}`", scope=scope
                )
        if made:
            rows = [{"scope": scope, "path": path, **entry._asdict()} for path, entry in made.items()]
            connection.execute(insert(self._entries), rows)

    def clear(self, connection: Connection, scope: str) -> None:
        """Remove the whole tree of *scope*."""
        connection.execute(delete(self._entries).where(self._entries.c.scope == scope))

    def collect(self, engine: Engine, grace: float) -> int:
        """Delete contents that no tree refers to, and that nobody has touched for *grace* seconds; how many."""
        referred = exists().where(self._entries.c.digest == self._blobs.c.digest)
        orphans = delete(self._blobs).where(self._blobs.c.touched < self._now - round(grace), ~referred)
        with engine.begin() as connection:
            return connection.execute(orphans).rowcount

    def _touch(self, connection: Connection, digests: Iterable[str | None]) -> int:
        touch = update(self._blobs).where(self._blobs.c.digest.in_(list(digests))).values(touched=self._now)
        return connection.execute(touch).rowcount


def _bytewise(length: int) -> String:
    # MySQL's own collations take "A" for "a", and would make two files one.
    plain = String(length)
    return plain.with_variant(mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
