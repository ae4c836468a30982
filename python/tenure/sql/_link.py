"""One connection, as the fence needs it, whoever has made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from tenure.errors import StoreCannotLockError
from tenure.sql._drivers import Driver, Standing
from tenure.sql._statements import Family, Outcome, Statement

Mode = Literal["write", "snapshot", "look"]
"""What a transaction is for: to write, to read at one moment, or to see what is there now."""


class Watcher(Protocol):
    """Whoever is asked about each statement on a connection."""

    def before(self, sql: str) -> None:
        """Raise unless *sql* may run."""

    def after(self) -> None:
        """It came to its end."""

    def ending(self, how: Literal["commit", "rollback"]) -> None:
        """Somebody ends the transaction; raise to forbid it."""


class Link(Protocol):
    """One connection. Whatever a driver raises comes through as it is."""

    @property
    def family(self) -> Family:
        """Which words it understands."""

    @property
    def handle(self) -> Any:
        """What the application knows it by."""

    def begin(self, mode: Mode) -> None:
        """Start a transaction; refuse a connection on which there would be none, or one already."""

    def run(self, statement: Statement) -> Outcome:
        """Run one statement."""

    def run_together(self, statements: Sequence[Statement]) -> Outcome:
        """Run several, in one round trip where the driver can; what the last one says."""

    def watch(self, watcher: Watcher | None) -> None:
        """From now on ask *watcher* about each statement."""

    def standing(self) -> Standing:
        """Whether there is a transaction that can commit, as the driver knows without asking."""

    def same_backend(self) -> bool:
        """Whether this is still the server's end that began."""

    def commit(self) -> None:
        """Send COMMIT. An error is an answer or the lack of one: see `answers_commit`."""

    def rollback(self) -> None:
        """Undo, and never raise: a connection on which that fails is discarded."""

    def discard(self) -> None:
        """Close it for good, so that nothing on it can still be committed."""


def refuse_autocommit(driver: Driver, raw: Any) -> None:
    """
    Refuse a connection that commits each statement by itself.

    Raises:
        StoreCannotLockError: the bump would be committed, and what follows too, one by one.
    """
    if driver.autocommit(raw):
        raise StoreCannotLockError(
            "this connection commits every statement by itself, so nothing can be refused as a whole",
            hint="do not use AUTOCOMMIT on the engine that the fence is given",
        )
