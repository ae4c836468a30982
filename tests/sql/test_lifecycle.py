"""Making, destroying and making anew: the row stays, and the counter never goes back."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from tenure.sql import (
    EpochFence,
    FencedTransaction,
    Pin,
    PinError,
    ScopeExistsError,
    ScopeGoneError,
    StaleEpochError,
)
from tests.sql.databases import INSERT, SCOPE, STORE, Database, Writer

DELETE = text("DELETE FROM doc WHERE id = :id")


def delete(tx: FencedTransaction) -> None:
    tx.execute(DELETE, {"id": SCOPE})


def test_a_destroyed_scope_is_gone_for_whoever_is_warm(database: Database) -> None:
    """Also for one that never wrote."""
    a, b = Writer(database.fence()).load(), Writer(database.fence()).load()
    b.fence.destroy(b.pin, also=delete)
    with pytest.raises(ScopeGoneError):
        a.append("+A")
    with pytest.raises(ScopeGoneError):
        a.load()
    with pytest.raises(ScopeGoneError):
        a.fence.claim(SCOPE)
    with pytest.raises(ScopeGoneError):
        a.fence.destroy(a.pin)
    assert (database.body(), database.epoch()) == (None, 2)


def test_destroying_is_fenced_itself(database: Database) -> None:
    a, b = Writer(database.fence()).load(), Writer(database.fence()).load()
    b.append("+B")
    with pytest.raises(StaleEpochError):
        a.fence.destroy(a.pin, also=delete)
    assert database.body() == "base+B"


def test_a_scope_made_anew_is_above_every_epoch_it_ever_had(database: Database) -> None:
    a = Writer(database.fence()).load()
    old = [a.pin]
    for _ in range(3):
        a.append("+A")
        old.append(a.pin)
    a.fence.destroy(a.pin, also=delete)
    new = database.fence().create(SCOPE, also=lambda tx: tx.execute(INSERT, {"id": SCOPE, "body": "anew"}))
    assert new.epoch > max(pin.epoch for pin in old)
    for pin in [*old, Pin(SCOPE, 0, new.lineage)]:
        with pytest.raises(StaleEpochError):
            database.fence().write(pin).__enter__()
    assert database.body() == "anew"
    Writer(database.fence()).load().append("+B")
    assert database.body() == "anew+B"


def test_what_is_alive_is_not_made_again(database: Database) -> None:
    with pytest.raises(ScopeExistsError):
        database.fence().create(SCOPE)
    assert database.epoch() == 1


def test_what_was_never_made_is_gone(database: Database) -> None:
    with pytest.raises(ScopeGoneError):
        database.fence().read("never").__enter__()
    with pytest.raises(ScopeGoneError):
        database.fence().claim("never")
    with pytest.raises(ScopeGoneError):
        database.fence().write(Pin("never", 0, "0" * 32)).__enter__()
    assert database.epoch("never") is None


def test_the_holder_is_kept_for_people(database: Database) -> None:
    database.fence().claim(SCOPE, holder="build-7/4242")
    with database.engine().connect() as connection:
        holder, at = connection.execute(text("SELECT holder, claimed_at FROM tenure_fence")).one()
    assert holder == "build-7/4242"
    assert at is not None


@pytest.mark.parametrize("name", ["doc:43", "Doc:42", "doc:42x", "döc", "d%c", "doc:42'"])
def test_scopes_are_told_apart_by_every_character(database: Database, name: str) -> None:
    """MariaDB's own collation takes 'Doc' and 'doc' for one."""
    pin = database.fence().create(name)
    with database.fence().write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
    assert (database.epoch(name), database.epoch()) == (2, 1)


# Every way to change a scope, found by looking and not from a list: a new one without a case here fails.

Case = Callable[[EpochFence, Pin, Callable[[FencedTransaction], object] | None], object]


def write(fence: EpochFence, pin: Pin, also: Callable[[FencedTransaction], object] | None) -> None:
    with fence.write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "changed"})
        if also is not None:
            also(tx)


MUTATIONS: dict[str, Case] = {
    "write": write,
    "claim": lambda fence, pin, also: fence.claim(pin.scope, also=also),
    "destroy": lambda fence, pin, also: fence.destroy(pin, also=also),
    "create": lambda fence, pin, also: fence.create("new", also=also),
}
LOOKS = {"migrate", "prune", "publish_deferred", "read", "resolve", "retry"}
"""What changes no scope: each of them is called below, and must move nothing."""


def test_every_public_method_has_a_case() -> None:
    public = {name for name, _ in inspect.getmembers(EpochFence, inspect.isfunction) if not name.startswith("_")}
    assert public == MUTATIONS.keys() | LOOKS


def epochs(database: Database) -> list[Any]:
    with database.engine().connect() as connection:
        return [tuple(row) for row in connection.execute(text("SELECT scope, epoch FROM tenure_fence ORDER BY scope"))]


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_takes_one_number_on_success(database: Database, name: str) -> None:
    pin = Writer(database.fence()).load().pin
    MUTATIONS[name](database.fence(), pin, None)
    assert epochs(database) == ([(SCOPE, 1), ("new", 1)] if name == "create" else [(SCOPE, 2)])


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_takes_no_number_when_it_fails(database: Database, name: str) -> None:
    pin = Writer(database.fence()).load().pin

    def fail(_: FencedTransaction) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        MUTATIONS[name](database.fence(), pin, fail)
    assert epochs(database) == [(SCOPE, 1)]
    assert database.body() == "base"


@pytest.mark.parametrize("name", sorted(MUTATIONS.keys() - {"claim", "create"}))
def test_a_mutation_with_a_stale_pin_never_comes_to_its_statements(database: Database, name: str) -> None:
    pin = Writer(database.fence()).load().pin
    Writer(database.fence()).load().append("+B")
    reached: list[object] = []
    with pytest.raises(StaleEpochError):
        MUTATIONS[name](database.fence(), pin, reached.append)
    assert reached == []
    assert (database.body(), database.epoch()) == ("base+B", 2)


def test_what_only_looks_moves_nothing(database: Database) -> None:
    fence = database.fence()
    pin = Writer(fence).load().pin
    with fence.write(pin) as tx:
        token = tx.token
        tx.withdraw()
    looks: dict[str, Callable[[], object]] = {
        "migrate": fence.migrate,
        "prune": lambda: fence.prune(3600),
        "publish_deferred": fence.publish_deferred,
        "read": lambda: fence.read(SCOPE).__enter__().__exit__(None, None, None),
        "resolve": lambda: fence.resolve(token),
        "retry": fence.retry()(fence.publish_deferred),
    }
    assert looks.keys() == LOOKS
    for look in looks.values():
        look()
    assert epochs(database) == [(SCOPE, 1)]


def test_what_is_written_in_a_load_is_not_kept(database: Database) -> None:
    from sqlalchemy.exc import SQLAlchemyError

    with database.fence().read(SCOPE) as snap:
        try:
            snap.execute(STORE, {"id": SCOPE, "body": "x"})
        except SQLAlchemyError:
            # Some databases refuse it at once.
            pass
    assert database.body() == "base"


def test_a_scope_s_name_is_checked_before_the_database_is_asked(database: Database) -> None:
    for call in (database.fence().read, database.fence().claim, database.fence().create):
        with pytest.raises(PinError):
            call("")
