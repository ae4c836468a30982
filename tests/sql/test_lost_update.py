"""
What the fence exists for: a writer whose lease ran out under it appends to what it had in memory.

Reading and writing in one transaction would not help: the base was read before, into memory. What is stored is looked at
directly and not through the fence.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from tenure import Verdict, WriterBusyError, WriterLease
from tenure._lease import _keys
from tenure.sql import StaleEpochError
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.helpers.processes import PATIENCE, until_state
from tests.sql.databases import BASE, SCOPE, Database, Writer
from tests.sql.stalled_writer import SKEW, TTL


class Stalled:
    """A in a process of its own, which can be stopped as a whole: its thread, its heartbeat, everything."""

    def __init__(self, directory: Path, database: Database) -> None:
        command = [sys.executable, "-m", "tests.sql.stalled_writer", str(directory), database.url]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.says() == "loaded"

    def says(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def stop(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)
        until_state(self._process.pid, "T")

    def wake(self) -> None:
        assert self._process.stdin is not None
        os.kill(self._process.pid, signal.SIGCONT)
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@NEEDS_LINUX_PROC
def test_a_writer_whose_lease_expired_while_it_was_blocked_loses_to_the_one_who_took_over(
    database: Database, tmp_path: Path
) -> None:
    # Of another machine by its record, and without a lifeline here: nobody can know whether it lives, and its ttl decides.
    with closing(Stalled(tmp_path / "lease", database)) as a:
        a.stop()
        successor = WriterLease(tmp_path / "lease", ttl=TTL, skew=SKEW, host_id="b", host_id_is_unique=True)
        nonce = successor.inspect().nonce
        assert nonce is not None
        (tmp_path / "lease" / _keys.lifeline(nonce)).unlink()
        with pytest.raises(WriterBusyError) as busy:
            successor.acquire()
        assert (busy.value.judgement.verdict, busy.value.judgement.reason) == (Verdict.UNKNOWN, "other_host")
        with successor.acquire(timeout=PATIENCE):
            the_successor_wins(a, database)


def test_a_writer_whose_lease_was_deleted_loses_to_the_one_who_took_over(database: Database, tmp_path: Path) -> None:
    with closing(Stalled(tmp_path / "lease", database)) as a:
        a.stop()
        for path in (tmp_path / "lease" / _keys.PREFIX).rglob("*"):
            if path.is_file():
                path.unlink()
        with WriterLease(tmp_path / "lease").acquire(timeout=PATIENCE):
            the_successor_wins(a, database)


def the_successor_wins(a: Stalled, database: Database) -> None:
    before = database.epoch()
    Writer(database.fence()).load().append("+B")
    a.wake()

    assert [a.says() for _ in range(3)] == ["stale", "stale", "stale"], "at its first write, at the next, and at COMMIT"
    assert a.says() == "base+B", "what it sees when it loads again"
    assert a.says() == "base+B+A", "and when it has repeated its append"
    assert database.body() == "base+B+A"
    assert database.epoch() == (before or 0) + 2, "one for each commit, none for the refusal"


def test_the_refusal_moves_nothing_and_both_see_the_same_afterwards(database: Database) -> None:
    a, b = Writer(database.fence()).load(), Writer(database.fence()).load()
    b.append("+B")
    with pytest.raises(StaleEpochError) as refused:
        a.append("+A")

    assert (refused.value.ours, refused.value.current, refused.value.applied) == (1, 2, False)
    assert (database.body(), database.epoch()) == ("base+B", 2)
    assert a.load().body == b.load().body == "base+B"


@pytest.mark.parametrize("first", ["a", "b"])
def test_whoever_reports_success_is_in_the_final_content(database: Database, first: str) -> None:
    """Whichever side commits second has the old base, so both sides have to be looked at."""
    writers = {"a": Writer(database.fence()).load(), "b": Writer(database.fence()).load()}
    second = "b" if first == "a" else "a"
    writers[first].append(f"+{first}")
    with pytest.raises(StaleEpochError):
        writers[second].append(f"+{second}")
    assert database.body() == f"{BASE}+{first}"


def test_a_peer_that_only_changes_metadata_fences_too(database: Database) -> None:
    """Else a peer that moves no content, as a `chmod`, would let a stale writer through."""
    with database.engine().begin() as connection:
        connection.execute(text("CREATE TABLE meta (id VARCHAR(100), mode INTEGER)"))
    a, b = Writer(database.fence()).load(), Writer(database.fence()).load()
    with b.fence.write(b.pin) as tx:
        tx.execute(text("INSERT INTO meta VALUES (:id, 420)"), {"id": SCOPE})
    with pytest.raises(StaleEpochError):
        a.append("+A")
    assert database.body() == BASE


def test_a_claim_fences_before_the_new_writer_has_written(database: Database) -> None:
    a = Writer(database.fence()).load()
    b = Writer(database.fence())
    b.pin = b.fence.claim(SCOPE, holder="b")
    with pytest.raises(StaleEpochError):
        a.append("+A")
    assert database.body() == BASE


def test_a_peer_that_commits_between_the_pin_and_the_load_is_not_overwritten(database: Database) -> None:
    a, b = Writer(database.fence()), Writer(database.fence()).load()
    with a.fence.read(SCOPE) as snap:
        b.append("+B")
        a.pin = snap.pin
        a.body = snap.scalar(text("SELECT body FROM doc"))
    assert a.body == BASE, "pin and load are of one moment"
    with pytest.raises(StaleEpochError):
        a.append("+A")
    assert database.body() == "base+B"
