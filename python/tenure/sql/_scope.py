"""
One fenced transaction, from BEGIN to COMMIT. It keeps the verdict: whatever went wrong once stays wrong until the end.

A refusal is no error to a database: an UPDATE that matches no row leaves a transaction that can commit. So the fence comes
first, nothing can be written before it has passed or after anything has failed, and it is never in a savepoint, which
could be undone while the writes go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from tenure.sql._diagnosis import refusal, setup_error
from tenure.sql._errors import CommitUnknownError, FenceError, ScopeLostError
from tenure.sql._failures import answers_commit, classify
from tenure.sql._link import Link
from tenure.sql._pin import CommitToken, Pin, new_random
from tenure.sql._settings import Settings
from tenure.sql._statements import Move, Statement

# What would end the transaction, or start another, behind the fence's back.
_BLANK = r"(?:\s|/\*.*?\*/|--[^\n]*\n)*"
_OURS = re.compile(
    _BLANK + r"(?:begin|start\s+transaction|commit|end|abort|prepare\s+transaction|rollback(?!\s+(?:\w+\s+)?to\b))\b",
    re.IGNORECASE | re.DOTALL,
)
_SAVEPOINT = re.compile(
    r"\s*(savepoint|release(?:\s+savepoint)?|rollback(?:\s+\w+)?\s+to(?:\s+savepoint)?)\s+(\S+)", re.IGNORECASE
)
# Source: MariaDB's manual, "SQL statements that cause an implicit commit".
_COMMITS_ON_MYSQL = re.compile(
    _BLANK + r"(?:create|alter|drop|truncate|rename|grant|revoke|lock\s+tables|analyze|optimize)\b",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one transaction is to do to the counter."""

    settings: Settings
    move: Move
    scope: str
    pin: Pin | None = None
    holder: str | None = None


class Held(Protocol):
    """What a fenced transaction asks of a lease: `tenure.Hold` is one."""

    @property
    def state(self) -> str:
        """`lost`, once somebody has taken over."""

    def check(self) -> None:
        """Raise unless it is still held."""


