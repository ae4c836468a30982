"""Many writers of one scope: every append that was acknowledged is there, and none that was refused."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter

import pytest
from sqlalchemy import text

from tenure.sql import AdvisoryXactLock, EpochFence, FenceError
from tests.helpers.capabilities import NEEDS_PGBOUNCER
from tests.sql.conftest import MARIADB, POOLED, POSTGRESQL, SQLITE
from tests.sql.databases import SCOPE, Database, Writer

WRITERS, APPENDS = 8, 10


class Crowd:
    """Writers that each append a given number of times, and what they were told."""

    def __init__(self, database: Database, fences: list[EpochFence], tries: int) -> None:
        self.acknowledged: list[str] = []
        self.refused: Counter[str] = Counter()
        self.odd: list[BaseException] = []
        self._lock = threading.Lock()
        self._tries = tries
        threads = [threading.Thread(target=self._write, args=pair) for pair in enumerate(fences)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.kept = (database.body() or "").split("+")[1:]

    def _write(self, number: int, fence: EpochFence) -> None:
        writer = Writer(fence)
        try:
            for turn in range(APPENDS):
                tail = f"{number}.{turn}"
                for _ in range(self._tries):
                    if self._appended(writer, tail):
                        break
        except BaseException as error:  # noqa: BLE001  looked at by the test
            self.odd.append(error)

    def _appended(self, writer: Writer, tail: str) -> bool:
        try:
            writer.load().append(f"+{tail}")
        except FenceError as error:
            if error.applied is not False:
                raise
            with self._lock:
                self.refused[error.kind] += 1
            threading.Event().wait(random.uniform(0, 0.02))
            return False
        with self._lock:
            self.acknowledged.append(tail)
        return True


@pytest.mark.parametrize("lock", [None, AdvisoryXactLock()], ids=["", "lock"])
@pytest.mark.parametrize("empty", [SQLITE, POSTGRESQL, POOLED, MARIADB], indirect=True)
def test_appends_kept_are_the_appends_acknowledged(database: Database, lock: AdvisoryXactLock | None) -> None:
    """Through the pooler eight writers share four backends, and load and write are served by different ones."""
    if lock is not None and database.family != "postgresql":
        return
    crowd = Crowd(database, [database.fence(lock=lock) for _ in range(WRITERS)], tries=500)
    assert crowd.odd == []
    assert len(crowd.acknowledged) == WRITERS * APPENDS
    assert sorted(crowd.kept) == sorted(crowd.acknowledged)
    # One for each commit, none for a refusal, and one for the creation.
    assert database.epoch() == len(crowd.acknowledged) + 1


@pytest.mark.parametrize("empty", [SQLITE, POSTGRESQL, POOLED, MARIADB], indirect=True)
def test_and_without_a_second_try_what_was_refused_is_not_there(database: Database) -> None:
    crowd = Crowd(database, [database.fence() for _ in range(WRITERS)], tries=1)
    assert crowd.odd == []
    assert sorted(crowd.kept) == sorted(crowd.acknowledged)
    assert len(crowd.acknowledged) + sum(crowd.refused.values()) == WRITERS * APPENDS


@NEEDS_PGBOUNCER
@pytest.mark.parametrize("empty", [POOLED], indirect=True)
def test_pin_and_write_may_be_served_by_different_backends(database: Database) -> None:
    fence = database.fence()
    pids = set()
    with contextlib.ExitStack() as stack:
        # The pooler opens a second backend only when somebody needs two at once.
        for _ in range(3):
            stack.enter_context(database.engine().begin()).execute(text("SELECT 1"))
    writer = Writer(fence).load()
    for number in range(8):
        with fence.write(writer.pin) as tx:
            pids.add(tx.scalar(text("SELECT pg_backend_pid()")))
            tx.execute(text("UPDATE doc SET body = body || :n"), {"n": f"+{number}"})
        assert tx.committed_pin is not None
        writer.pin = tx.committed_pin
    assert len(pids) > 1, "the pooler gave the same backend each time, so that this shows nothing"
    assert database.body() == "base" + "".join(f"+{n}" for n in range(8))


@pytest.mark.parametrize("empty", [POSTGRESQL, POOLED, MARIADB], indirect=True)
def test_writers_of_other_scopes_do_not_wait(database: Database) -> None:
    fence = database.fence()
    other = fence.create("other")
    pin = Writer(fence).load().pin
    with fence.write(pin) as tx:
        tx.execute(text("SELECT 1"))
        with database.fence().write(other) as second:
            second.execute(text("SELECT 1"))
    assert (database.epoch(SCOPE), database.epoch("other")) == (2, 2)
