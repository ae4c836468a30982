"""Pins, tokens and scope names: what is taken, and what is refused before it reaches a database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.sql import CommitToken, Pin, PinError
from tenure.sql._pin import MAX_EPOCH, check_scope
from tests.sql.conftest import SQLITE
from tests.sql.databases import SCOPE, Database, Writer

LINEAGE, NONCE = "0123456789abcdef" * 2, "f" * 32


@pytest.mark.parametrize("epoch", [-1, -(2**63), MAX_EPOCH, 2**63, 2**64, True, 1.0, "1", None])
def test_an_epoch_is_a_number_that_can_still_grow(epoch: object) -> None:
    with pytest.raises(PinError):
        Pin("doc:42", epoch, LINEAGE)  # type: ignore[arg-type]


@pytest.mark.parametrize("scope", ["", " a", "a ", "a\n", "a\0b", "x" * 201, "\ud800", "a\u200bb", None, 7, b"a"])
def test_a_scope_that_two_databases_would_not_read_alike_is_refused(scope: object) -> None:
    with pytest.raises(PinError):
        check_scope(scope)


@pytest.mark.parametrize("lineage", ["", "0" * 31, "0" * 33, "G" * 32, "A" * 32, None])
def test_a_lineage_is_32_digits(lineage: object) -> None:
    with pytest.raises(PinError):
        Pin("doc:42", 1, lineage)  # type: ignore[arg-type]


def test_a_pin_and_a_token_survive_the_trip_through_text() -> None:
    pin = Pin("doc.42: a.b 'c'", 7, LINEAGE)
    assert Pin.decode(pin.encode()) == pin
    token = CommitToken("doc.42: a.b 'c'", 7, LINEAGE, NONCE)
    assert CommitToken.decode(token.encode()) == token


@given(st.text() | st.none() | st.binary())
def test_any_other_text_is_refused(text: object) -> None:
    for kind in (Pin, CommitToken):
        try:
            made = kind.decode(text)  # type: ignore[arg-type]
        except PinError:
            continue
        assert made.encode() == text


@pytest.mark.parametrize("number", ["-1", "+1", " 1", "1_0", "\u0661", "1" * 20, "9223372036854775807"])
def test_a_number_in_a_text_is_plain_digits_in_range(number: str) -> None:
    with pytest.raises(PinError):
        Pin.decode(f"{number}.{LINEAGE}.doc:42")


@pytest.mark.parametrize("empty", [SQLITE], indirect=True)
def test_a_number_is_no_pin(database: Database) -> None:
    with pytest.raises(TypeError, match="a pin comes from"):
        database.fence().write(1)  # type: ignore[arg-type]


def test_a_pin_from_elsewhere_is_refused_although_scope_and_number_fit(database: Database) -> None:
    pin = Writer(database.fence()).load().pin
    foreign = Pin(pin.scope, pin.epoch, LINEAGE)
    with pytest.raises(PinError, match="made elsewhere"):
        database.fence().write(foreign).__enter__()
    assert database.epoch() == pin.epoch


def test_a_pin_that_is_ahead_of_the_database_is_refused_and_says_why(database: Database) -> None:
    """As after a restore from a backup."""
    from tenure.sql import StaleEpochError

    pin = Writer(database.fence()).load().pin
    with pytest.raises(StaleEpochError, match="older than the pin"):
        database.fence().write(Pin(SCOPE, pin.epoch + 5, pin.lineage)).__enter__()


def test_the_counter_ends_with_an_error_and_not_with_a_wrap(database: Database) -> None:
    from sqlalchemy import text

    from tenure.sql import FenceError

    with database.engine().begin() as connection:
        connection.execute(text("UPDATE tenure_fence SET epoch = :e"), {"e": MAX_EPOCH - 2})
    writer = Writer(database.fence()).load()
    writer.pin = writer.fence.claim(SCOPE)
    assert writer.pin.epoch == MAX_EPOCH - 1
    with pytest.raises(PinError):
        Writer(database.fence()).fence.claim(SCOPE)
    assert database.epoch() == MAX_EPOCH - 1
    with pytest.raises(FenceError):
        writer.append("x")
    assert database.body() == "base"
