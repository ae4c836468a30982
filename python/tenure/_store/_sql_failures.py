"""What a database's error means for a caller: the class, and what to do about it. One table per database."""

from __future__ import annotations

import re
import sqlite3
from typing import NamedTuple

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tenure.errors import StoreError, StoreUnavailableError


class _Meaning(NamedTuple):
    error: type[StoreError]
    hint: str


_RETRY = _Meaning(StoreUnavailableError, "try again")
_DOWN = _Meaning(StoreUnavailableError, "see whether the database runs and can be reached from here, and try again")
_CROWDED = _Meaning(
    StoreUnavailableError, "the database takes no more connections for now; try again, or raise its limit"
)
_FULL = _Meaning(StoreUnavailableError, "the database has no space left; free some and try again")
_LOCKED = _Meaning(StoreUnavailableError, "somebody keeps a transaction open on these records; end it, and try again")
_READ_ONLY = _Meaning(
    StoreUnavailableError, "this is a replica, or was made read-only; name the server that takes writes"
)
_BUSY = _Meaning(StoreUnavailableError, "use fewer threads, or a store for each")
_LOGIN = _Meaning(
    StoreError, "check user and password, and whether the server lets that user into this database from this host"
)
_TLS = _Meaning(StoreError, "check what the URL asks of TLS, and the server's certificate")
_ABSENT = _Meaning(StoreError, "make the database first, or correct its name in the URL")
_RIGHTS = _Meaning(StoreError, "the user needs SELECT, INSERT, UPDATE and DELETE on the table, and to make it CREATE")
_OPTIONS = _Meaning(StoreError, "correct what the URL has after the `?`")
_DAMAGED = _Meaning(StoreError, "nothing was changed; see the database's own log")
_FOREIGN = _Meaning(StoreError, "the table is not one of ours; choose another one with `?table=NAME`")

# By SQLSTATE, the longest beginning that fits. Source: PostgreSQL manual, "PostgreSQL Error Codes".
_POSTGRESQL = {
    "08": _DOWN,
    "25006": _READ_ONLY,
    "28": _LOGIN,
    "3D": _ABSENT,
    "40": _RETRY,
    "42501": _RIGHTS,
    "42": _FOREIGN,
    "53100": _FULL,
    "53300": _CROWDED,
    "53": _RETRY,
    "55P03": _LOCKED,
    "57014": _LOCKED,
    "57P": _DOWN,
    "58": _DAMAGED,
    "XX": _DAMAGED,
}
# By number. Source: MariaDB manual, "MariaDB Error Codes"; the client's own begin at 2000.
_MYSQL = {
    0: _DOWN,
    1021: _FULL,
    1040: _CROWDED,
    1044: _LOGIN,
    1045: _LOGIN,
    1049: _ABSENT,
    1053: _DOWN,
    1054: _FOREIGN,
    1114: _FULL,
    1130: _LOGIN,
    1142: _RIGHTS,
    1143: _RIGHTS,
    1203: _CROWDED,
    1205: _LOCKED,
    1213: _RETRY,
    1226: _CROWDED,
    1290: _READ_ONLY,
    1698: _LOGIN,
    1792: _READ_ONLY,
    1820: _LOGIN,
    1836: _READ_ONLY,
    1862: _LOGIN,
    1927: _DOWN,
    2002: _DOWN,
    2003: _DOWN,
    2006: _DOWN,
    2013: _DOWN,
    2026: _TLS,
    3118: _LOGIN,
    4151: _LOGIN,
}
# By words, as Python gives no number before 3.11. Source: SQLite, main.c, sqlite3ErrStr().
_SQLITE = {
    "database is locked": _LOCKED,
    "database table is locked": _LOCKED,
    "database or disk is full": _FULL,
    "attempt to write a readonly database": _Meaning(
        StoreError, "check owner and mode of the file and of its directory, in which SQLite keeps a journal"
    ),
    "unable to open database file": _Meaning(
        StoreError, "the directory must exist, and both be ours to read and write"
    ),
    "disk I/O error": _Meaning(StoreError, "the disk or the file server reports damage; see the kernel log"),
    "file is not a database": _Meaning(StoreError, "another file stands at this path; it was left as it is"),
    "database disk image is malformed": _Meaning(StoreError, "the file is damaged; keep it, and restore a backup"),
    "no such column": _FOREIGN,
    "has no column": _FOREIGN,
}
# What PostgreSQL, or a pooler before it, says to whom it does not let in: libpq passes on the words and not the state. In
# another language they count as a server that is down, and are tried again. Source: PostgreSQL, auth.c, postinit.c,
# miscinit.c; libpq, fe-auth.c, fe-connect.c, fe-secure-openssl.c; PgBouncer, client.c.
_NOT_LET_IN = {
    re.compile(r"authentication failed|no password supplied|login failed|no such user"): _LOGIN,
    re.compile(r'role ".*" does not exist|not permitted to log in|permission denied for database'): _LOGIN,
    re.compile(r"pg_hba\.conf"): _LOGIN,
    re.compile(r'database ".*" does not exist|no such database'): _ABSENT,
    re.compile(r"SSL was required|certificate"): _TLS,
    re.compile(r"unrecognized configuration parameter|invalid value for parameter"): _OPTIONS,
}
_UNHEARD_OF = _Meaning(StoreError, "see `__cause__` for what the database said")


def sql_error(cause: SQLAlchemyError, where: str, doing: str, *, applied: bool | None) -> StoreError:
    """*cause*, while *doing* something in the store that is *where*, as the error that a caller can act on."""
    meaning, words = _meaning(cause)
    return meaning.error(f"cannot {doing}: {words}. store=`{where}`", hint=meaning.hint, applied=applied)


def lacks_table(cause: DBAPIError) -> bool:
    """Whether *cause* says that the table is not there."""
    return (
        getattr(cause.orig, "sqlstate", None) == "42P01"
        or _number(cause) == 1146
        or str(cause.orig).startswith("no such table")
    )


def _meaning(cause: SQLAlchemyError) -> tuple[_Meaning, str]:
    if isinstance(cause, PoolTimeoutError):
        return _BUSY, "all connections are in use"
    if not isinstance(cause, DBAPIError) or cause.orig is None:
        return _UNHEARD_OF, str(cause)
    number, state = _number(cause), getattr(cause.orig, "sqlstate", None)
    # In one line: drivers write several.
    words = " ".join(str(cause.orig if number is None else _arguments(cause)[1]).split())
    # First, since MySQL's errors have a state too, and a coarse one.
    if number is not None:
        return _MYSQL.get(number, _UNHEARD_OF), f"{words}, errno=`{number}`"
    if state:
        fits = max((start for start in _POSTGRESQL if state.startswith(start)), key=len, default="")
        return _POSTGRESQL.get(fits, _UNHEARD_OF), f"{words}, sqlstate=`{state}`"
    if isinstance(cause.orig, sqlite3.Error):
        return next((meaning for part, meaning in _SQLITE.items() if part in words), _UNHEARD_OF), words
    # What happens to PostgreSQL's connections has no state.
    if not isinstance(cause, OperationalError):
        return _UNHEARD_OF, words
    return next((meaning for pattern, meaning in _NOT_LET_IN.items() if pattern.search(words)), _DOWN), words


def _number(cause: DBAPIError) -> int | None:
    """The number that MySQL's driver puts first; None for another one."""
    first, words = _arguments(cause)
    return first if isinstance(first, int) and words is not None else None


def _arguments(cause: DBAPIError) -> tuple[object, object]:
    arguments = (*getattr(cause.orig, "args", ()), None, None)
    return arguments[0], arguments[1]
