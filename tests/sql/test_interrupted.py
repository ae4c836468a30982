"""Ctrl-C while a fenced write waits for a lock: at once, and nothing half-read or half-known is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing

import pytest
from sqlalchemy import text

from tests.helpers.processes import PATIENCE, until
from tests.sql.conftest import POSTGRESQL
from tests.sql.databases import Database
from tests.sql.waiting import waiting_for_a_lock

# At COMMIT a writer waits where a deferred trigger does.
GATE = """
CREATE TABLE gate (id INTEGER);
INSERT INTO gate VALUES (1);
CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM 1 FROM gate FOR UPDATE; RETURN NULL; END';
CREATE CONSTRAINT TRIGGER gated AFTER UPDATE ON doc DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pass_gate();
"""
LOCKS = {"the fence": "tenure_fence", "a statement": "doc", "COMMIT": "gate"}


class Interrupted:
    def __init__(self, form: str, url: str) -> None:
        command = [sys.executable, "-m", "tests.sql.interrupted_writer", form, url]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def says(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("empty", [POSTGRESQL], indirect=True)
@pytest.mark.parametrize("where", LOCKS)
@pytest.mark.parametrize("form", ["sqlalchemy", "psycopg"])
def test_an_interrupt_ends_the_wait_for_a_lock_and_what_was_asked_for_is_known(
    database: Database, form: str, where: str
) -> None:
    engine = database.engine()
    with engine.begin() as connection:
        connection.execute(text(GATE))
    with closing(Interrupted(form, database.url)) as writer:
        with engine.begin() as holder:
            holder.execute(text(f"SELECT 1 FROM {LOCKS[where]} FOR UPDATE"))
            until(waiting_for_a_lock(database, engine), f"it does not wait at {where}")
            writer.interrupt()
            # The lock is still held: nothing but the interrupt can have ended the wait.
            assert [writer.says(), writer.says()] == ["interrupted", "usable"]
        writer.go_on()
        assert writer.says() == ("no token" if where == "the fence" else "NotApplied")
        assert writer.says() == "2", "the interrupted write took no number"
    assert (database.body(), database.epoch()) == ("done", 2)
