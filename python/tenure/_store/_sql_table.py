"""The table that a SQL store is, the statements it is asked by, and how it comes to be when many ask at once."""

from __future__ import annotations

import re

from sqlalchemy import (
    Column,
    Executable,
    LargeBinary,
    MetaData,
    String,
    Table,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.schema import CreateTable

from tenure._store._records import MAX_SIZE_BYTES

DEFAULT_TABLE = "tenure_records"
# What every database takes for a name without quotes; 63 bytes are PostgreSQL's limit.
_TABLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
# "tenure" in ASCII: of the numbers that PostgreSQL gives to whoever asks, one that nobody else comes upon.
_MAKING = 0x74656E757265
# Eight segments of a hundred characters, and what joins them.
_LONGEST_KEY = 807


class Records:
    """
    The table *name* in the words of *dialect*.

    Three columns: the key, the bytes, and a version that is random and new at each write. By it a writer knows its own
    write again, also from one that left the same bytes.
    """

    def __init__(self, name: object, dialect: Dialect) -> None:
        if not isinstance(name, str) or not _TABLE_NAME.fullmatch(name):
            raise ValueError(
                f"not a name for a table of records: {name!r}. It has up to 63 lower-case letters, digits and '_'"
            )
        self.name = name
        self._dialect = dialect
        # Bytewise in every database, so that what one page of a list ends with is where the next one starts.
        bytewise = String(_LONGEST_KEY, collation="C" if dialect.name == "postgresql" else None)
        ascii_key = mysql.VARCHAR(_LONGEST_KEY, charset="ascii", collation="ascii_bin")
        self._table = Table(
            name,
            MetaData(),
            Column("key", bytewise.with_variant(ascii_key, "mysql", "mariadb"), primary_key=True),
            Column("data", LargeBinary(MAX_SIZE_BYTES), nullable=False),
            Column("version", String(32), nullable=False),
        )
        self._key, self._data, self._version = self._table.c.key, self._table.c.data, self._table.c.version

    def insert(self) -> Executable:
        """One record, durable once it is answered. Wants key, data, version."""
        if self._dialect.name != "postgresql":
            return insert(self._table)
        # Some run PostgreSQL so that a commit is answered before it is durable. Said in the statement itself, it holds for
        # this commit alone, costs no request of its own, and reaches the same server that the record goes to.
        # Source: PostgreSQL manual, "synchronous_commit" and set_config().
        durably = func.set_config("synchronous_commit", "on", True) == "on"
        row = select(
            bindparam("key", type_=self._key.type),
            bindparam("data", type_=self._data.type),
            bindparam("version", type_=self._version.type),
        ).where(durably)
        return insert(self._table).from_select(["key", "data", "version"], row)

    def read(self) -> Executable:
        """Bytes, size, version of a key; no bytes where there are too many. Wants key."""
        # Cast, because SQLite keeps whatever an operator has put there, and a text has no size in bytes.
        data = cast(self._data, LargeBinary)
        size = func.length(data)
        return select(case((size <= MAX_SIZE_BYTES, data)), size, self._version).where(self._key == bindparam("key"))

    def replace(self) -> Executable:
        """Wants key_, old, and data, version to set."""
        return update(self._table).where(self._key == bindparam("key_"), self._version == bindparam("old"))

    def page(self, size: int) -> Executable:
        """The first *size* keys strictly between two. Wants above, below."""
        between = (self._key > bindparam("above"), self._key < bindparam("below"))
        return select(self._key).where(*between).order_by(self._key).limit(literal(size))

    def delete(self) -> Executable:
        """Wants key."""
        return delete(self._table).where(self._key == bindparam("key"))

    def make(self, connection: Connection) -> None:
        """Make the table if it is not there, whoever else does at the same moment."""
        creation = CreateTable(self._table, if_not_exists=True)
        if self._dialect.name != "postgresql":
            connection.execute(creation)
            return
        # "If not exists" alone fails there when two ask at once. For the transaction, not the session: behind a pooler
        # the next statement of a session may reach another server process.
        connection.execution_options(isolation_level="READ COMMITTED")
        with connection.begin():
            connection.execute(select(func.pg_advisory_xact_lock(_MAKING)))
            connection.execute(creation)
