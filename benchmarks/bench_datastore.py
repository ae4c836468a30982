"""
What the log and the datastore cost: commits against what they sync, a catch-up against `cp -r`, recovery, memory, a long log.

Each ratio is of one run on one machine; run it where nothing else does. `--directory` says on which disk.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import platform
import resource
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from tenure import CommitLog, Datastore, Outbox, WriterLease
from tenure._commit import _keys
from tenure._commit._database import Database
from tenure._commit._outbox_table import SCHEMA, VERSION
from tenure._store._file import FileStore

_PREPARE = (
    "INSERT INTO outbox_entry (commit_id, writer, slot, state, prepared_at, data) VALUES (?, 1, 1, 'prepared', '', ?)"
)
COMMITS, FILES, ENTRIES, RECOVERED = 300, 10_000, 1_000_000, 40_000


def median_us(times: int, one: Callable[[int], object]) -> float:
    took = []
    for number in range(times):
        begun = time.perf_counter()
        one(number)
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


def commits(place: Path) -> None:
    """A commit of the log alone, and the synced publish of a record of that size, by turns."""
    raw, log = FileStore(place / "raw"), CommitLog(place / "log")
    record = b"x" * 250
    with WriterLease(log.store).acquire() as hold:
        writer = log.open(hold)
        publish, commit = [], []
        for turn in range(10):
            names = [f"log/{turn * COMMITS + number:020}" for number in range(COMMITS // 10)]
            publish.append(median_us(len(names), lambda number, names=names: raw.create(names[number], record)))  # type: ignore[misc]
            commit.append(median_us(len(names), lambda _: writer.commit({"n": 1})))
    ratio = statistics.median(commit) / statistics.median(publish)
    say(
        "commit, log alone",
        f"{statistics.median(commit):.0f} us, {ratio:.2f} x its synced publish",
        ratio <= 1.3,
        "<= 1.3",
    )


def checkout_commits(place: Path) -> None:
    """A commit of one small file, and by turns what it syncs alone: its two transactions in the checkout and its entry."""
    datastore, raw = Datastore.create(place / "one"), FileStore(place / "raw-one")
    with datastore.checkout(place / "mine") as mine, mine.writer() as writer:
        writer.put("f", b"x")
        writer.commit()
        shutil.copy(place / "mine" / ".tenure" / "catalog.db", place / "raw.db")
        # Like the one it was copied from, which sets it for each connection.
        database = sqlite3.connect(place / "raw.db", isolation_level=None)
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA journal_mode = TRUNCATE")

        numbers = itertools.count()

        def publishes(_: int) -> None:
            number = next(numbers)
            database.execute("BEGIN IMMEDIATE")
            database.execute(_PREPARE, (f"{number}", b"x" * 250))
            database.execute("COMMIT")
            raw.create(f"log/{number:020}", b"x" * 250)
            database.execute("BEGIN IMMEDIATE")
            database.execute("UPDATE outbox_entry SET state = 'landed' WHERE commit_id = ?", (f"{number}",))
            database.execute("INSERT OR REPLACE INTO files SELECT * FROM files WHERE name = 'f'")
            database.execute("INSERT OR REPLACE INTO about VALUES ('position', ?)", (str(number),))
            database.execute("COMMIT")

        def commit(_: int) -> float:
            writer.put("f", b"%d" % next(numbers))
            begun = time.perf_counter()
            writer.commit()
            return time.perf_counter() - begun

        alone, whole = [], []
        for _ in range(10):
            alone.append(median_us(COMMITS // 10, publishes))
            whole.append(statistics.median(map(commit, range(COMMITS // 10))) * 1e6)
        database.close()
    ratio = statistics.median(whole) / statistics.median(alone)
    say("commit of one file", f"{statistics.median(whole):.0f} us, {ratio:.2f} x what it syncs", ratio <= 1.3, "<= 1.3")


def catch_up(place: Path) -> None:
    """A new checkout of many small files, and `cp -r` of one."""
    datastore = Datastore.create(place / "data")
    with datastore.checkout(place / "here") as here, here.writer() as writer:
        for number in range(FILES):
            writer.put(f"d{number // 100:03}/f{number:05}", b"%05d " % number * 100)
        writer.commit("many")
    copied, caught = [], []
    for turn in range(3):
        begun = time.perf_counter()
        subprocess.run(["cp", "-r", str(place / "here"), str(place / f"copy{turn}")], check=True)
        copied.append(time.perf_counter() - begun)
        with datastore.checkout(place / f"there{turn}") as there:
            begun = time.perf_counter()
            there.catch_up()
            caught.append(time.perf_counter() - begun)
    speed = min(copied) / min(caught)
    say(
        f"catch-up of {FILES:,} files", f"{min(caught):.2f} s, {speed:.2f} x the speed of cp -r", speed >= 0.5, ">= 0.5"
    )


def recovery(place: Path) -> None:
    """What an entry that a dead writer had prepared costs its successor, among few and among many."""
    each = []
    for entries in (RECOVERED // 4, RECOVERED):
        lease, database = (
            WriterLease(place / f"store-{entries}"),
            Database(place / f"{entries}.db", schema=SCHEMA, version=VERSION),
        )
        outbox = Outbox(database)
        with lease.acquire() as dead, database.transaction():
            for number in range(entries):
                outbox.prepare(f"c{number}", b"x" * 250, author=dead)
        with lease.acquire() as hold:
            begun = time.perf_counter()
            outbox.recover(hold, lambda _: "landed")
            each.append((time.perf_counter() - begun) / entries * 1e6)
        database.close()
    ratio = each[1] / each[0]
    say(
        f"recovery, {RECOVERED:,} entries",
        f"{each[1]:.0f} us each, {ratio:.2f} x that of a quarter as many",
        ratio <= 1.5,
        "linear",
    )


def stream(place: Path, gigabytes: float) -> None:
    """A file that is larger than memory should be: by how much the process grows."""
    datastore = Datastore.create(place / "large")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with datastore.checkout(place / "giver") as giver, giver.writer() as writer:
        writer.put("large", cast("BinaryIO", _Endless(int(gigabytes * 1e9))))
        writer.commit()
    with datastore.checkout(place / "taker") as taker:
        taker.catch_up()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    say(f"a file of {gigabytes:g} GB", f"grows by {grown:.0f} MB", grown <= 32, "<= 32 MB")


class _Endless(io.RawIOBase):
    """So many bytes, out of nothing."""

    def __init__(self, size: int) -> None:
        self._left, self._piece = size, os.urandom(1 << 20)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        piece = self._piece[: min(self._left, len(self._piece) if size < 0 else size)]
        self._left -= len(piece)
        return piece


def long_log(place: Path) -> None:
    """The status of a checkout beside a log of a million entries with a snapshot near its end; in memory, for the number of names."""
    datastore = Datastore.create(place / "long")
    with datastore.checkout(place / "checkout") as checkout:
        with checkout.writer() as writer:
            writer.put("f", b"x")
            writer.commit()
        store = datastore.store
        assert isinstance(store, FileStore)
        # Their content is not read, only that they are there; links are made faster than files.
        one = str(store.path_of(_keys.entry(2)))
        for slot in range(3, ENTRIES + 1):
            os.link(one, store.path_of(_keys.entry(slot)))
        store.create(_keys.snapshot(ENTRIES - 700), _keys.NOTE)
        fresh = Datastore(place / "long")
        with fresh.checkout(place / "checkout") as again:
            begun = time.perf_counter()
            assert again.status().newest == ENTRIES
            took = (time.perf_counter() - begun) * 1e3
    say(f"status, {ENTRIES:,} entries", f"{took:.1f} ms", took <= 50, "<= 50 ms")


def say(what: str, found: str, met: bool, target: str) -> None:
    print(f"{what:<28}{found:<48}target {target}: {'met' if met else 'MISSED'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where to write; a temporary one if left out")
    parser.add_argument("--gigabytes", type=float, default=1, help="how large the large file is")
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}")
    with tempfile.TemporaryDirectory(dir=asked.directory) as directory:
        # First: what it is compared with is the most that was ever used.
        stream(Path(directory), asked.gigabytes)
        commits(Path(directory))
        checkout_commits(Path(directory))
        catch_up(Path(directory))
        recovery(Path(directory))
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        long_log(Path(directory))


if __name__ == "__main__":
    main()
