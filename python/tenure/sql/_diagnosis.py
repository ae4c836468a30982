"""Why no row matched, asked in a transaction of its own: stale, gone, hidden and foreign look alike to an UPDATE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenure.errors import Error, StoreCannotLockError
from tenure.sql._errors import (
    ContextError,
    FenceError,
    PinError,
    ScopeExistsError,
    ScopeGoneError,
    ScopeLostError,
    StaleEpochError,
)
from tenure.sql._failures import Failure
from tenure.sql._link import Link
from tenure.sql._pin import MAX_EPOCH
from tenure.sql._settings import Settings
from tenure.sql._statements import Statement

if TYPE_CHECKING:
    from tenure.sql._scope import Plan


def refusal(link: Link, plan: Plan) -> FenceError:
    """Why the fence refused *plan*. In a new transaction: the old one may be failed, or still show an old snapshot."""
    scope, pin = plan.scope, plan.pin
    row = look(link, plan.settings, scope)
    if row is None:
        return missing(link, plan.settings, scope)
    epoch, live, lineage = row
    if pin is not None and lineage != pin.lineage:
        return PinError(
            f"this pin was made elsewhere: another table, another database, or before this one was made anew. scope=`{scope}`",
            hint="load again from this database",
            scope=scope,
        )
    if plan.move == "create":
        if live:
            return ScopeExistsError(
                f"the scope is alive already. scope=`{scope}`, epoch=`{epoch}`", hint="read it", scope=scope
            )
    elif not live:
        return gone(scope)
    if epoch >= MAX_EPOCH - 1:
        return FenceError(f"the scope's counter is at its end. scope=`{scope}`, epoch=`{epoch}`", scope=scope)
    if pin is not None and epoch != pin.epoch:
        older = "; the database is older than the pin, as after a restore" if epoch < pin.epoch else ""
        return StaleEpochError(
            f"somebody has committed since the data was loaded{older}. scope=`{scope}`, ours=`{pin.epoch}`, current=`{epoch}`",
            hint="nothing was applied; load again, and repeat the change on what is there now",
            scope=scope,
            ours=pin.epoch,
            current=epoch,
        )
    if link.family == "postgresql":
        return ContextError(
            f"the scope's row can be seen and fits, but not be changed. scope=`{scope}`, table=`{plan.settings.table}`",
            hint="look at the UPDATE policies and the triggers of the table",
            scope=scope,
        )
    return ScopeLostError(f"the scope's row was changed and is as before. scope=`{scope}`", retry="reload", scope=scope)


def look(link: Link, settings: Settings, scope: str) -> tuple[int, bool, str] | None:
    """The scope's row as it is now."""
    try:
        link.begin("look")
        settings.call_context(link.handle, scope)
        statement = settings.statements(link.family).row(scope)
        return found(link.run_together([*settings.preparations(scope, lock=False), statement]).rows)
    finally:
        link.rollback()


def found(rows: Sequence[Sequence[Any]]) -> tuple[int, bool, str] | None:
    """A row as it came from a driver: SQLite has no booleans, and CHAR may come with spaces."""
    if not rows:
        return None
    epoch, live, lineage = rows[0]
    return int(epoch), bool(live), str(lineage).strip()


def missing(link: Link, settings: Settings, scope: str) -> FenceError:
    """There is no row to be seen: is there none, or is it hidden?"""
    if link.family == "postgresql" and _hidden(link, settings.table):
        return ContextError(
            f"no row of the scope can be seen, and row-level security is on. scope=`{scope}`, table=`{settings.table}`",
            hint="set the context that the policies ask for (EpochFence(context=...)), or create the scope",
            scope=scope,
        )
    return gone(scope)


def _hidden(link: Link, table: str) -> bool:
    try:
        link.begin("look")
        # False for whoever bypasses it. Source: PostgreSQL's manual, "System Information Functions".
        rows = link.run(
            Statement("SELECT row_security_active(CAST(:table AS TEXT))", {"table": _as_regclass(table)})
        ).rows
        return bool(rows[0][0])
    finally:
        link.rollback()


def _as_regclass(table: str) -> str:
    return ".".join(f'"{part}"' for part in table.split("."))


def gone(scope: str) -> ScopeGoneError:
    """Destroyed, or never made: for whoever holds a pin or a copy it comes to the same."""
    return ScopeGoneError(
        f"the scope was destroyed, or never made. scope=`{scope}`", hint="drop what was loaded of it", scope=scope
    )


def setup_error(error: BaseException, failure: Failure, table: str) -> Error | None:
    """*error*, if it is about how the database was set up and not about this write."""
    if failure == "unmigrated":
        return StoreCannotLockError(
            f"the fence's tables are missing, or older than this version. table=`{table}`, reason=`{_first_line(error)}`",
            hint="call EpochFence.migrate() once per deployment; it is safe from every process at boot",
        )
    if failure == "replica":
        return StoreCannotLockError(
            f"this database takes no writes: a read replica, or set to read-only. reason=`{_first_line(error)}`",
            hint="give the fence an engine on the primary; loads may come from a replica, with their pin",
        )
    if failure == "hidden":
        return ContextError(
            f"the database does not let this role at the fence. table=`{table}`, reason=`{_first_line(error)}`",
            hint="grant SELECT, INSERT and UPDATE on the fence's tables, and set the context that the policies ask for",
        )
    return None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
