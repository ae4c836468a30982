"""What a driver's error means at the fence. One table per family; codes and never messages, where there are codes."""

from __future__ import annotations

import re
import sqlite3
from typing import Literal

Failure = Literal[
    "conflict", "locked", "deadlock", "cancelled", "aborted", "lost", "unmigrated", "hidden", "replica", "other"
]
"""
- `conflict`: the row has changed since this transaction's snapshot
- `locked`, `deadlock`, `cancelled`: the database gave up waiting or was told to; the transaction is no good any more
- `aborted`: the echo of an earlier failure in the same transaction
- `lost`: no answer, or the connection is no longer what it was
- `unmigrated`: a table or column of ours is not there
- `hidden`: not allowed, or row-level security refuses
- `replica`: this database takes no writes
"""

# Source: PostgreSQL's manual, appendix A.
_POSTGRESQL: dict[str, Failure] = {
    "40001": "conflict",
    "40P01": "deadlock",
    "55P03": "locked",
    "57014": "cancelled",
    "25P02": "aborted",
    "42P01": "unmigrated",
    "42703": "unmigrated",
    "3F000": "unmigrated",
    "42501": "hidden",
    "42704": "hidden",  # the setting that a policy asks for was never set
    "25006": "replica",
    # Whoever was too long idle, or in a transaction, finds the connection ended.
    "25P03": "lost",
    "25P04": "lost",
    "57P01": "lost",
    "57P02": "lost",
    "57P03": "lost",
    "57P05": "lost",
}
# Source: MariaDB's and MySQL's manuals, "Error Codes"; from 2000 on they are the client's own.
_MYSQL: dict[int, Failure] = {
    1020: "conflict",
    1205: "locked",
    1213: "deadlock",
    1317: "cancelled",
    1969: "cancelled",
    3024: "cancelled",
    1146: "unmigrated",
    1054: "unmigrated",
    1142: "hidden",
    1143: "hidden",
    1044: "hidden",
    1290: "replica",
    1792: "replica",
    1836: "replica",
    1053: "lost",
    1927: "lost",
}
# Source: sqlite.org/rescode.html; the low byte is the primary code.
_SQLITE_BUSY, _SQLITE_READONLY, _SQLITE_BUSY_SNAPSHOT = 5, 8, 517


def driver_error(error: BaseException) -> BaseException:
    """The driver's own error: SQLAlchemy keeps it in `orig`, its wrappers for asyncio in `__cause__`."""
    return getattr(error, "orig", None) or error


def classify(error: BaseException) -> Failure:
    """What *error* means, whichever driver and whichever layer it came through."""
    if getattr(error, "connection_invalidated", False):
        return "lost"
    if type(error).__name__ == "PendingRollbackError":
        return "aborted"
    own = driver_error(error)
    if isinstance(own, sqlite3.Error):
        return _sqlite(own)
    number = own.args[0] if own.args else None
    # First, since MySQL's errors have a state too, and a coarse one.
    if isinstance(number, int):
        return _MYSQL.get(number, "lost" if 2000 <= number < 3000 or number == 0 else "other")
    state = sqlstate(own)
    if state is not None:
        return _POSTGRESQL.get(state, "lost" if state.startswith("08") else "other")
    # An answer of PostgreSQL has a state. What has none the client made up itself, and an OperationalError of its own
    # is about the connection.
    return "lost" if type(own).__name__ in ("OperationalError", "InterfaceError") else "other"


def answers_commit(error: BaseException) -> bool:
    """Whether *error*, raised by COMMIT, is the database's word that it did not commit. All else is no answer."""
    own = driver_error(error)
    number = own.args[0] if own.args else None
    if isinstance(number, int):
        return number in _REFUSALS_OF_COMMIT
    state = None if isinstance(own, sqlite3.Error) else sqlstate(own)
    # 57P01 comes also when a wait for a replica is cut short, after the commit; 58 and XX are about a server in need.
    return (
        state is not None
        and state != "40003"
        and state[:2] not in ("08", "58", "XX", "F0")
        and not state.startswith("57P")
    )


# Constraint, conflict, deadlock, time-out. Not 1180, "error during COMMIT", which leaves everything open.
_REFUSALS_OF_COMMIT = {1020, 1048, 1062, 1205, 1213, 1451, 1452, 4025}


def sqlstate(error: BaseException) -> str | None:
    """PostgreSQL's five characters, whatever the driver calls them."""
    for name in ("sqlstate", "pgcode"):
        state = getattr(error, name, None)
        if isinstance(state, str) and len(state) == 5:
            return state
    return None


def _sqlite(error: sqlite3.Error) -> Failure:
    code = getattr(error, "sqlite_errorcode", None)
    words = str(error)
    if code is None:
        # Before Python 3.11 the sentence is all there is, and it does not tell the two kinds of busy apart.
        if "locked" in words:
            return "conflict"
        code = _SQLITE_READONLY if "readonly" in words else 0
    if code == _SQLITE_BUSY_SNAPSHOT:
        return "conflict"
    if code & 0xFF == _SQLITE_BUSY:
        return "locked"
    if code & 0xFF == _SQLITE_READONLY:
        return "replica"
    if re.search(r"no such (table|column)|has no column", words):
        return "unmigrated"
    return "other"
