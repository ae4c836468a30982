"""What every form of the fence can do, whatever it runs on."""

from __future__ import annotations

import contextlib
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from tenure._clock import Clock, SystemClock
from tenure.sql import _operations
from tenure.sql._errors import FenceError, LeaseLostAppliedError, PublishFailedError
from tenure.sql._link import Link
from tenure.sql._operations import Resolution
from tenure.sql._pin import CommitToken, Pin, check_pin, check_scope
from tenure.sql._publishing import Deferred, Notice, Publish
from tenure.sql._retrying import Attempts, record, recording
from tenure.sql._scope import Held, Plan
from tenure.sql._settings import Settings
from tenure.sql._statements import Move

P = ParamSpec("P")
T = TypeVar("T")
In = TypeVar("In")
"""What a block has of its transaction: the transaction itself, or a cursor."""


class Transaction(Protocol):
    """What a fenced transaction has, whatever it runs on."""

    committed_pin: Pin | None

    def __enter__(self) -> Any:
        """BEGIN and the fence."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """COMMIT, or roll back."""


Tx = TypeVar("Tx", bound=Transaction)


class Fence(ABC, Generic[Tx, In]):
    """See `EpochFence`."""

    def __init__(self, settings: Settings, publish: Publish | None, clock: Clock | None) -> None:
        self._settings = settings
        self._publish = publish
        self._deferred = Deferred()
        self._clock = clock or SystemClock()

    @abstractmethod
    def _link(self) -> AbstractContextManager[Link]:
        """A connection for one operation."""

    @abstractmethod
    def _transaction(self, plan: Plan, hold: Held | None) -> Tx:
        """A transaction that will begin with the fence of *plan*."""

    def migrate(self, *, existing: str | None = None, patience: float = 10.0) -> None:
        """
        Make the fence's tables where they are missing. Call it at boot, from every process and through a pooler if need be.

        Where they are as they should be it only looks, so it waits for no open writer and none waits for it. Otherwise one
        transaction makes them; on MySQL and MariaDB, where DDL commits, each table by itself. No table of yours is touched.

        Args:
            existing: a query whose column `scope` names the scopes that there are already, as in
                `SELECT 'doc:' || id AS scope FROM doc`; each that has no row yet gets one. SQL, not user input.
            patience: seconds to wait for somebody else's migration.

        Raises:
            ScopeLostError: it had to wait too long; nothing was done.
            StoreCannotLockError: something else has one of the names.
        """
        with self._link() as link:
            _operations.migrate(link, self._settings, existing, patience)

    def write(self, pin: Pin, *, hold: Held | None = None) -> Tx:
        """
        Write within its block, in one transaction that begins with the fence. Keep it short: others wait for the row.

        Args:
            pin: of the load that the write is based on.
            hold: a lease that is asked once more before COMMIT.

        Raises, when entered:
            StaleEpochError: somebody has committed or claimed since the load.
            ScopeGoneError: the scope was destroyed.
            ContextError: row-level security hides it. This is not a stale writer.
            PinError: the pin is from elsewhere.
            ScopeLostError: the database failed before the fence passed; the pin may still be good.
            StoreCannotLockError: autocommit, a read replica, or no `migrate`.

        Raises, when left:
            ScopeLostError: rolled back, also for an error that the block swallowed.
            FencedError: the lease *hold* was lost before COMMIT; rolled back.
            CommitUnknownError: no answer to COMMIT; see `resolve`.
            PublishFailedError, LeaseLostAppliedError: it did commit.
        """
        return self._transaction(Plan(self._settings, "commit", check_pin(pin).scope, pin), hold)

    def claim(self, scope: str, *, holder: str | None = None, also: Callable[[In], object] | None = None) -> Pin:
        """
        Take the scope over: from now on every earlier pin is refused, even before this writer writes. For lease holders.

        Args:
            scope: must exist.
            holder: kept in the row, for people.
            also: what to do in the same transaction.

        Raises:
            As `write`, without those about a pin.
        """
        check_scope(scope)
        return self._at_once("claim", scope, None, holder, also)

    def create(self, scope: str, *, also: Callable[[In], object] | None = None) -> Pin:
        """
        Make a scope, or make one that was destroyed anew: above every epoch that it ever had.

        Raises:
            ScopeExistsError: it is alive.
        """
        check_scope(scope)
        return self._at_once("create", scope, None, None, also)

    def destroy(self, pin: Pin, *, also: Callable[[In], object] | None = None) -> None:
        """
        Destroy a scope: refused like any write, and from then on everybody's next load and write is. The row stays.

        Args:
            pin: of the load on which the decision was based.
            also: what to do in the same transaction, such as deleting the data.

        Raises:
            As `write`.
        """
        self._at_once("destroy", check_pin(pin).scope, pin, None, also)

    def resolve(self, token: CommitToken, timeout: float = 10.0) -> Resolution:
        """
        Whether the commit that *token* names took effect. It waits for a transaction that is still undecided.

        Args:
            token: of a `CommitUnknownError`.
            timeout: seconds to wait at most.

        Returns:
            `Applied` with the pin for what follows, `NotApplied` (it may be repeated), or `Unknown`: ask again.
        """
        if not timeout >= 0:
            raise ValueError(f"timeout must be 0 or more seconds, not {timeout!r}")
        with contextlib.ExitStack() as stack:
            try:
                link = stack.enter_context(self._link())
            except Exception as error:  # noqa: BLE001  what is not about the connection is raised again
                return _operations.unreachable(error)
            return _operations.resolve(link, self._settings, token, timeout)

    def retry(
        self, *, tries: int = 5, pause: float = 0.02, longest: float = 1.0
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """
        Run a function again that loads *and* writes, as long as nothing was applied: for a stale pin, a lost transaction.

        Never after `CommitUnknownError`, nor when an earlier transaction of the same call has committed.

        Args:
            tries: calls at most.
            pause: seconds; the limit of the first pause, which doubles each time.
            longest: seconds; the limit of all pauses.

        Example:
            >>> from sqlalchemy import create_engine, text
            >>> fence = EpochFence(create_engine("sqlite://"))
            >>> @fence.retry(tries=5)
            ... def append(tail): ...
        """

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            @functools.wraps(function)
            def retrying(*args: P.args, **kwargs: P.kwargs) -> T:
                attempts = Attempts(tries, pause, longest)
                while True:
                    applied: list[Pin] = []
                    try:
                        with recording(applied):
                            return function(*args, **kwargs)
                    except FenceError as error:
                        seconds = attempts.pause(error, applied)
                        if seconds is None:
                            raise
                    self._clock.sleep(seconds)

            return retrying

        return decorate

    def publish_deferred(self) -> int:
        """Publish again what could not be published; how many notices are still left."""
        for notice in self._deferred.all():
            self._tell(notice)
        return len(self._deferred.all())

    def prune(self, older_than: float) -> int:
        """
        Forget commits that are older than *older_than* seconds, by the database's clock; how many. Scopes are never forgotten.

        `resolve` answers `Unknown` for those, so keep the ledger longer than anybody keeps a token.
        """
        if not older_than >= 0:
            raise ValueError(f"older_than must be 0 or more seconds, not {older_than!r}")
        with self._link() as link:
            return _operations.prune(link, self._settings, int(older_than))

    def _at_once(
        self, move: Move, scope: str, pin: Pin | None, holder: str | None, also: Callable[[In], object] | None
    ) -> Pin:
        transaction = self._transaction(Plan(self._settings, move, scope, pin, holder), None)
        with transaction as entered:
            if also is not None:
                also(entered)
        assert transaction.committed_pin is not None
        return transaction.committed_pin

    def _finish(self, pin: Pin, plan: Plan, hold: Held | None) -> None:
        record(pin)
        notice = Notice(pin.scope, pin.epoch, gone=plan.move == "destroy")
        failed = self._tell(notice)
        if failed is not None:
            raise publish_failed(notice) from failed
        if hold is not None and hold.state == "lost":
            raise lease_lost(pin)

    def _tell(self, notice: Notice) -> Exception | None:
        if self._publish is None:
            return None
        try:
            self._publish(notice)
        except Exception as error:  # noqa: BLE001  whatever it is, the commit has happened
            self._deferred.keep(notice)
            return error
        self._deferred.done(notice)
        return None


def publish_failed(notice: Notice) -> PublishFailedError:
    """It did commit, and nobody was told."""
    return PublishFailedError(
        f"committed, but publishing it failed. scope=`{notice.scope}`, epoch=`{notice.epoch}`",
        hint="do not repeat the write; publish_deferred() tells others later",
        applied=True,
        scope=notice.scope,
    )


def lease_lost(pin: Pin) -> LeaseLostAppliedError:
    """It did commit, in the last moment."""
    return LeaseLostAppliedError(
        f"committed, and the lease was lost meanwhile. scope=`{pin.scope}`, epoch=`{pin.epoch}`",
        hint="do not repeat the write, and start nothing new without the lease",
        applied=True,
        scope=pin.scope,
    )
