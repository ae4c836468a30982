"""Stores and clocks that misbehave in the ways that tests of the lease need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tenure._lease import _keys
from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore
from tenure.errors import StoreUnavailableError
from tenure.stores import Created, Stored
from tenure.testing import ManualClock

# The pulse runs on real time; no test here lasts a third of this.
LONG = 3600.0


class RemoteStore:
    """What processes share and what is no directory to them, as a bucket or a database: the five operations alone."""

    def __init__(self, root: str | Path) -> None:
        self._inside = FileStore(root)
        self.url = f"remote:{root}"

    def create(self, key: str, data: bytes) -> Created:
        return self._inside.create(key, data)

    def read(self, key: str, *, durable: bool = False) -> Stored | None:
        return self._inside.read(key, durable=durable)

    def replace(self, key: str, data: bytes, version: str) -> str | None:
        return self._inside.replace(key, data, version)

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        return self._inside.list(prefix, after)

    def delete(self, key: str) -> None:
        self._inside.delete(key)


class LateStore(MemoryStore):
    """A store to which one replace arrives late: refused for now, applied just before the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.delay_next = False
        self._late: tuple[str, bytes, str] | None = None

    def replace(self, key: str, data: bytes, version: str) -> str | None:
        if self.delay_next:
            self.delay_next, self._late = False, (key, data, version)
            raise StoreUnavailableError("no answer; the request is still on its way", applied=None)
        if self._late is not None:
            late, self._late = self._late, None
            super().replace(*late)
        return super().replace(key, data, version)


class TickingClock(ManualClock):
    """A clock that goes on by *tick* each time it is read, as real ones do."""

    def __init__(self, tick: float) -> None:
        super().__init__()
        self.tick = tick

    def awake(self) -> float:
        self.advance(self.tick)
        return super().awake()


class LyingWall(ManualClock):
    """A clock whose time of day is whatever *says* answers; its monotonic times are those of a manual clock."""

    def __init__(self, says: Callable[[], str]) -> None:
        super().__init__()
        self._says = says

    def wall(self) -> str:
        return self._says()


def records(store: MemoryStore) -> dict[str, bytes]:
    """Everything in *store*, read without being counted or disturbed."""
    return dict(store._records)


def put(store: MemoryStore, key: str, data: bytes) -> None:
    """Write *data* under *key*, whatever is there."""
    store._records[key] = data


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def planted(data: bytes) -> MemoryStore:
    """A store whose first claim is *data*."""
    store = MemoryStore()
    put(store, _keys.claim(1), data)
    return store
