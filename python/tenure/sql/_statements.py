# ruff: noqa: S608  table names are checked, and everything else is bound
"""
The statements of the fence, in the words of each database. The one place that knows them; every driver shares it.

The fence is one conditional UPDATE, and the test of the epoch stands *on the UPDATE*: under READ COMMITTED a statement
that had to wait re-checks only the row that it locks, so an epoch that a subquery has read may be one behind, and a
stale writer would pass.

This is the seam at which the tests break the fence on purpose: they replace a method of `Statements` by a half-right
one, and a scene must then lose a write and say so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tenure.sql._pin import MAX_EPOCH, CommitToken, Pin, check_name

Family = Literal["postgresql", "mysql", "sqlite"]
Move = Literal["commit", "destroy", "claim", "create"]
"""How a scope advances. Each takes one number of the counter; the first two need a pin that still fits."""

Style = Literal["named", "pyformat", "numeric_dollar"]


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with `:name` for its parameters, which are always bound."""

    sql: str
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a driver says of a statement. The row count is not to be trusted before the rows are fetched (SQLite)."""

    rows: Sequence[Sequence[object]] = ()
    rowcount: int = -1
    lastrowid: int | None = None


class Statements:
    """The statements for the tables *table* and *ledger* in one family of databases."""

    def __init__(self, family: Family, table: str, ledger: str) -> None:
        check_name(table, "table")
        check_name(ledger, "ledger")
        if table == ledger:
            raise ValueError(f"table and ledger must be two tables, not {table!r} twice")
        self.family = family
        self.table = table
        self._quote = "`" if family == "mysql" else '"'
        self._fence, self._ledger = self._quoted(table), self._quoted(ledger)

    def advance(self, move: Move, token: CommitToken, pin: Pin | None = None, holder: str | None = None) -> Statement:
        """Take the next number, if the scope is as *move* wants it; with the ledger's row where one statement can do both."""
        params: dict[str, object] = {"scope": token.scope}
        one_more = "epoch = LAST_INSERT_ID(epoch + 1)" if self.family == "mysql" else "epoch = epoch + 1"
        wanted, also = _WANTED[move], _ALSO[move]
        if pin is not None:
            params |= {"epoch": pin.epoch, "lineage": pin.lineage}
        if move == "claim":
            params["holder"] = holder
        # One below the end is the last that may advance: SQLite would go on in floating point.
        update = f"UPDATE {self._fence} SET {one_more}{also} WHERE scope = :scope AND {wanted} AND epoch < {MAX_EPOCH}"
        if self.family == "mysql":
            return Statement(update, params)
        if self.family == "sqlite":
            return Statement(f"{update} RETURNING epoch", params)
        params["nonce"] = token.nonce
        return Statement(
            f"WITH fence AS ({update} RETURNING scope, epoch), ledger AS (INSERT INTO {self._ledger} (scope, epoch, nonce) "
            "SELECT scope, epoch, :nonce FROM fence) SELECT epoch FROM fence",
            params,
        )

    def passed(self, outcome: Outcome) -> int | None:
        """The number that was taken, from the database and not from arithmetic; None where no row fitted."""
        if self.family == "mysql":
            # 1 is success. Everything else (0, -1, 2) is a refusal.
            return outcome.lastrowid if outcome.rowcount == 1 else None
        (epoch,) = outcome.rows[0] if len(outcome.rows) == 1 else (None,)
        return epoch if isinstance(epoch, int) else None

    def enter(self, token: CommitToken) -> Statement | None:
        """
        The ledger's row, where it takes a statement of its own: then the last one.

        It finds only what this very transaction has moved. If a driver rolled back and began anew behind our back, there is
        no such row, and nothing of the second half may be committed.
        """
        if self.family == "postgresql":
            return None
        return Statement(
            f"INSERT INTO {self._ledger} (scope, epoch, nonce) "
            f"SELECT scope, epoch, :nonce FROM {self._fence} WHERE scope = :scope AND epoch = :epoch",
            {"scope": token.scope, "epoch": token.epoch, "nonce": token.nonce},
        )

    def make(self, scope: str, lineage: str) -> Statement:
        """A row that is dead at 0, unless there is one: so that to create is to revive, and absent is not zero."""
        ignoring = (
            "ON DUPLICATE KEY UPDATE scope = scope" if self.family == "mysql" else "ON CONFLICT (scope) DO NOTHING"
        )
        return Statement(
            f"INSERT INTO {self._fence} (scope, epoch, live, lineage) VALUES (:scope, 0, FALSE, :lineage) {ignoring}",
            {"scope": scope, "lineage": lineage},
        )

    def backfill(self, query: str) -> Statement:
        """A live row at 1 for each name in the column `scope` of *query*, unless there is one."""
        # The lineage is a digest of nothing secret: it must only differ from that of other tables and databases.
        random = {
            "postgresql": "replace(CAST(gen_random_uuid() AS TEXT), '-', '')",
            "mysql": "MD5(CONCAT(UUID(), RAND()))",
            "sqlite": "lower(hex(randomblob(16)))",
        }[self.family]
        verb = "INSERT IGNORE" if self.family == "mysql" else "INSERT"
        # SQLite would read ON CONFLICT after a bare FROM as the start of a join's condition.
        conflict = "" if self.family == "mysql" else " WHERE TRUE ON CONFLICT (scope) DO NOTHING"
        return Statement(
            f"{verb} INTO {self._fence} (scope, epoch, live, lineage) "
            f"SELECT existing.scope, 1, TRUE, {random} FROM ({query}) AS existing{conflict}"
        )

    def row(self, scope: str, *, lock: bool = False, wait_s: float = 0) -> Statement:
        """Epoch, life and lineage; with *lock* not before whoever holds the row has ended, and then as that left it."""
        locking = ""
        if lock and self.family != "sqlite":
            # PostgreSQL has `patience`. MariaDB takes whole seconds, and here only; what is in such a comment MySQL, which
            # takes none, does not read. Source: MariaDB's manual, "Comment Syntax" and "WAIT and NOWAIT".
            wait = f" /*M! WAIT {math.ceil(wait_s)} */" if self.family == "mysql" else ""
            locking = f" FOR UPDATE{wait}"
        return Statement(
            f"SELECT epoch, live, lineage FROM {self._fence} WHERE scope = :scope{locking}", {"scope": scope}
        )

    def entry(self, token: CommitToken) -> Statement:
        """The nonce that the ledger has for the token's number."""
        # A plain read of MySQL's REPEATABLE READ may show what was there before the wait for the row.
        latest = " LOCK IN SHARE MODE" if self.family == "mysql" else ""
        return Statement(
            f"SELECT nonce FROM {self._ledger} WHERE scope = :scope AND epoch = :epoch{latest}",
            {"scope": token.scope, "epoch": token.epoch},
        )

    def prune(self, age_s: int) -> Statement:
        """Forget the commits that are older. Both sides of the comparison are the database's own clock."""
        before = {
            "postgresql": "CURRENT_TIMESTAMP - make_interval(secs => :age_s)",
            "mysql": "CURRENT_TIMESTAMP - INTERVAL :age_s SECOND",
            "sqlite": "datetime('now', '-' || :age_s || ' seconds')",
        }[self.family]
        return Statement(f"DELETE FROM {self._ledger} WHERE at < {before}", {"age_s": age_s})

    def patience(self, seconds: float) -> Statement | None:
        """How long the statements of this transaction wait for a lock; None where it is said elsewhere."""
        if self.family != "postgresql":
            return None
        # 0 would be for ever.
        milliseconds = max(1, round(seconds * 1000))
        return Statement("SELECT set_config('lock_timeout', :ms, TRUE)", {"ms": f"{milliseconds}ms"})

    def probes(self) -> list[Statement]:
        """Read nothing from the tables, and fail unless they are as this version needs them."""
        return [
            Statement(f"SELECT scope, epoch, live, lineage, holder, claimed_at FROM {self._fence} WHERE FALSE"),
            Statement(f"SELECT scope, epoch, nonce, at FROM {self._ledger} WHERE FALSE"),
        ]

    def alone(self) -> Statement | None:
        """
        Wait until no other process migrates.

        For this transaction and not for the connection: behind a pooler the unlock of a connection's lock goes to another
        backend, and so does a second booter.
        """
        if self.family != "postgresql":
            return None
        return Statement(
            "SELECT pg_advisory_xact_lock(hashtextextended(:table, 0))", {"table": f"migrate {self.table}"}
        )

    def tables(self) -> list[Statement]:
        """Make what is missing. Nothing here refers to the application's tables: they stay as they are."""
        text, truth, time = _TYPES[self.family]
        # Half-empty pages, so that a row that changes all the time finds room beside itself and no index is touched.
        room, engine = (" WITH (fillfactor = 50)", "") if self.family == "postgresql" else ("", "")
        if self.family == "mysql":
            engine = " ENGINE = InnoDB"
        return [
            Statement(
                f"CREATE TABLE IF NOT EXISTS {self._fence} (scope {text} NOT NULL PRIMARY KEY, "
                f"epoch BIGINT NOT NULL CHECK (epoch >= 0), live {truth} NOT NULL, lineage CHAR(32) NOT NULL, "
                f"holder {text}, claimed_at {time}){room}{engine}"
            ),
            Statement(
                f"CREATE TABLE IF NOT EXISTS {self._ledger} (scope {text} NOT NULL, epoch BIGINT NOT NULL, "
                f"nonce CHAR(32) NOT NULL, at {time} NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (scope, epoch)){engine}"
            ),
        ]

    def _quoted(self, name: str) -> str:
        return ".".join(f"{self._quote}{part}{self._quote}" for part in name.split("."))


