"""
A writer in a process of its own that is interrupted while it waits for a lock, and goes on.

Run as `python -m tests.sql.interrupted_writer FORM URL`; it says what became of it, one word a line, and goes on at a line of
its input.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import psycopg
from sqlalchemy import create_engine

from tenure.sql import EpochFence, FencedTransaction, PsycopgFence
from tests.sql.databases import SCOPE, STORE
from tests.sql.stalled_writer import say


class WithSqlAlchemy:
    def __init__(self, url: str) -> None:
        self._engine = create_engine(url, pool_size=1, max_overflow=0)
        self.fence: Any = EpochFence(self._engine)

    def store(self, tx: FencedTransaction, body: str) -> None:
        tx.execute(STORE, {"id": SCOPE, "body": body})

    def connection(self) -> str:
        # What the pool has is idle or closed, or it would say so: "checked out".
        return "usable" if self._engine.pool.checkedout() == 0 else "checked out"  # type: ignore[attr-defined]


class WithPsycopg:
    def __init__(self, url: str) -> None:
        self._url = url.replace("+psycopg", "")
        self._connection = psycopg.connect(self._url)
        self.fence: Any = PsycopgFence(self._lend)

    def _lend(self) -> Any:
        if self._connection.closed:
            self._connection = psycopg.connect(self._url)
        return contextlib.nullcontext(self._connection)

    def store(self, tx: psycopg.Cursor[Any], body: str) -> None:
        tx.execute("UPDATE doc SET body = %s WHERE id = %s", [body, SCOPE])

    def connection(self) -> str:
        status = self._connection.info.transaction_status
        return "usable" if self._connection.closed or status == psycopg.pq.TransactionStatus.IDLE else status.name


def main() -> None:
    form, url = sys.argv[1:]
    writer: Any = WithSqlAlchemy(url) if form == "sqlalchemy" else WithPsycopg(url)
    with writer.fence.read(SCOPE) as snap:
        pin = snap.pin
    token = None
    try:
        with writer.fence.write(pin) as tx:
            token = tx.token
            writer.store(tx, "interrupted")
    except KeyboardInterrupt:
        say("interrupted")
    say(writer.connection())
    sys.stdin.readline()
    say("no token" if token is None else type(writer.fence.resolve(token)).__name__)
    with writer.fence.read(SCOPE) as snap:
        pin = snap.pin
    with writer.fence.write(pin) as tx:
        writer.store(tx, "done")
    say(str(tx.committed_pin.epoch))


if __name__ == "__main__":
    main()