class Scope:
    """The transaction of *plan* on *link*. Also the watcher of everything that runs on it."""

    def __init__(self, link: Link, plan: Plan) -> None:
        self._link = link
        self._plan = plan
        self._statements = plan.settings.statements(link.family)
        self._state: Literal["new", "opening", "open", "committing", "ended"] = "new"
        self._verdict: BaseException | None = None
        # The savepoints that are open, and how many were when a statement began that has not come to its end. That one
        # has failed, however its error was treated; only what undoes it makes up for it.
        self._savepoints: list[str] = []
        self._failed: int | None = None
        self._written = 0
        self._withdrawn = False
        self.token: CommitToken | None = None
        self.committed: Pin | None = None

    def open(self) -> None:
        """BEGIN, context, lock, fence. Raises, and has rolled back, unless the fence has passed."""
        if self._state != "new":
            self.check()
            raise ScopeLostError("a fenced transaction is entered once", retry="never", scope=self._plan.scope)
        self._state = "opening"
        try:
            self._open()
        except BaseException as error:
            meant = self._fail(error, "the fence")
            if meant is error:
                raise
            raise meant from error
        self._state = "open"
        self._link.watch(self)

    def _open(self) -> None:
        plan, link = self._plan, self._link
        link.begin("write")
        self._before_the_fence()
        token = self._new_token()
        if plan.move == "create":
            link.run(self._statements.make(plan.scope, token.lineage))
        fence = self._statements.advance(plan.move, token, plan.pin, plan.holder)
        epoch = self._statements.passed(link.run_together([*self._preparations(), fence]))
        if epoch is None:
            link.rollback()
            raise refusal(link, plan)
        lineage = token.lineage
        if plan.pin is None:
            found = link.run(self._statements.row(plan.scope)).rows[0]
            lineage = str(found[2])
        self.token = CommitToken(plan.scope, epoch, lineage, token.nonce)

    def _before_the_fence(self) -> None:
        self._plan.settings.call_context(self._link.handle, self._plan.scope)

    def _preparations(self) -> list[Statement]:
        return self._plan.settings.preparations(self._plan.scope)

    def _new_token(self) -> CommitToken:
        pin = self._plan.pin
        return CommitToken(self._plan.scope, 0, pin.lineage if pin else new_random(), new_random())

    def before(self, sql: str) -> None:
        self.check()
        savepoint = _SAVEPOINT.match(sql)
        undoes = savepoint is not None and savepoint[1].lower().startswith("rollback")
        if savepoint is not None and undoes and savepoint[2] in self._savepoints:
            del self._savepoints[self._savepoints.index(savepoint[2]) :]
            if self._failed is not None and self._failed > len(self._savepoints):
                self._failed = None
        if self._failed is not None:
            raise self._die("a statement has failed before this one, so nothing more is written")
        if not self._link.same_backend():
            raise self._die("the connection is no longer the one on which the fence passed")
        standing = self._link.standing()
        if standing == "none":
            raise self._die("the transaction was ended from inside", applied=None)
        if standing == "failed" and not undoes:
            raise self._die("a statement has failed before this one, so nothing more is written")
        if _OURS.match(sql) or (self._link.family == "mysql" and _COMMITS_ON_MYSQL.match(sql)):
            raise self._die(
                f"this statement would end the transaction, which is the fence's to do: `{sql.strip():.40}`"
            )
        if savepoint is not None and savepoint[1].lower() == "savepoint":
            self._savepoints.append(savepoint[2])
        self._failed = len(self._savepoints)
        self._written += 1

    def after(self) -> None:
        self._failed = None

    def ending(self, how: Literal["commit", "rollback"]) -> None:
        if self._state != "open":
            return
        if how == "commit":
            raise self._die("COMMIT is the fence's to send: leave the block instead")
        self._verdict = self._lost("it was rolled back from inside")

    def check(self) -> None:
        """Raise the verdict, if there is one, and for a transaction that is not open."""
        if self._verdict is not None:
            raise self._verdict
        if self._state != "open":
            where = "not been entered" if self._state == "new" else "ended"
            raise ScopeLostError(f"this fenced transaction has {where}", retry="never", scope=self._plan.scope)

    @property
    def alive(self) -> bool:
        """Whether it is open and nothing has gone wrong."""
        return self._state == "open" and self._verdict is None and self._failed is None

    @property
    def took_a_number(self) -> bool:
        """Whether the commit moved the counter."""
        return self.committed is not None and self.committed is not self._plan.pin

    def withdraw(self) -> None:
        """There is nothing to do after all: end without taking a number."""
        self.check()
        self._withdrawn = True

    def commit(self, ask_lease: Callable[[], None] | None = None) -> None:
        """
        COMMIT, or raise. What was swallowed inside is raised here.

        A block that ran nothing takes no number: its pin stays good.
        """
        if self._verdict is None and self._failed is not None:
            self._die("a statement has failed, and its error was swallowed")
        if self._verdict is None and self._state == "open" and self._link.standing() == "failed":
            self._die("a statement has failed, and its error was swallowed")
        if self._verdict is None and self._state == "open" and not self._sound():
            self._die("the transaction was ended from inside", applied=None)
        if self._verdict is not None:
            self._end()
        self.check()
        if self._withdrawn or (self._plan.move == "commit" and not self._written):
            self._end()
            self.committed = self._plan.pin
            return
        try:
            if ask_lease is not None:
                ask_lease()
        except BaseException as error:
            self._verdict = error
            self._end()
            raise
        self._link.watch(None)
        self._enter()
        self._commit()

    def _enter(self) -> None:
        assert self.token is not None
        entry = self._statements.enter(self.token)
        if entry is None:
            return
        try:
            entered = self._link.run(entry).rowcount
        except BaseException as error:
            meant = self._fail(error, "the ledger's entry")
            if meant is error:
                raise
            raise meant from error
        if entered != 1:
            self._die("the transaction was ended from inside, and another one begun", applied=None)
            self._end()
            self.check()

    def _sound(self) -> bool:
        return self._link.same_backend() and self._link.standing() == "open"

    def _commit(self) -> None:
        assert self.token is not None
        self._state = "committing"
        try:
            self._link.commit()
        except BaseException as error:
            # SQLite has answered if it still is in the transaction: it is busy, or its disk is full.
            answered = answers_commit(error) or (self._link.family == "sqlite" and self._link.standing() == "open")
            if answered:
                meant = self._fail(error, "COMMIT")
                if meant is error:
                    raise
                raise meant from error
            self._link.discard()
            self._state = "ended"
            self._verdict = self._unknown("no answer to COMMIT")
            if not isinstance(error, Exception):
                raise
            raise self._verdict from error
        self._state = "ended"
        self.committed = Pin(self.token.scope, self.token.epoch, self.token.lineage)

    def abandon(self, error: BaseException) -> BaseException:
        """The block was left by *error*: roll back. What to raise instead, or *error* itself."""
        if self._state != "open":
            return error
        if self._verdict is None:
            self._verdict = self._meaning(error, "a statement")
            self._end(lost=classify(error) == "lost")
            return self._verdict
        self._end()
        # A driver's error after the verdict is its echo. What the application raised is its own.
        return error if isinstance(error, FenceError) or classify(error) == "other" else self._verdict

    def _fail(self, error: BaseException, what: str) -> BaseException:
        self._verdict = self._meaning(error, what)
        self._end(lost=classify(error) == "lost")
        return self._verdict

    def _meaning(self, error: BaseException, what: str) -> BaseException:
        """*error* as the caller can act on it."""
        if not isinstance(error, Exception) or isinstance(error, FenceError):
            return error
        failure = classify(error)
        opening = self._state == "opening"
        if opening:
            if (setup := setup_error(error, failure, self._statements.table)) is not None:
                return setup
            if failure == "conflict":
                self._link.rollback()
                return refusal(self._link, self._plan)
        if failure in ("conflict", "locked", "deadlock", "cancelled", "aborted", "lost"):
            # Before the fence has passed the pin is as good as it was.
            retry = "same" if opening and failure != "conflict" else "reload"
            words = str(error).splitlines()[0] if str(error) else type(error).__name__
            return ScopeLostError(
                f"{what} failed, and the transaction was rolled back. "
                f"scope=`{self._plan.scope}`, failure=`{failure}`, reason=`{words:.200}`",
                hint="nothing was applied; load again and try again" if retry == "reload" else "try again",
                scope=self._plan.scope,
                retry=retry,
            )
        return error

    def _die(self, words: str, *, applied: bool | None = False) -> FenceError:
        error = self._unknown(words) if applied is None else self._lost(words)
        if self._verdict is None:
            self._verdict = error
        return error

    def _lost(self, words: str) -> ScopeLostError:
        return ScopeLostError(
            f"{words}. scope=`{self._plan.scope}`",
            hint="nothing was applied; load again and try again",
            scope=self._plan.scope,
        )

    def _unknown(self, words: str) -> CommitUnknownError:
        assert self.token is not None
        return CommitUnknownError(
            f"{words}: whether the commit took effect is not known. scope=`{self._plan.scope}`, epoch=`{self.token.epoch}`",
            hint="ask resolve(error.token) before anything else",
            applied=None,
            scope=self._plan.scope,
            token=self.token,
        )

    def _end(self, *, lost: bool = False) -> None:
        if self._state == "ended":
            return
        self._state = "ended"
        if lost:
            self._link.discard()
        else:
            self._link.rollback()