_LIVE = "live"
_AS_PINNED = "epoch = :epoch AND lineage = :lineage AND live"
_WANTED: dict[Move, str] = {"commit": _AS_PINNED, "destroy": _AS_PINNED, "claim": _LIVE, "create": "NOT live"}
_NOW = ", holder = :holder, claimed_at = CURRENT_TIMESTAMP"
_ALSO: dict[Move, str] = {"commit": "", "destroy": ", live = FALSE", "claim": _NOW, "create": ", live = TRUE"}

# Bytes and not letters decide whether two scopes are one.
_EXACT = "VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_TYPES: dict[Family, tuple[str, str, str]] = {
    "postgresql": ("TEXT", "BOOLEAN", "TIMESTAMPTZ"),
    "mysql": (_EXACT, "BOOLEAN", "DATETIME"),
    "sqlite": ("TEXT", "INTEGER", "TEXT"),
}

_PLACE = re.compile(r":([a-z_]+)\b")
_rendered: dict[tuple[str, Style], tuple[str, tuple[str, ...]]] = {}


def render(statement: Statement, style: Style) -> tuple[str, Mapping[str, object] | tuple[object, ...]]:
    """The statement as a driver wants it."""
    if not statement.params:
        # As it stands: what an operator wrote may have colons of its own.
        return statement.sql, ()
    key = (statement.sql, style)
    if key not in _rendered:
        _rendered[key] = _render(*key)
    sql, order = _rendered[key]
    if style == "numeric_dollar":
        return sql, tuple(statement.params[name] for name in order)
    return sql, statement.params


def _render(sql: str, style: Style) -> tuple[str, tuple[str, ...]]:
    names: list[str] = []

    def place(found: re.Match[str]) -> str:
        name = found[1]
        if name not in names:
            names.append(name)
        return {"named": f":{name}", "pyformat": f"%({name})s", "numeric_dollar": f"${names.index(name) + 1}"}[style]

    text = sql.replace("%", "%%") if style == "pyformat" else sql
    return _PLACE.sub(place, text), tuple(names)
