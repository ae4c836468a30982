"""What a database is told, in its order, as it goes over the wire; SQLite says so itself."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Engine, event

from tests.helpers.proxy import Fault, Proxy
from tests.sql.databases import Database

# Drivers send the words as they are, whichever protocol is around them.
_TOLD = re.compile(
    r"BEGIN(?: IMMEDIATE)?|START TRANSACTION|COMMIT\b|ROLLBACK(?: TO)?|SAVEPOINT|SELECT set_config|SELECT pg_advisory_xact_lock|"
    r"UPDATE .tenure_fence|INSERT INTO .tenure_commit|UPDATE doc|SELECT body|SELECT epoch, live"
)


class Recorder(Proxy):
    """Passes everything on, and writes down what clients say."""

    def __init__(self, port: int) -> None:
        self._lines: list[bytes] = []
        self._guard = threading.Lock()
        super().__init__(port)

    def meets(self, request: bytes) -> Fault | None:
        with self._guard:
            self._lines.append(request)
        return super().meets(request)

    def told(self) -> list[str]:
        with self._guard:
            said = b"".join(self._lines)
        return _words(said.decode("utf-8", "replace"))

    def waits(self) -> int:
        """
        How often a client has waited for PostgreSQL: a simple Query, or the Sync after any number of other messages.

        From a message's start on, so `forget` first. Source: PostgreSQL's manual, "Message Flow".
        """
        with self._guard:
            said = b"".join(self._lines)
        kinds, at = [], 0
        while at < len(said):
            kinds.append(said[at : at + 1])
            at += 1 + int.from_bytes(said[at + 1 : at + 5], "big")
        return kinds.count(b"Q") + kinds.count(b"S")

    def forget(self) -> None:
        with self._guard:
            self._lines.clear()


class Trace:
    """The same for SQLite, which has no wire."""

    def __init__(self, engine: Engine) -> None:
        self._lines: list[str] = []
        event.listen(engine, "connect", self._listen)

    def _listen(self, raw: Any, _: Any) -> None:
        raw.set_trace_callback(self._lines.append)

    def told(self) -> list[str]:
        return _words("\n".join(self._lines))

    def forget(self) -> None:
        self._lines.clear()


@contextlib.contextmanager
def recorded(database: Database, **options: Any) -> Iterator[tuple[Engine, Recorder | Trace]]:
    """An engine on *database*, and what is said on its connections."""
    if database.kind == "sqlite":
        engine = database.engine(**options)
        yield engine, Trace(engine)
        return
    recorder = Recorder(database.port)
    with recorder:
        yield database.engine(recorder.before(database.url), **options), recorder


def _words(said: str) -> list[str]:
    return [word.replace('"', "").replace("`", "") for word in _TOLD.findall(said)]
