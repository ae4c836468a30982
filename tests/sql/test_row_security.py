"""Row-level security: a wrong context must not look like a stale writer, and nobody else's scope moves."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from tenure.sql import ContextError, EpochFence, Pin, SetLocal, StaleEpochError
from tests.helpers.servers import STRANGER, SUPERUSER, as_user
from tests.sql.conftest import POOLED, POSTGRESQL
from tests.sql.databases import SCOPE, STORE, Database, Writer

pytestmark = pytest.mark.parametrize("empty", [POSTGRESQL, POOLED], indirect=True)

STRICT = "scope = current_setting('app.scope', TRUE)"
ESCAPE = f"{STRICT} OR coalesce(current_setting('app.scope', TRUE), '') = ''"
OTHER = "doc:43"


def secured(database: Database, policy: str) -> Pin:
    """Policies on the tables of the fence, which bind their owner too; the pin of the document."""
    owner = database.fence()
    owner.create(OTHER)
    pin = Writer(owner).load().pin
    with database.engine().begin() as connection:
        for table in ("tenure_fence", "tenure_commit"):
            for command in (
                f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
                f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
                f"CREATE POLICY own ON {table} USING ({policy})",
            ):
                connection.execute(text(command))
        bypasses = connection.scalar(text("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"))
    assert bypasses is False, "a role that bypasses row-level security would show nothing here"
    return pin


def epochs(database: Database) -> dict[str, int]:
    """As the one sees them whom nothing binds."""
    with database.engine(as_user(SUPERUSER, database.url)).connect() as connection:
        rows = connection.execute(text("SELECT scope, epoch FROM tenure_fence"))
        return {str(row.scope): int(row.epoch) for row in rows}


@pytest.mark.parametrize("policy", [STRICT, ESCAPE])
def test_the_right_context_passes_and_moves_only_its_own_scope(database: Database, policy: str) -> None:
    pin = secured(database, policy)
    fence = database.fence(context=SetLocal("app.scope"))
    with fence.write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
    with pytest.raises(StaleEpochError):
        fence.write(pin).__enter__()
    assert epochs(database) == {SCOPE: 2, OTHER: 1}


@pytest.mark.parametrize("policy", [STRICT, ESCAPE])
def test_a_wrong_context_is_told_from_a_stale_writer(database: Database, policy: str) -> None:
    pin = secured(database, policy)
    fence = database.fence(context=SetLocal("app.scope", lambda _: OTHER))
    with pytest.raises(ContextError) as wrong:
        fence.write(pin).__enter__()
    assert (wrong.value.applied, wrong.value.retry) == (False, "never")
    for call in (lambda: fence.read(SCOPE).__enter__(), lambda: fence.claim(SCOPE), lambda: fence.destroy(pin)):
        with pytest.raises(ContextError):
            call()
    assert epochs(database) == {SCOPE: 1, OTHER: 1}


def test_no_context_at_all_is_a_context_error_under_a_strict_policy(database: Database) -> None:
    pin = secured(database, STRICT)
    with pytest.raises(ContextError):
        database.fence().write(pin).__enter__()
    assert epochs(database) == {SCOPE: 1, OTHER: 1}


def test_no_context_at_all_passes_a_policy_with_an_escape(database: Database) -> None:
    pin = secured(database, ESCAPE)
    with database.fence().write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
    assert epochs(database) == {SCOPE: 2, OTHER: 1}


def test_a_policy_that_wants_a_setting_that_was_never_made_is_a_context_error(database: Database) -> None:
    pin = secured(database, "scope = current_setting('app.never_set')")
    with pytest.raises(ContextError):
        database.fence().write(pin).__enter__()


def test_a_row_that_can_be_seen_and_not_changed_is_a_context_error(database: Database) -> None:
    pin = secured(database, STRICT)
    with database.engine().begin() as connection:
        connection.execute(text("DROP POLICY own ON tenure_fence"))
        connection.execute(text("CREATE POLICY looking ON tenure_fence FOR SELECT USING (TRUE)"))
    with pytest.raises(ContextError, match="can be seen"):
        database.fence().write(pin).__enter__()


def test_a_stranger_is_told_that_he_may_not(database: Database) -> None:
    pin = Writer(database.fence()).load().pin
    with pytest.raises(ContextError, match="permission denied"):
        EpochFence(database.engine(as_user(STRANGER, database.url))).write(pin).__enter__()


def test_a_context_may_be_a_function(database: Database) -> None:
    pin = secured(database, STRICT)

    def context(connection: object, scope: str) -> None:
        connection.execute(text("SELECT set_config('app.scope', :s, TRUE)"), {"s": scope})  # type: ignore[attr-defined]

    fence = database.fence(context=context)
    with fence.write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        token = tx.token
    assert tx.committed_pin is not None
    with fence.read(SCOPE) as snap:
        assert snap.pin == tx.committed_pin
    assert fence.resolve(token).pin == tx.committed_pin  # type: ignore[union-attr]


def test_a_context_leaves_nothing_on_the_connection(database: Database) -> None:
    """After COMMIT, and after a refusal: the pooler's next client must not find it."""
    pin = secured(database, STRICT)
    engine = database.engine(pool_size=1, max_overflow=0)
    fence = EpochFence(engine, context=SetLocal("app.scope"))
    setting = text("SELECT current_setting('app.scope', TRUE)")
    with fence.write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        assert tx.scalar(setting) == SCOPE
    with pytest.raises(StaleEpochError):
        fence.write(pin).__enter__()
    for _ in range(8):
        with engine.connect() as connection:
            assert connection.scalar(setting) in (None, "")
        with database.engine().connect() as connection:
            assert connection.scalar(setting) in (None, "")
