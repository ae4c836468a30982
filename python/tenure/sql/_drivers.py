"""
What a connection knows about itself without asking the server: in a transaction, and in whose.

It is looked at before every statement of a fenced transaction and before COMMIT, so it must cost no round trip. A driver
that cannot say it is refused: with it, a connection that has quietly reconnected would commit the second half of a
transaction without the fence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from tenure.errors import StoreCannotLockError
from tenure.sql._statements import Family, Style

Standing = Literal["none", "open", "failed"]
"""No transaction, one that can commit, or one that can only roll back."""


class Driver(NamedTuple):
    """The questions, for one driver's connection."""

    family: Family
    style: Style
    standing: Callable[[Any], Standing]
    backend: Callable[[Any], object]
    autocommit: Callable[[Any], bool]


def _psycopg_standing(raw: Any) -> Standing:
    # Source: libpq's PQtransactionStatus: idle, active, in a transaction, in a failed one, unknown.
    # From libpq itself: `info` is made anew each time, and this is asked before every statement.
    status = raw.pgconn.transaction_status
    return "open" if status == 2 else "failed" if status == 3 else "none"


def _asyncpg_standing(raw: Any) -> Standing:
    # asyncpg counts a failed transaction as one; the verdict on the failed statement is kept beside it.
    return "open" if raw.is_in_transaction() else "none"


def _mysql_standing(raw: Any) -> Standing:
    # Source: MySQL's protocol, SERVER_STATUS_IN_TRANS; it comes with every answer but errors.
    return "open" if raw.server_status & 1 else "none"


def _mysql_autocommit(raw: Any) -> bool:
    return bool(raw.server_status & 2)


def _mysql_backend(raw: Any) -> object:
    return raw.thread_id()


def _sqlite_standing(raw: Any) -> Standing:
    return "open" if raw.in_transaction else "none"


def _same(raw: Any) -> object:
    return id(raw)


def _never(_: Any) -> bool:
    return False


_PSYCOPG = Driver(
    "postgresql", "pyformat", _psycopg_standing, lambda raw: raw.pgconn.backend_pid, lambda raw: bool(raw.autocommit)
)
# On SQLite BEGIN and COMMIT are ours, whatever the driver thinks of autocommit.
_SQLITE = Driver("sqlite", "named", _sqlite_standing, _same, _never)

DRIVERS: dict[tuple[str, str], Driver] = {
    ("postgresql", "psycopg"): _PSYCOPG,
    ("postgresql", "psycopg_async"): _PSYCOPG,
    ("postgresql", "asyncpg"): Driver("postgresql", "numeric_dollar", _asyncpg_standing, _same, _never),
    ("mysql", "pymysql"): Driver("mysql", "pyformat", _mysql_standing, _mysql_backend, _mysql_autocommit),
    ("mysql", "asyncmy"): Driver("mysql", "pyformat", _mysql_standing, _mysql_backend, _mysql_autocommit),
    ("sqlite", "pysqlite"): _SQLITE,
    ("sqlite", "aiosqlite"): _SQLITE,
}


def driver_of(dialect: str, driver: str) -> Driver:
    """
    The driver by the names that SQLAlchemy has for it.

    Raises:
        StoreCannotLockError: it cannot answer the questions.
    """
    # SQLAlchemy has two names for what is one database to the fence.
    found = DRIVERS.get(("mysql" if dialect == "mariadb" else dialect, driver))
    if found is None:
        known = ", ".join(sorted({f"{name}+{way}" for name, way in DRIVERS}))
        raise StoreCannotLockError(
            f"the fence cannot look into this driver's connections. driver=`{dialect}+{driver}`, known=`{known}`",
            hint="use one of those",
        )
    return found
