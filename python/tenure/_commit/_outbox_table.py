"""
The outbox as rows: each change of state is one statement that says what the state must have been.

Writers stand in a table of their own, once each: many entries are few writers. An older tenure reads nothing of a newer file
whose `user_version` is higher; a new column alone does not raise it, since every column here is named where it is used. A new
*state* must raise it: an older recovery would take such an entry for none of its business, and let the floor pass it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tenure._commit._author import Author
from tenure._commit._database import Database, Row

VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS outbox_writer (
    id INTEGER PRIMARY KEY,
    record TEXT NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS outbox_entry (
    number INTEGER PRIMARY KEY,
    commit_id TEXT NOT NULL UNIQUE,
    writer INTEGER NOT NULL,
    slot INTEGER,
    state TEXT NOT NULL,
    landing_fence INTEGER,
    note TEXT,
    prepared_at TEXT,
    data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS outbox_undecided ON outbox_entry (number) WHERE state IN ('prepared', 'landing');
CREATE INDEX IF NOT EXISTS outbox_floor ON outbox_entry (slot) WHERE state IN ('prepared', 'landing');
CREATE VIEW IF NOT EXISTS outbox AS
    SELECT number, commit_id, record AS author, slot, state, landing_fence, note, prepared_at
    FROM outbox_entry LEFT JOIN outbox_writer ON id = writer
"""
# The undecided are asked for word for word as in the indexes, or SQLite does not see that they fit.

State = Literal["prepared", "landing", "landed", "withdrawn", "conflicted"]
Settled = Literal["landed", "withdrawn", "conflicted"]

# Entries in memory at a time, without their data; and those of a recovery that share two syncs.
_PAGE = 1000
_MARK = (
    "UPDATE outbox_entry SET state = 'landing', landing_fence = ?"
    " WHERE commit_id = ? AND (state = 'prepared' OR (state = 'landing' AND landing_fence < ?))"
)
_SETTLE = "UPDATE outbox_entry SET state = ?, note = ? WHERE commit_id = ? AND state = 'landing' AND landing_fence = ?"


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """
    A commit that was prepared, and what became of it.

    Attributes:
        commit_id: the author's name for it.
        data: what the author needs to land it.
        author: who prepared it last.
        slot: the place in the log that it was meant for, or None.
        state: `prepared`; `landing`, by the recovery under `landing_fence`; or decided: `landed`, `withdrawn`, `conflicted`.
        landing_fence: of the recovery that took it on, or None.
        note: for people: why it is conflicted, or could not be landed yet.
        prepared_at: by the writer's wall clock, ISO 8601, for people.
    """

    commit_id: str
    data: bytes
    author: Author
    slot: int | None
    state: State
    landing_fence: int | None
    note: str | None
    prepared_at: str | None


@dataclass(frozen=True, slots=True)
class Heading:
    """An entry without its data, of which there may be much; where it stands in the order of preparing."""

    number: int
    commit_id: str
    author: Author
    slot: int | None
    state: State
    landing_fence: int | None
    note: str | None
    prepared_at: str | None

    def entry(self, data: bytes) -> OutboxEntry:
        return OutboxEntry(
            self.commit_id,
            data,
            self.author,
            self.slot,
            self.state,
            self.landing_fence,
            self.note,
            self.prepared_at,
        )


