"""What is done on one link and is no fenced transaction: look, resolve, migrate, prune."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tenure.errors import StoreCannotLockError
from tenure.sql._diagnosis import found, gone, missing, setup_error
from tenure.sql._errors import PinError, ScopeLostError
from tenure.sql._failures import classify
from tenure.sql._link import Link
from tenure.sql._pin import CommitToken, Pin, check_scope
from tenure.sql._settings import Settings


@dataclass(frozen=True, slots=True)
class Applied:
    """The commit took effect. `pin` is what its transaction would have returned."""

    pin: Pin


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The commit did not take effect, and never will: whoever was in its way has ended. It may be repeated."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """
    Still nobody can tell.

    Attributes:
        reason: `undecided` (its transaction is still open on the server; ask again), `pruned` (the ledger no longer
            reaches back that far) or `unreachable` (the database did not answer).
    """

    reason: Literal["undecided", "pruned", "unreachable"]


Resolution = Applied | NotApplied | Unknown


def snapshot(link: Link, settings: Settings, scope: str) -> Pin:
    """
    Begin a transaction that sees one moment, and read the pin first: of a commit between the two the pin knows nothing.

    The transaction is left open, for the load.
    """
    check_scope(scope)
    try:
        link.begin("snapshot")
        settings.call_context(link.handle, scope)
        row = settings.statements(link.family).row(scope)
        seen = found(link.run_together([*settings.preparations(scope, lock=False), row]).rows)
    except BaseException as error:
        raise reading_failed(link, settings, scope, error) from error
    if seen is None:
        link.rollback()
        raise missing(link, settings, scope)
    epoch, live, lineage = seen
    if not live:
        link.rollback()
        raise gone(scope)
    return Pin(scope, epoch, lineage)


def reading_failed(link: Link, settings: Settings, scope: str, error: BaseException) -> BaseException:
    """End the transaction, and say what *error* means to whoever reads; it was only reading, so it may be repeated."""
    failure = classify(error)
    if failure == "lost":
        link.discard()
    else:
        link.rollback()
    setup = setup_error(error, failure, settings.table) if isinstance(error, Exception) else None
    if setup is not None:
        return setup
    if isinstance(error, Exception) and failure != "other":
        return ScopeLostError(
            f"the load failed. scope=`{scope}`, failure=`{failure}`", hint="load again", scope=scope, retry="reload"
        )
    return error


def resolve(link: Link, settings: Settings, token: CommitToken, timeout: float) -> Resolution:
    """
    Whether the commit of *token* took effect.

    A locking read: it waits until a transaction that is still undecided has ended. A plain read would see the old value,
    and take "not yet" for "never".
    """
    statements = settings.statements(link.family)
    try:
        link.begin("write" if link.family == "sqlite" else "look")
        settings.call_context(link.handle, token.scope)
        patience = statements.patience(timeout)
        before = settings.preparations(token.scope, lock=False) + ([] if patience is None else [patience])
        seen = found(link.run_together([*before, statements.row(token.scope, lock=True, wait_s=timeout)]).rows)
        entry = link.run(statements.entry(token)).rows
    except Exception as error:
        failure = classify(error)
        setup = setup_error(error, failure, settings.table)
        if setup is not None:
            raise setup from error
        if failure == "other":
            raise
        return Unknown("unreachable" if failure == "lost" else "undecided")
    finally:
        link.rollback()
    if seen is None:
        raise missing(link, settings, token.scope)
    epoch, _, lineage = seen
    if lineage != token.lineage:
        raise PinError(f"this token was made elsewhere. scope=`{token.scope}`", scope=token.scope)
    if entry:
        # Somebody took the number. It was us if the nonce is ours.
        ours = str(entry[0][0]).strip() == token.nonce
        return Applied(Pin(token.scope, token.epoch, lineage)) if ours else NotApplied()
    # Nobody has taken it yet, and ours can no more: it would still hold the row.
    return NotApplied() if epoch < token.epoch else Unknown("pruned")


def migrate(link: Link, settings: Settings, existing: str | None, patience_s: float) -> None:
    """Make the tables, unless they are there; then a row for each scope of the query *existing* that has none."""
    statements = settings.statements(link.family)
    if not _is_migrated(link, settings):
        _in_one_go(link, settings, patience_s)
    if existing is not None:
        try:
            link.begin("write")
            link.run(statements.backfill(existing))
            link.commit()
        finally:
            link.rollback()


def _is_migrated(link: Link, settings: Settings) -> bool:
    # Looked at first and altered only if need be: DDL would wait for every open transaction, and all others behind it.
    try:
        link.begin("look")
        for probe in settings.statements(link.family).probes():
            link.run(probe)
    except Exception as error:
        if classify(error) == "unmigrated":
            return False
        raise
    finally:
        link.rollback()
    return True


def _in_one_go(link: Link, settings: Settings, patience_s: float) -> None:
    statements = settings.statements(link.family)
    try:
        link.begin("write")
        for first in (statements.patience(patience_s), statements.alone()):
            if first is not None:
                link.run(first)
        for table in statements.tables():
            link.run(table)
        for probe in statements.probes():
            link.run(probe)
        link.commit()
    except Exception as error:
        failure = classify(error)
        if failure == "unmigrated":
            raise StoreCannotLockError(
                f"something else stands where the fence's tables belong. table=`{settings.table}`, ledger=`{settings.ledger}`",
                hint="move it away, or choose other names: EpochFence(table=..., ledger=...)",
            ) from error
        if failure in ("locked", "cancelled", "lost"):
            raise ScopeLostError(
                f"the migration had to wait too long, and did nothing. patience_s=`{patience_s}`",
                hint="try again",
                retry="same",
            ) from error
        setup = setup_error(error, failure, settings.table)
        if setup is not None:
            raise setup from error
        raise
    finally:
        link.rollback()


def prune(link: Link, settings: Settings, age_s: int) -> int:
    """Forget the commits that are older; how many there were."""
    try:
        link.begin("write")
        count = link.run(settings.statements(link.family).prune(age_s)).rowcount
        link.commit()
    finally:
        link.rollback()
    return count


def unreachable(error: Exception) -> Unknown:
    """The answer of a database that cannot be asked; any other error is raised."""
    if classify(error) != "lost":
        raise error
    return Unknown("unreachable")
