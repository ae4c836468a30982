"""
Half-right fences, each of which somebody has shipped or nearly shipped; and the test that goes red for each.

The fence is broken at its seams, `Statements` and `Scope`, and the named test is then called as it stands. It must fail by
itself: a test that goes green over a broken fence protects nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import text

from tenure.sql import Applied, Pin, StaleEpochError, _operations, _scope
from tenure.sql._diagnosis import refusal
from tenure.sql._link import Link
from tenure.sql._operations import snapshot
from tenure.sql._scope import Plan, Scope
from tenure.sql._settings import SetLocal
from tenure.sql._statements import Statement, Statements
from tenure.sql._transaction import Snapshot
from tests.helpers.proxy import Proxy
from tests.sql import test_isolation, test_lifecycle, test_lost_update, test_row_security, test_unknown, test_verdict
from tests.sql.conftest import MARIADB, POOLED, POSTGRESQL, SQLITE
from tests.sql.databases import LOAD, SCOPE, STORE, Database, Writer
from tests.sql.recording import recorded

Break = Callable[[pytest.MonkeyPatch], None]


def rewritten(monkeypatch: pytest.MonkeyPatch, rewrite: Callable[[str], str], *moves: str) -> None:
    """The fence's statement, as *rewrite* would have it."""
    right = Statements.advance

    def advance(self: Statements, move: Any, *args: Any, **kwargs: Any) -> Statement:
        made = right(self, move, *args, **kwargs)
        return Statement(rewrite(made.sql), made.params) if not moves or move in moves else made

    monkeypatch.setattr(Statements, "advance", advance)


def no_test_of_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten(monkeypatch, lambda sql: sql.replace("epoch = :epoch AND ", ""))


def no_row_is_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Statements.passed
    monkeypatch.setattr(Statements, "passed", lambda self, outcome: right(self, outcome) or 2)
    monkeypatch.setattr(Statements, "enter", lambda self, token: None)


def the_epoch_is_read_and_not_tested_on_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the lock in the same statement: its snapshot is from before the wait, and the update re-checks nothing."""

    def advance(self: Statements, move: Any, token: Any, pin: Any = None, holder: Any = None) -> Statement:
        return Statement(
            f"WITH seen AS (SELECT pg_advisory_xact_lock(42), epoch FROM {self._fence} WHERE scope = :scope AND epoch = :epoch), "
            f"moved AS (UPDATE {self._fence} AS f SET epoch = f.epoch + 1 FROM seen WHERE f.scope = :scope RETURNING f.epoch) "
            "SELECT epoch FROM moved",
            {"scope": token.scope, "epoch": pin.epoch},
        )

    monkeypatch.setattr(Statements, "advance", advance)


def the_fence_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin_only(self: Scope) -> None:
        self._link.begin("write")
        self.token = self._new_token()

    def commit(self: Scope, ask_lease: Any = None) -> None:
        self._link.watch(None)
        assert self.token is not None
        fence = self._statements.advance(self._plan.move, self.token, self._plan.pin)
        if self._statements.passed(self._link.run(fence)) is None:
            self._link.rollback()
            raise refusal(self._link, self._plan)
        self._link.commit()
        self._state = "ended"

    monkeypatch.setattr(Scope, "_open", begin_only)
    # Where nothing has begun yet there is no transaction to be seen.
    monkeypatch.setattr(Scope, "before", lambda self, sql: None)
    monkeypatch.setattr(Scope, "commit", commit)


def the_fence_is_in_a_savepoint(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Scope._open

    def in_a_savepoint(self: Scope) -> None:
        begin = self._link.begin

        def begin_and_save(mode: Any) -> None:
            begin(mode)
            self._link.run(Statement("SAVEPOINT fence"))

        monkeypatch.setattr(self._link, "begin", begin_and_save)
        opened(self)

    monkeypatch.setattr(Scope, "_open", in_a_savepoint)


def nothing_sticks(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(self: Scope, ask_lease: Any = None) -> None:
        self._link.watch(None)
        self._enter()
        self._commit()

    monkeypatch.setattr(Scope, "before", lambda self, sql: None)
    monkeypatch.setattr(Scope, "commit", commit)


def without_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key would refuse a number that is given out twice, and hide what is wrong."""
    rewritten(
        monkeypatch,
        lambda sql: sql.replace(
            "SELECT scope, epoch, :nonce FROM fence", "SELECT CAST(random() AS TEXT), epoch, :nonce FROM fence"
        ),
    )
    monkeypatch.setattr(Statements, "enter", lambda self, token: None)


