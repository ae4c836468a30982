"""From a URL to a database: which driver, how it waits, and what may be shown of it."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from tenure._store._sql_table import DEFAULT_TABLE, Records
from tenure.errors import StoreCannotLockError

REQUEST_S = 5.0
"""How long one request may take: a server that keeps silent for longer is cut off, and the store decides what that means."""

# The dialect and driver of each scheme, and the extra that brings it.
_DRIVERS = {
    "postgresql": ("postgresql+psycopg", "postgresql"),
    "postgresql+psycopg": ("postgresql+psycopg", "postgresql"),
    "mysql": ("mysql+pymysql", "mysql"),
    "mysql+pymysql": ("mysql+pymysql", "mysql"),
    "mariadb": ("mariadb+pymysql", "mysql"),
    "mariadb+pymysql": ("mariadb+pymysql", "mysql"),
}

# Records may be secret, and do not belong into messages.
_EVERY_ENGINE: dict[str, Any] = {"isolation_level": "AUTOCOMMIT", "hide_parameters": True}


class AbsentError(Exception):
    """There is no database yet."""


@dataclass(frozen=True, slots=True)
class Address:
    """
    Where a SQL store is.

    Attributes:
        engine: gives connections on which each statement is a transaction of its own.
        records: the table.
        shown: the URL without any password.
        file: the database file, for SQLite.
    """

    engine: Engine
    records: Records
    shown: str
    file: Path | None = None


def find(url: str) -> Address:
    """
    The database at *url*. Connects to nothing.

    Raises:
        ValueError: no such URL.
        StoreCannotLockError: its driver is not installed.
    """
    scheme, _, rest = url.partition(":")
    return _sqlite(url, rest) if scheme.lower() == "sqlite" else _server(scheme.lower(), rest)


def _sqlite(url: str, rest: str) -> Address:
    path, _, query = rest.partition("?")
    if "#" in rest:
        raise ValueError(f"a SQLite URL has no fragment: {url!r}. Write %23 for '#' in a path")
    name, _, table = query.partition("=")
    if query and (name != "table" or not table):
        raise ValueError(f"a SQLite URL takes no option but `?table=`: {url!r}. Write %3F for '?' in a path")
    if path.startswith("///") and not path.startswith("////"):
        # Three slashes are a relative path to SQLAlchemy and an absolute one to everybody else. Two writers who read it
        # in two ways would never meet.
        raise ValueError(
            f"three slashes mean two things: {url!r}. Write sqlite:{path[3:]} for a relative path, sqlite:{path[2:]} "
            "for an absolute one"
        )
    name = os.fsdecode(unquote_to_bytes(path))
    if not name or "\0" in name or name.startswith(":memory:"):
        raise ValueError(f"a SQLite store needs a file: {url!r}. For this process's memory write memory:NAME")
    if name.startswith("//") and not name.startswith("///"):
        raise ValueError(f"a SQLite URL names no host: {url!r}. Write sqlite:{path[1:]}")
    file = Path("/" + name.lstrip("/") if name.startswith("/") else name).absolute()
    engine = create_engine("sqlite://", creator=lambda: _open(file), poolclass=QueuePool, **_EVERY_ENGINE)
    records = Records(table or DEFAULT_TABLE, engine.dialect)
    shown = "sqlite:" + quote_from_bytes(os.fsencode(file.as_posix()), safe="/:")
    return Address(engine, records, _with_table(shown, records), file)


def _open(file: Path) -> sqlite3.Connection:
    # Looked for here and opened as "rw", so that looking for a store makes no file. SQLite falls back to reading where
    # that is all it may.
    if not file.exists():
        raise AbsentError
    connection = sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=REQUEST_S, check_same_thread=False)
    # FULL leaves out the directory in which the journal was: after a power cut the journal can be back, and would undo a
    # commit that was answered. Source: SQLite, "PRAGMA synchronous".
    connection.execute("PRAGMA synchronous=EXTRA")
    return connection


def _server(scheme: str, rest: str) -> Address:
    driver, extra = _DRIVERS[scheme]
    try:
        asked = make_url(f"{driver}:{rest}")
    except (ArgumentError, ValueError):
        # Without the URL, and without the cause: both may quote a password.
        raise ValueError(f"not a database URL. Write {scheme}://user@host:port/database") from None
    if not asked.database:
        raise ValueError(f"the URL names no database. Write {scheme}://user@host:port/database")
    table = asked.query.get("table", DEFAULT_TABLE)
    asked = asked.difference_update_query(["table"])
    if is_postgresql := asked.get_backend_name() == "postgresql":
        # A statement that was prepared on one server process is unknown to the next one behind a pooler; and no record
        # has the type that would be looked up at each first connection.
        arguments: dict[str, Any] = {"connect_timeout": round(REQUEST_S), "prepare_threshold": None}
        options = {"use_native_hstore": False}
    else:
        arguments = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), REQUEST_S)
        options = {}
    given = {name: value for name, value in arguments.items() if name not in asked.query}
    try:
        engine = create_engine(asked, connect_args=given, pool_timeout=REQUEST_S, **_EVERY_ENGINE, **options)
    except ModuleNotFoundError as exc:
        raise StoreCannotLockError(
            f"a store in such a database needs {exc.name}, which is not installed. scheme=`{scheme}`",
            hint=f"pip install 'tenure[{extra}]'",
        ) from exc
    if is_postgresql:
        event.listen(engine, "do_connect", _connect_impatiently)
    records = Records(table, engine.dialect)
    return Address(engine, records, _with_table(_without_secrets(asked), records))


def _connect_impatiently(_dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
    from tenure._store._sql_psycopg import ImpatientConnection  # noqa: PLC0415  its driver is one of several

    return ImpatientConnection.connect(*arguments, **options)


def _without_secrets(url: URL) -> str:
    secrets = [name for name in url.query if "pass" in name.lower()]
    return url.set(password=None).difference_update_query(secrets).render_as_string()


def _with_table(url: str, records: Records) -> str:
    if records.name == DEFAULT_TABLE:
        return url
    return f"{url}{'&' if '?' in url else '?'}table={records.name}"
