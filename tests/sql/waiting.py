"""Whoever waits for a lock: in a thread, and as the server sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sqlalchemy import Engine, text

from tests.sql.databases import Database


class InThread(threading.Thread):
    """Something that waits for a lock, and how it ended."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  looked at by the test
            self.error = error

    def end(self) -> BaseException | None:
        self.join(60)
        assert not self.is_alive()
        return self.error


def waiting_for_a_lock(database: Database, engine: Engine) -> Callable[[], bool]:
    """Whether somebody waits, as the server says."""
    if database.family == "postgresql":
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    else:
        query = "SELECT count(*) FROM information_schema.processlist WHERE state = 'Updating' AND db = database()"

    def waits() -> bool:
        with engine.connect() as connection:
            return bool(connection.scalar(text(query)))

    return waits
