"""What an application says once about its fence: the tables, the row-level context, the lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tenure.sql._statements import Family, Statement, Statements

Context = Callable[[Any, str], None]


@dataclass(frozen=True, slots=True)
class SetLocal:
    """
    The row-level security context as one PostgreSQL setting, for `EpochFence(context=...)`.

    It is set for the transaction alone and as a statement of its own before the fence: a setting of the connection would
    reach the pooler's next client. It costs no round trip.

    Args:
        setting: its name, such as `app.tenant`.
        value: what to set it to, from the scope's name; the name itself unless told otherwise.

    Example:
        >>> context = SetLocal("app.tenant", lambda scope: scope.partition("/")[0])
    """

    setting: str
    value: Callable[[str], str] = str

    def statement(self, scope: str) -> Statement:
        """The statement that sets it for *scope*."""
        return Statement(
            "SELECT set_config(:setting, :value, TRUE)", {"setting": self.setting, "value": self.value(scope)}
        )


@dataclass(frozen=True, slots=True)
class AdvisoryXactLock:
    """
    A PostgreSQL lock that each fenced transaction takes before the fence, for `EpochFence(lock=...)`.

    Not needed for safety. It makes writers of one scope queue before they look, not at the row. Under REPEATABLE READ it
    does harm: who has waited has an old snapshot, and is refused.
    """

    def statement(self, table: str, scope: str) -> Statement:
        """The statement that takes it for *scope*, until the transaction ends."""
        return Statement("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))", {"key": f"{table} {scope}"})


@dataclass(frozen=True)
class Settings:
    """See `EpochFence`."""

    table: str
    ledger: str
    context: SetLocal | Context | None = None
    lock: AdvisoryXactLock | None = None
    _statements: dict[Family, Statements] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Any family will do: names are checked alike.
        self.statements("sqlite")

    def statements(self, family: Family) -> Statements:
        """The words for a family of databases."""
        if family not in self._statements:
            self._statements[family] = Statements(family, self.table, self.ledger)
        return self._statements[family]

    def check(self, family: Family) -> None:
        """Raise `ValueError` for what only PostgreSQL has."""
        if family != "postgresql" and (isinstance(self.context, SetLocal) or self.lock is not None):
            raise ValueError(f"SetLocal and AdvisoryXactLock are for PostgreSQL, and this is {family}")

    def call_context(self, handle: Any, scope: str) -> None:
        """The application's own context, if it brings a function."""
        if self.context is not None and not isinstance(self.context, SetLocal):
            self.context(handle, scope)

    def preparations(self, scope: str, *, lock: bool = True) -> list[Statement]:
        """What comes before the fence and can be sent together with it, each a statement of its own."""
        context = [self.context.statement(scope)] if isinstance(self.context, SetLocal) else []
        return context + ([self.lock.statement(self.table, scope)] if lock and self.lock is not None else [])