class Table:
    """The rows of one outbox."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.transaction = database.transaction

    def make(self) -> None:
        """Make the tables in a database that is somebody else's."""
        if not self._database.execute("SELECT 1 FROM sqlite_master WHERE name = 'outbox_floor'"):
            with self._database.transaction():
                for statement in SCHEMA.split(";"):
                    self._database.execute(statement)

    def insert(self, commit_id: str, data: bytes, author: Author, slot: int | None, at: str) -> None:
        self._database.change(
            "INSERT INTO outbox_entry (commit_id, writer, slot, state, prepared_at, data)"
            " VALUES (?, ?, ?, 'prepared', ?, ?)",
            (commit_id, self._writer(author), slot, at, data),
        )

    def prepare_again(self, commit_id: str, author: Author, slot: int | None, at: str) -> None:
        self._database.change(
            "UPDATE outbox_entry SET writer = ?, slot = ?, prepared_at = ? WHERE commit_id = ? AND state = 'prepared'",
            (self._writer(author), slot, at, commit_id),
        )

    def _writer(self, author: Author) -> int:
        record = json.dumps(author.to_record(), separators=(",", ":"))
        self._database.change("INSERT OR IGNORE INTO outbox_writer (record) VALUES (?)", (record,))
        ((number,),) = self._database.execute("SELECT id FROM outbox_writer WHERE record = ?", (record,))
        return int(number)

    def find(self, commit_id: str) -> tuple[State, bytes] | None:
        found = self._database.execute("SELECT state, data FROM outbox_entry WHERE commit_id = ?", (commit_id,))
        return found[0] if found else None  # type: ignore[return-value]  what two columns are

    def withdraw(self, commit_id: str) -> bool:
        return self._changes(
            "UPDATE outbox_entry SET state = 'withdrawn' WHERE commit_id = ? AND state IN ('prepared', 'withdrawn')",
            commit_id,
        )

    def landed(self, commit_id: str) -> bool:
        return self._changes(
            "UPDATE outbox_entry SET state = 'landed' WHERE commit_id = ? AND state IN ('prepared', 'landing', 'landed')",
            commit_id,
        )

    def mark(self, commit_id: str, fence: int) -> bool:
        return self._changes(_MARK, fence, commit_id, fence)

    def mark_all(self, headings: Sequence[Heading], fence: int) -> list[Heading]:
        """
        Mark those that can be marked, durably; also those that the same fence has marked before. Which are ours then.

        They come in the order of their numbers.
        """
        if not headings:
            return []
        with self._database.transaction():
            self._database.executemany(_MARK, ((fence, heading.commit_id, fence) for heading in headings))
            rows = self._database.execute(
                "SELECT number FROM outbox_entry"
                " WHERE number BETWEEN ? AND ? AND state = 'landing' AND landing_fence = ?",
                (headings[0].number, headings[-1].number, fence),
            )
        marked = {number for (number,) in rows}
        return [heading for heading in headings if heading.number in marked]

    def settle(self, commit_id: str, state: Settled, fence: int, note: str | None) -> bool:
        return self._changes(_SETTLE, state, note, commit_id, fence)

    def settle_all(self, outcomes: Iterable[tuple[str, Settled | Literal["landing"], str | None]], fence: int) -> None:
        """Write down *outcomes* (id, state, note) of what *fence* has marked and still has."""
        self._database.executemany(_SETTLE, ((state, note, commit_id, fence) for commit_id, state, note in outcomes))

    def _changes(self, sql: str, *parameters: object) -> bool:
        return self._database.change(sql, parameters) == 1

    def floor(self) -> int | None:
        ((slot,),) = self._database.execute("SELECT min(slot) FROM outbox_entry WHERE state IN ('prepared', 'landing')")
        return None if slot is None else int(slot)

    def count(self, state: State) -> int:
        ((count,),) = self._database.execute("SELECT count(*) FROM outbox_entry WHERE state = ?", (state,))
        return int(count)

    def undecided(self) -> int:
        ((count,),) = self._database.execute("SELECT count(*) FROM outbox_entry WHERE state IN ('prepared', 'landing')")
        return int(count)

    def pages(self, state: State | None = None) -> Iterator[list[Heading]]:
        """All entries, or those in *state*, in the order of preparing."""
        return self._paged(
            "SELECT * FROM outbox WHERE number > ? AND ? IN (state, '') ORDER BY number LIMIT ?", state or ""
        )

    def undecided_pages(self) -> Iterator[list[Heading]]:
        """
        Those that are not decided, in the order of preparing.

        Not by slot, and not with a cursor that is kept for the next pass: what comes late, or failed, is met again.
        """
        return self._paged(
            "SELECT * FROM outbox WHERE number > ? AND state IN ('prepared', 'landing') ORDER BY number LIMIT ?"
        )

    def _paged(self, sql: str, *parameters: object) -> Iterator[list[Heading]]:
        """A page at a time, and nobody is kept from writing between two."""
        authors: dict[str, Author] = {}
        last = 0
        while rows := self._database.execute(sql, (last, *parameters, _PAGE)):
            last = rows[-1][0]
            yield [_heading(row, authors) for row in rows]

    def heading(self, commit_id: str) -> Heading | None:
        rows = self._database.execute("SELECT * FROM outbox WHERE commit_id = ?", (commit_id,))
        return _heading(rows[0], {}) if rows else None

    def data(self, number: int) -> bytes | None:
        """What the entry *number* carries; None if it has been forgotten meanwhile."""
        rows = self._database.execute("SELECT data FROM outbox_entry WHERE number = ?", (number,))
        return bytes(rows[0][0]) if rows else None

    def forget(self, commit_ids: Iterable[str]) -> int:
        """Remove those of *commit_ids* that are decided."""
        return self._database.executemany(
            "DELETE FROM outbox_entry WHERE commit_id = ? AND NOT state IN ('prepared', 'landing')",
            ((commit_id,) for commit_id in commit_ids),
        )

    def done(self, keep: int) -> list[str]:
        """Some of those that have landed or were withdrawn, but for the newest *keep*."""
        rows = self._database.execute(
            "SELECT commit_id FROM outbox_entry WHERE state IN ('landed', 'withdrawn')"
            " ORDER BY number DESC LIMIT ? OFFSET ?",
            (_PAGE, keep),
        )
        return [commit_id for (commit_id,) in rows]

    def forget_writers(self) -> None:
        """Remove the writers of whom no entry is left."""
        self._database.change("DELETE FROM outbox_writer WHERE id NOT IN (SELECT writer FROM outbox_entry)")


def _heading(row: Row, authors: dict[str, Author]) -> Heading:
    number, commit_id, record, slot, state, fence, note, at = row
    if record not in authors:
        authors[record] = _author(record)
    return Heading(number, commit_id, authors[record], slot, state, fence, note, at)


def _author(record: str | None) -> Author:
    try:
        return Author.from_record(json.loads(record or "null"))
    except (ValueError, RecursionError):
        return Author.from_record(None)
