"""Stores on a fake bucket, for tests: short of patience, and proven already where the proof is not what is tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure._store import _object_probe
from tenure._store._object import ObjectStore
from tests.helpers import object_server
from tests.helpers.object_dialects import Dialect
from tests.helpers.object_server import DIALECTS, ObjectServer

# An attempt; an operation has twice that.
PATIENCE_S = 0.8
PREFIX = "team/store/"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in object_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=DIALECTS)
def server(request: pytest.FixtureRequest) -> Iterator[ObjectServer]:
    dialect: Dialect = request.param
    with ObjectServer(dialect) as made:
        yield made


def opened(server: ObjectServer, *, proven: bool = True, patience_s: float = PATIENCE_S) -> ObjectStore:
    """The store below `PREFIX`, as somebody else would open it each time."""
    store = ObjectStore.at(f"{server.url()}&timeout={patience_s}")
    if proven:
        _object_probe._proven.add(store.url)
    return store
