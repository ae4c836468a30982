"""A database of its own for each test, and a tiny application in it: documents that grow by appending."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url, text

from tenure.sql import EpochFence, Pin

SCOPE = "doc:42"
BASE = "base"

LOAD = text("SELECT body FROM doc WHERE id = :id")
STORE = text("UPDATE doc SET body = :body WHERE id = :id")
INSERT = text("INSERT INTO doc (id, body) VALUES (:id, :body)")


class Database:
    """One database of *kind* at *url*; each engine is a program of its own, as far as the database can tell."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url
        self._engines: list[Engine] = []

    @property
    def family(self) -> str:
        return {"pooled": "postgresql", "mariadb": "mysql"}.get(self.kind, self.kind)

    @property
    def port(self) -> int:
        """Where its server listens."""
        port = make_url(self.url).port
        assert port is not None
        return port

    def engine(self, url: str | None = None, **options: Any) -> Engine:
        if self.kind == "pooled":
            # PgBouncer before 1.21 does not know which backend has prepared what.
            options["connect_args"] = {"prepare_threshold": None, **options.get("connect_args", {})}
        engine = create_engine(url or self.url, **options)
        if self.kind == "sqlite":
            # Not synced, as the other databases of the tests; and readers beside a writer.
            @event.listens_for(engine, "connect")
            def configure(raw: Any, _: Any) -> None:
                raw.execute("PRAGMA journal_mode = WAL")
                raw.execute("PRAGMA synchronous = OFF")

        self._engines.append(engine)
        return engine

    def fence(self, *, engine: Engine | None = None, **options: Any) -> EpochFence:
        return EpochFence(engine or self.engine(), **options)

    def prepare(self) -> None:
        """The tables, the document's scope, and "base" in it."""
        fence = self.fence()
        fence.migrate()
        with self.engine().begin() as connection:
            connection.execute(text("CREATE TABLE doc (id VARCHAR(100) PRIMARY KEY, body TEXT NOT NULL)"))
        fence.create(SCOPE, also=lambda tx: tx.execute(INSERT, {"id": SCOPE, "body": BASE}))

    def body(self, scope: str = SCOPE) -> str | None:
        """The document, read directly and not through the fence."""
        with self.engine().connect() as connection:
            body: str | None = connection.scalar(LOAD, {"id": scope})
        return body

    def epoch(self, scope: str = SCOPE) -> int | None:
        """The counter, read directly."""
        with self.engine().connect() as connection:
            epoch: int | None = connection.scalar(text("SELECT epoch FROM tenure_fence WHERE scope = :s"), {"s": scope})
        return epoch

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()


class Writer:
    """One instance of the application: loads a document into memory, and appends to what it has in memory."""

    def __init__(self, fence: EpochFence, scope: str = SCOPE) -> None:
        self.fence = fence
        self.scope = scope
        self.pin: Pin
        self.body = ""

    def load(self) -> Writer:
        with self.fence.read(self.scope) as snap:
            self.pin, self.body = snap.pin, snap.scalar(LOAD, {"id": self.scope})
        return self

    def append(self, tail: str, *, before_commit: Callable[[], object] | None = None) -> None:
        """As the described system does it: what is stored is what was in memory, and the tail."""
        with self.fence.write(self.pin) as tx:
            tx.execute(STORE, {"id": self.scope, "body": self.body + tail})
            if before_commit is not None:
                before_commit()
        assert tx.committed_pin is not None
        self.pin, self.body = tx.committed_pin, self.body + tail
