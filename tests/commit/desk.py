"""
A desk where writers work: a lease, an outbox, and a ledger that lands an entry once, each in a file of one directory.

The ledger is what an author of another datastore would have: it knows nothing of tenure, and looks for an id before it writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tenure import WriterLease
from tenure._commit._outbox import Outbox
from tenure._commit._outbox_recovery import Outcome, RecoveryReport
from tenure._commit._outbox_table import OutboxEntry
from tenure._commit._standing import Standings
from tests.helpers.scripts import Script

WRITER = """
from pathlib import Path
from tests.commit.desk import Desk
desk = Desk(Path(sys.argv[1]))
with desk.lease.acquire(timeout=20) as hold:
    for number in range(int(sys.argv[2])):
        desk.outbox.prepare(f"{hold.fence}-{number}", b"data", author=hold, slot=10 * hold.fence + number)
    print(hold.fence)
    sys.stdin.readline()
"""
RECOVERER = """
from pathlib import Path
from tests.commit.desk import Desk
desk = Desk(Path(sys.argv[1]))
print(desk.recovered())
"""


class Desk:
    """One directory with all three."""

    def __init__(self, directory: Path) -> None:
        self.store = directory / "store"
        self._ledger = directory / "ledger"
        self.lease = WriterLease(self.store)
        self.outbox = Outbox(directory / "outbox.db")

    def ledger(self) -> list[str]:
        """The ids that have landed, in their order."""
        return self._ledger.read_text("ascii").split() if self._ledger.exists() else []

    def land(self, entry: OutboxEntry) -> Outcome:
        if entry.commit_id not in self.ledger():
            with open(self._ledger, "a", encoding="ascii") as file:
                file.write(entry.commit_id + "\n")
                os.fsync(file.fileno())
        return "landed"

    def recovered(self, *, timeout: float = 20.0) -> RecoveryReport:
        """What the next writer lands."""
        with self.lease.acquire(timeout=timeout) as hold:
            return self.outbox.recover(hold, self.land, standings=Standings(self.lease, fence=hold.fence))


@contextmanager
def writing(directory: Path, entries: int = 1, **environment: str) -> Iterator[Script]:
    """A process that has prepared *entries* under its hold, and gets no further until it is told."""
    with Script(WRITER, directory, entries, **environment) as script:
        script.says()
        yield script
