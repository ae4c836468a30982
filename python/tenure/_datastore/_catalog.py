"""
The catalog: which committed state the files of a checkout are in, and what each of them looked like when it was left.

One SQLite file with the outbox in it, so that "landed" and the new state are one transaction. The content of small files is kept
here too: what a crash leaves is put right without asking the store.

An older reader: a newer `user_version` is refused ("upgrade"); rows in `about` that it does not know, it leaves alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenure._commit._database import Database, Row
from tenure._datastore._blobs import Content
from tenure._datastore._names import folded, parents
from tenure._datastore._worktree import Stamp

VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS files (
    name TEXT PRIMARY KEY, folded TEXT NOT NULL, size INTEGER NOT NULL, sha256 TEXT NOT NULL, data BLOB,
    fence INTEGER, turn INTEGER NOT NULL, slot INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, inode INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS files_folded ON files (folded);
CREATE INDEX IF NOT EXISTS files_blobs ON files (sha256) WHERE fence IS NOT NULL;
CREATE TABLE IF NOT EXISTS condemned (key TEXT PRIMARY KEY, slot INTEGER NOT NULL);
"""
_COLUMNS = "name, size, sha256, data, fence, turn, slot, mtime_ns, inode"


@dataclass(frozen=True, slots=True)
class Tracked:
    """
    A committed file, as it lies in the checkout.

    Attributes:
        name: of the file.
        content: what was committed.
        slot: where in the log that was.
        stamp: of the file in the checkout, when it was left so.
    """

    name: str
    content: Content
    slot: int
    stamp: Stamp


class Catalog:
    """The catalog of one checkout; `database` also holds its outbox."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path, schema=_SCHEMA, version=VERSION)

    def about(self, name: str) -> str | None:
        """A fact about the checkout, or None."""
        rows = self.database.execute("SELECT value FROM about WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    def note(self, name: str, value: str) -> None:
        """Keep a fact about the checkout."""
        self.database.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, value))

    @property
    def id(self) -> str:
        """Names the checkout; drawn when it was made."""
        found = self.about("checkout")
        if found is None:
            with self.database.transaction():
                # Another process may have been first.
                found = self.about("checkout")
                if found is None:
                    found = secrets.token_hex(16)
                    self.note("checkout", found)
        return found

    @property
    def position(self) -> int:
        """The newest slot of the log that the files are in the state of; 0 before the first."""
        return int(self.about("position") or 0)

    def get(self, name: str) -> Tracked | None:
        """The committed file *name*."""
        rows = self.database.execute(f"SELECT {_COLUMNS} FROM files WHERE name = ?", (name,))  # noqa: S608  constants
        return _tracked(rows[0]) if rows else None

    def several(self, names: Sequence[str]) -> dict[str, Tracked]:
        """Those of *names* that are committed files."""
        found: dict[str, Tracked] = {}
        for start in range(0, len(names), 500):
            page = names[start : start + 500]
            marks = ",".join("?" * len(page))
            rows = self.database.execute(f"SELECT {_COLUMNS} FROM files WHERE name IN ({marks})", page)  # noqa: S608  constants
            found.update((tracked.name, tracked) for tracked in map(_tracked, rows))
        return found

    def files(self) -> Iterator[Tracked]:
        """All committed files, sorted by name, in memory that does not grow."""
        after = ""
        while True:
            # A page at a time and not one cursor: whoever reads on may write in between.
            rows = self.database.execute(
                f"SELECT {_COLUMNS} FROM files WHERE name > ? ORDER BY name LIMIT 500",  # noqa: S608  constants
                (after,),
            )
            yield from map(_tracked, rows)
            if not rows:
                return
            after = rows[-1][0]

    def count(self) -> int:
        """How many files there are."""
        return int(self.database.execute("SELECT count(*) FROM files")[0][0])

    def blob_of(self, size: int, sha256: str) -> Content | None:
        """A blob with this content that committed files refer to, and that nobody has condemned."""
        rows = self.database.execute(
            "SELECT fence, turn FROM files WHERE sha256 = ? AND size = ? AND fence IS NOT NULL", (sha256, size)
        )
        contents = (Content(size, sha256, fence=fence, turn=turn) for fence, turn in rows)
        return next((content for content in contents if not self.is_condemned(content.key)), None)

    def clash(self, name: str) -> str | None:
        """A committed file that *name* cannot stand beside: the same but for case, or a file where it needs a directory."""
        key = folded(name)
        rows = self.database.execute("SELECT name FROM files WHERE folded = ? AND name <> ? LIMIT 1", (key, name))
        for above in parents(name):
            rows = rows or self.database.execute("SELECT name FROM files WHERE folded = ? LIMIT 1", (folded(above),))
            # "A/x" beside "a/y": one directory on some file systems, two on others.
            rows = rows or self.database.execute(
                "SELECT name FROM files WHERE folded > ? AND folded < ? AND substr(name, 1, ?) <> ? LIMIT 1",
                (folded(above) + "/", folded(above) + "0", len(above) + 1, above + "/"),
            )
        rows = rows or self.database.execute(
            "SELECT name FROM files WHERE folded > ? AND folded < ? LIMIT 1", (key + "/", key + "0")
        )
        return str(rows[0][0]) if rows else None

    def apply(self, changed: Iterable[Tracked], gone: Iterable[str], position: int) -> None:
        """The new state of some files, and the slot that it is of. Within the caller's transaction, if there is one."""
        with self.database.transaction():
            self.database.executemany("DELETE FROM files WHERE name = ?", ((name,) for name in gone))
            self.database.executemany(
                "INSERT OR REPLACE INTO files (name, folded, size, sha256, data, fence, turn, slot, mtime_ns, inode) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                map(_row, changed),
            )
            self.note("position", str(position))

    def restamp(self, name: str, stamp: Stamp) -> None:
        """The file looks different and contains the same."""
        self.database.execute(
            "UPDATE files SET mtime_ns = ?, inode = ? WHERE name = ?", (stamp.mtime_ns, stamp.inode, name)
        )

    def condemn(self, keys: Iterable[str], slot: int) -> None:
        """Nobody may refer to these blobs any more, says the entry at *slot*."""
        self.database.executemany("INSERT OR IGNORE INTO condemned VALUES (?, ?)", ((key, slot) for key in keys))

    def is_condemned(self, key: str) -> bool:
        """Whether a log entry has condemned the blob *key*."""
        return bool(self.database.execute("SELECT 1 FROM condemned WHERE key = ?", (key,)))

    def condemned(self) -> Iterator[tuple[str, int]]:
        """The condemned blobs, and where in the log that is said."""
        return self.database.iterate("SELECT key, slot FROM condemned ORDER BY key")

    def forget_condemned(self, keys: Iterable[str]) -> None:
        """These blobs are deleted."""
        self.database.executemany("DELETE FROM condemned WHERE key = ?", ((key,) for key in keys))

    def close(self) -> None:
        """Close the file."""
        self.database.close()


def _tracked(row: Row) -> Tracked:
    name, size, sha256, data, fence, turn, slot, mtime_ns, inode = row
    return Tracked(name, Content(size, sha256, data, fence, turn), slot, Stamp(size, mtime_ns, inode))


def _row(one: Tracked) -> Row:
    content, stamp = one.content, one.stamp
    what = (content.size, content.sha256, content.data, content.fence, content.turn)
    return (one.name, folded(one.name), *what, one.slot, stamp.mtime_ns, stamp.inode)
