"""A datastore on a real disk, with checkouts; and no memory of its lease for the next test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure import Checkout, Datastore


@pytest.fixture(autouse=True)
def _remember_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_CACHE", "")


@pytest.fixture
def datastore(tmp_path: Path) -> Datastore:
    return Datastore.create(tmp_path / "data")


@pytest.fixture
def checkout_at(datastore: Datastore, tmp_path: Path) -> Iterator[Callable[[str], Checkout]]:
    """A checkout by its name."""
    made: list[Checkout] = []

    def make(name: str) -> Checkout:
        made.append(datastore.checkout(tmp_path / name))
        return made[-1]

    yield make
    for checkout in made:
        checkout.close()


@pytest.fixture
def checkout(checkout_at: Callable[[str], Checkout]) -> Checkout:
    return checkout_at("checkout")