def to_make_anew_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten(monkeypatch, lambda sql: re.sub(r"epoch = (LAST_INSERT_ID\()?epoch \+ 1", _one, sql), "create")
    without_the_ledger(monkeypatch)


def _one(found: re.Match[str]) -> str:
    return f"epoch = {found[1] or ''}1"


def the_pin_is_read_after_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree first and the epoch afterwards, in another transaction."""

    def pin(self: Snapshot) -> Pin:
        with self._engine.connect() as connection:
            from tenure.sql._alchemy import SqlAlchemyLink

            link = SqlAlchemyLink(connection)
            found = snapshot(link, self._settings, self._name)
            link.rollback()
        return found

    monkeypatch.setattr(Snapshot, "pin", property(pin, lambda self, value: None), raising=False)


def to_destroy_deletes_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Scope._enter

    def entered(self: Scope) -> None:
        right(self)
        if self._plan.move == "destroy":
            self._link.run(
                Statement(f"DELETE FROM {self._statements._fence} WHERE scope = :scope", {"scope": self._plan.scope})
            )

    monkeypatch.setattr(Scope, "_enter", entered)
    without_the_ledger(monkeypatch)


def the_resolver_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Statements.row
    monkeypatch.setattr(Statements, "row", lambda self, scope, **_: right(self, scope))


def the_resolver_goes_by_the_epoch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _operations.resolve

    def resolve(link: Link, settings: Any, token: Any, timeout: float) -> Any:
        right(link, settings, token, timeout)
        pin = snapshot(link, settings, token.scope)
        link.rollback()
        return Applied(pin) if pin.epoch >= token.epoch else _operations.NotApplied()

    monkeypatch.setattr(_operations, "resolve", resolve)


def no_row_is_always_a_stale_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(link: Link, plan: Plan) -> StaleEpochError:
        return StaleEpochError("stale", ours=1, current=2)

    monkeypatch.setattr(_scope, "refusal", stale)


def the_context_is_the_connection_s(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SetLocal.statement

    def statement(self: SetLocal, scope: str) -> Statement:
        made = right(self, scope)
        return Statement(made.sql.replace("TRUE", "FALSE"), made.params)

    monkeypatch.setattr(SetLocal, "statement", statement)


# The tests that go red. Two are played here, since there they are parametrized in their own way.


def the_order_of_statements(database: Database) -> None:
    with recorded(database) as (engine, said):
        fence = database.fence(engine=engine)
        pin = Writer(fence).load().pin
        said.forget()
        with fence.write(pin) as tx:
            tx.execute(STORE, {"id": SCOPE, "body": "x"})
        told = [word for word in said.told() if not word.startswith(("BEGIN", "START"))]
    assert told[0] == "UPDATE tenure_fence", told


def a_peer_commits_within_the_load(database: Database) -> None:
    a = Writer(database.fence())
    with a.fence.read(SCOPE) as snap:
        a.body = snap.scalar(LOAD, {"id": SCOPE})
        Writer(database.fence()).load().append("+B")
        a.pin = snap.pin
    with pytest.raises(StaleEpochError):
        a.append("+A")
    assert database.body() == "base+B"


def an_unknown_commit_and_then_another_one(database: Database) -> None:
    with Proxy(database.port) as proxy:
        test_unknown.test_whoever_comes_after_does_not_make_an_unknown_commit_look_applied(database, proxy)


def the_overlap(database: Database) -> None:
    test_isolation.test_a_stale_writer_that_waited_for_the_row_is_refused(database, "READ COMMITTED")


def a_wrong_context(database: Database) -> None:
    test_row_security.test_a_wrong_context_is_told_from_a_stale_writer(database, test_row_security.STRICT)


def unreachable(database: Database) -> None:
    test_lifecycle.test_a_mutation_with_a_stale_pin_never_comes_to_its_statements(database, "write")


EVERY = [SQLITE, POSTGRESQL, MARIADB]
BROKEN: list[tuple[Break, Callable[[Database], None], Sequence[Any]]] = [
    (no_test_of_the_epoch, test_lost_update.test_the_refusal_moves_nothing_and_both_see_the_same_afterwards, EVERY),
    (no_row_is_a_success, test_lost_update.test_the_refusal_moves_nothing_and_both_see_the_same_afterwards, EVERY),
    (the_epoch_is_read_and_not_tested_on_the_update, the_overlap, [POSTGRESQL]),
    (the_fence_comes_last, the_order_of_statements, EVERY),
    (the_fence_comes_last, unreachable, EVERY),
    (the_fence_is_in_a_savepoint, the_order_of_statements, EVERY),
    (nothing_sticks, test_verdict.test_an_error_that_the_program_swallows_is_raised_at_the_end, EVERY),
    (nothing_sticks, test_verdict.test_after_an_error_nothing_more_is_written, [SQLITE, MARIADB]),
    (to_make_anew_starts_again, test_lifecycle.test_a_scope_made_anew_is_above_every_epoch_it_ever_had, EVERY),
    (to_destroy_deletes_the_row, test_lifecycle.test_a_scope_made_anew_is_above_every_epoch_it_ever_had, EVERY),
    (the_pin_is_read_after_the_load, a_peer_commits_within_the_load, EVERY),
    (
        the_resolver_does_not_wait,
        test_unknown.test_while_it_is_undecided_the_answer_is_unknown_and_not_no,
        [POSTGRESQL, MARIADB],
    ),
    (the_resolver_goes_by_the_epoch_alone, an_unknown_commit_and_then_another_one, [POSTGRESQL, MARIADB]),
    (no_row_is_always_a_stale_writer, a_wrong_context, [POSTGRESQL]),
    (
        the_context_is_the_connection_s,
        test_row_security.test_a_context_leaves_nothing_on_the_connection,
        [POSTGRESQL, POOLED],
    ),
]


def _case(broken: Break, red: Callable[[Database], None], kind: Any) -> Any:
    return pytest.param(
        kind.values[0], broken, red, marks=kind.marks, id=f"{broken.__name__}-{red.__name__}-{kind.values[0]}"
    )


@pytest.mark.parametrize(
    ("empty", "broken", "red"),
    [_case(broken, red, kind) for broken, red, kinds in BROKEN for kind in kinds],
    indirect=["empty"],
)
def test_a_half_right_fence_turns_a_test_red(
    database: Database, broken: Break, red: Callable[[Database], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    # What a failed assertion raises, what `pytest.raises` does when nothing was raised, and a verdict that is not true.
    with pytest.raises((AssertionError, pytest.fail.Exception, StaleEpochError)):
        red(database)


@pytest.mark.parametrize("empty", EVERY, indirect=True)
@pytest.mark.parametrize("red", [the_order_of_statements, a_peer_commits_within_the_load, unreachable])
def test_over_a_whole_fence_they_are_green(database: Database, red: Callable[[Database], None]) -> None:
    red(database)


# For a write of one statement PostgreSQL can do it all at once.

GATED = """
    WITH fence AS (
        UPDATE tenure_fence SET epoch = epoch + 1 WHERE scope = :scope AND epoch = :epoch AND live RETURNING scope, epoch
    ), ledger AS (
        INSERT INTO tenure_commit (scope, epoch, nonce) SELECT scope, epoch, :nonce FROM fence
    ), displaced AS (
        DELETE FROM doc USING fence WHERE doc.id = fence.scope RETURNING doc.id
    ), stored AS (
        INSERT INTO doc (id, body) SELECT fence.scope || '-new', :body FROM fence, displaced
    )
    SELECT epoch FROM fence
"""


@pytest.mark.parametrize("empty", [POSTGRESQL, POOLED], indirect=True)
def test_one_statement_whose_branches_all_select_from_the_fence_writes_nothing_for_a_stale_writer(
    database: Database,
) -> None:
    """Whoever commits anyway has changed nothing, not even by the branch that deletes."""
    pin = Writer(database.fence()).load().pin
    Writer(database.fence()).load().append("+B")
    values = {"scope": SCOPE, "epoch": pin.epoch, "nonce": "f" * 32, "body": "base+A"}
    with database.engine().begin() as connection:
        assert connection.execute(text(GATED), values).all() == []
    assert (database.body(), database.body(f"{SCOPE}-new"), database.epoch()) == ("base+B", None, 2)
    with database.engine().begin() as connection:
        assert connection.execute(text(GATED), {**values, "epoch": 2}).all() == [(3,)]
    assert (database.body(), database.body(f"{SCOPE}-new"), database.epoch()) == (None, "base+A", 3)
