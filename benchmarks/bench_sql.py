"""
What the SQL fence costs: a transaction with it beside the same transaction without it, on PostgreSQL.

A server of its own that syncs as servers do. `--quick` takes few turns: to see that everything still runs, not to believe
the numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import random
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg
from sqlalchemy import Engine, create_engine, text

from benchmarks._measure import Row, environment, p95, ratio, report
from tenure.sql import CommitToken, EpochFence, FenceError, Pin, PsycopgFence
from tenure.sql._settings import Settings
from tests.helpers.servers import PgBouncer, PostgreSQL

LOAD, STORE = text("SELECT body FROM doc WHERE id = :id"), text("UPDATE doc SET body = :body WHERE id = :id")
BODY = "x" * 200
WRITERS = 8
STATEMENTS = Settings("tenure_fence", "tenure_commit", None, None).statements("postgresql")

Work = Callable[[], None]


class Synced(PostgreSQL):
    """PostgreSQL as it comes, unlike that of the tests: a commit is durable when it is answered."""

    def command(self) -> list[str]:
        """As in tests, but synced."""
        safe = {
            "fsync=off": "fsync=on",
            "full_page_writes=off": "full_page_writes=on",
            "autovacuum=off": "autovacuum=on",
        }
        return [safe.get(word, word) for word in super().command()]


@contextlib.contextmanager
def running(server: PostgreSQL | PgBouncer) -> Iterator[None]:
    try:
        server.open()
        yield
    finally:
        server.close()


class Pair:
    """One document, changed by the same transaction without the fence and with it, on a connection of its own."""

    def __init__(self, url: str, name: str, statements: int) -> None:
        self._engine: Engine = create_engine(url, pool_size=1, max_overflow=0)
        self._fence = EpochFence(self._engine)
        self._name = name
        self._half = statements // 2
        with self._engine.begin() as connection:
            connection.execute(text("INSERT INTO doc VALUES (:id, '')"), {"id": name})
        self._pin = self._fence.create(name)

    def _work(self, connection: object) -> None:
        execute = connection.execute  # type: ignore[attr-defined]
        for _ in range(self._half):
            execute(LOAD, {"id": self._name}).scalar()
            execute(STORE, {"id": self._name, "body": BODY})

    def without(self) -> None:
        """The transaction as it would be anyway."""
        with self._engine.begin() as connection:
            self._work(connection)

    def fenced(self) -> None:
        """The same behind the fence."""
        with self._fence.write(self._pin) as tx:
            self._work(tx)
        assert tx.committed_pin is not None
        self._pin = tx.committed_pin

    def by_hand(self) -> None:
        """The fence's statement as the program's own: what is left between the two is the library."""
        token = CommitToken(self._name, 0, self._pin.lineage, secrets.token_hex(16))
        fence = STATEMENTS.advance("commit", token, self._pin)
        with self._engine.begin() as connection:
            epoch = connection.execute(text(fence.sql), fence.params).scalar_one()
            self._work(connection)
        self._pin = Pin(self._name, epoch, self._pin.lineage)

    def close(self) -> None:
        """Disconnect."""
        self._engine.dispose()


class PsycopgPair:
    """The same without SQLAlchemy."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = psycopg.connect(url.replace("+psycopg", ""))
        self._fence = PsycopgFence(lambda: contextlib.nullcontext(self._connection))
        self._name = name
        self._connection.execute("INSERT INTO doc VALUES (%s, '')", [name])
        self._connection.commit()
        self._pin: Pin = self._fence.create(name)

    def without(self) -> None:
        """The transaction as it would be anyway."""
        self._work(self._connection.cursor())
        self._connection.commit()

    def fenced(self) -> None:
        """The same behind the fence."""
        with self._fence.write(self._pin) as cursor:
            self._work(cursor)
        assert cursor.committed_pin is not None
        self._pin = cursor.committed_pin

    def _work(self, cursor: psycopg.Cursor[object]) -> None:
        cursor.execute("SELECT body FROM doc WHERE id = %s", [self._name]).fetchone()
        cursor.execute("UPDATE doc SET body = %s WHERE id = %s", [BODY, self._name])

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


def timed(work: Work) -> float:
    start = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - start


def one_connection(one: Work, other: Work, rounds: int) -> tuple[list[float], list[float]]:
    """One transaction of each kind a round, in alternating order: the pair meets the same disk and the same neighbours."""
    without: list[float] = []
    fenced: list[float] = []
    for number in range(rounds + 20):
        order = [(one, without), (other, fenced)]
        for work, times in order if number % 2 else order[::-1]:
            times.append(timed(work))
    # The first ones prepare statements.
    return without[20:], fenced[20:]


def many_connections(pairs: list[Pair], rounds: int, each: int = 10) -> tuple[list[float], list[float]]:
    """All at once, *each* transactions a turn; the time is that of one transaction of all."""

    def together(works: list[Work]) -> float:
        def repeat(work: Work) -> None:
            for _ in range(each):
                work()

        threads = [threading.Thread(target=repeat, args=(work,)) for work in works]

        def run() -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return timed(run) / (each * len(works))

    without: list[float] = []
    fenced: list[float] = []
    for number in range(rounds + 2):
        order = [([p.without for p in pairs], without), ([p.fenced for p in pairs], fenced)]
        for works, times in order if number % 2 else order[::-1]:
            times.append(together(works))
    return without[2:], fenced[2:]


def row(what: str, without: list[float], fenced: list[float], *, against: str = "without the fence") -> Row:
    each = ratio(fenced, without)
    middle, other = sorted(fenced)[len(fenced) // 2], sorted(without)[len(without) // 2]
    return Row(what, middle / 1e3, p95(fenced) / 1e3, "us", against, other / 1e3, each, "≤ 1.05 x", each <= 1.05)


def through_the_pooler(url: str, appends: int) -> Row:
    """Writers that all append to one document, each try a load and a write; what was acknowledged against what is there."""
    engines = [create_engine(url, connect_args={"prepare_threshold": None}) for _ in range(WRITERS)]
    with engines[0].begin() as connection:
        connection.execute(text("INSERT INTO doc VALUES ('shared', '')"))
    EpochFence(engines[0]).create("shared")
    acknowledged: list[str] = []
    refused: list[int] = []

    def write(number: int, fence: EpochFence) -> None:
        for turn in range(appends):
            while True:
                try:
                    with fence.read("shared") as snap:
                        pin, body = snap.pin, snap.scalar(LOAD, {"id": "shared"})
                    with fence.write(pin) as tx:
                        tx.execute(STORE, {"id": "shared", "body": f"{body}+{number}.{turn}"})
                except FenceError as error:
                    if error.applied is not False:
                        raise
                    refused.append(1)
                    time.sleep(random.uniform(0, 0.02))
                else:
                    acknowledged.append(f"{number}.{turn}")
                    break

    threads = [threading.Thread(target=write, args=(n, EpochFence(engine))) for n, engine in enumerate(engines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with engines[0].connect() as connection:
        body = connection.scalar(LOAD, {"id": "shared"})
    kept = str(body).split("+")[1:]
    for engine in engines:
        engine.dispose()
    right = sorted(kept) == sorted(acknowledged) and len(kept) == WRITERS * appends
    what = f"appends kept, {WRITERS} writers through the pooler, {len(refused):,} tries refused"
    share = len(kept) / max(1, len(acknowledged))
    return Row(what, len(kept), len(kept), "appends", "acknowledged", len(acknowledged), share, "= 1", right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few turns; writes no results")
    quick = parser.parse_args().quick
    rounds, turns, appends = (30, 3, 3) if quick else (1000, 40, 25)
    gc.disable()
    rows: list[Row] = []
    server = Synced()
    pooler = PgBouncer(server)
    with running(server), running(pooler):
        url = server.database()
        engine = create_engine(url)
        EpochFence(engine).migrate()
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE doc (id TEXT PRIMARY KEY, body TEXT) WITH (fillfactor = 50)"))
        engine.dispose()
        for statements in (2, 10):
            pair = Pair(url, f"one-{statements}", statements)
            what = f"{statements} statements, 1 connection"
            rows.append(row(what, *one_connection(pair.without, pair.fenced, rounds)))
            rows.append(row(what, *one_connection(pair.by_hand, pair.fenced, rounds), against="the fence by hand"))
            pair.close()
        bare = PsycopgPair(url, "psycopg")
        rows.append(
            row("2 statements, 1 connection, psycopg alone", *one_connection(bare.without, bare.fenced, rounds))
        )
        bare.close()
        for statements in (2, 10):
            pairs = [Pair(url, f"many-{statements}-{number}", statements) for number in range(WRITERS)]
            rows.append(row(f"{statements} statements, {WRITERS} connections", *many_connections(pairs, turns)))
            for pair in pairs:
                pair.close()
        rows.append(through_the_pooler(pooler.before(url), appends))
    notes = [
        f"1 connection: {rounds} pairs; {WRITERS} connections: {turns} pairs of turns of 10 transactions each, scopes of their own",
        "the transaction: half of its statements read a row, half update one; its commit is synced",
        "by hand: the same statement, sent by the program itself, which then waits once more for the server",
        "a ratio is the median of the ratios within each pair; server and client share the machine",
    ]
    facts = environment("tenure", "sqlalchemy", "psycopg")
    facts["machine"] = facts["machine"].replace(", pinned to one", "")
    report("sql", rows, facts, notes, write=not quick)


if __name__ == "__main__":
    main()
