"""A store for tests: the same protocol in a dictionary, with faults that can be scripted and a log of what was asked."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal, NamedTuple
from weakref import WeakValueDictionary

from tenure._store._protocol import Created, Stored, check_key, check_prefix
from tenure._store._records import check_data, version_of
from tenure.errors import StoreUnavailableError

Operation = Literal["create", "read", "replace", "list", "delete"]


class Call(NamedTuple):
    """One request: the operation, and its key (for a list, its prefix)."""

    operation: Operation
    key: str


class Fault:
    """
    What is to happen at the *nth* request that fits, counted from when the fault was scripted; 0 means at every one.

    Until it is told what to do, it does nothing.
    """

    def __init__(self, operation: Operation, prefix: str, nth: int) -> None:
        self._operation = operation
        self._prefix = prefix
        self._nth = nth
        self._seen = 0
        self.before: Callable[[], None] = _nothing
        self.after: Callable[[], None] = _nothing

    def fail(self, error: Exception | None = None) -> None:
        """Raise, with nothing applied. By default: the store did not answer."""
        self.before = _raising(error, applied=False)

    def lose_reply(self, error: Exception | None = None) -> None:
        """Apply the request, then raise as if the answer had been lost."""
        self.after = _raising(error, applied=None)

    def delay(self, seconds: float) -> None:
        """Wait before applying; other requests go on meanwhile."""
        self.before = lambda: time.sleep(seconds)  # noqa: TID251  the delay is the point

    def run(self, function: Callable[[], None]) -> None:
        """Call *function* before applying, for instance to park a thread or to let another writer go first."""
        self.before = function

    def meets(self, call: Call) -> bool:
        """Count *call* if it fits, and say whether it is its turn."""
        if call.operation != self._operation or not call.key.startswith(self._prefix):
            return False
        self._seen += 1
        return self._nth in (0, self._seen)


class MemoryStore:
    """
    A store in this process's memory, for tests. `memory:NAME` opens the one of that name.

    Example:
        >>> store = MemoryStore()
        >>> store.on("create", "lease/", nth=2).lose_reply()
        >>> store.create("lease/1", b"a").won
        True
        >>> store.calls
        [Call(operation='create', key='lease/1')]
    """

    _named: ClassVar[dict[str, MemoryStore]] = {}
    _anonymous: ClassVar[WeakValueDictionary[str, MemoryStore]] = WeakValueDictionary()
    _numbers: ClassVar[Iterator[int]] = itertools.count(1)

    def __init__(self) -> None:
        self._name = f"anonymous-{next(self._numbers)}"
        self._lock = threading.Lock()
        self._records: dict[str, bytes] = {}
        self._faults: list_[Fault] = []
        self._anonymous[self._name] = self
        self.calls: list_[Call] = []

    @classmethod
    def named(cls, name: str) -> MemoryStore:
        """The store called *name*, shared by the whole process and made at the first call."""
        found = cls._anonymous.get(name)
        if found is None:
            # Under one bytecode of the interpreter: two threads get one store.
            found = cls._named.setdefault(name, cls._called(name))
        return found

    @classmethod
    def _called(cls, name: str) -> MemoryStore:
        store = cls()
        store._name = name
        return store

    @property
    def url(self) -> str:
        return f"memory:{self._name}"

    def on(self, operation: Operation, prefix: str = "", *, nth: int = 1) -> Fault:
        """Script a fault for the *nth* request from now on whose key starts with *prefix*; 0 means every one."""
        fault = Fault(operation, prefix, nth)
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Drop every scripted fault."""
        with self._lock:
            self._faults.clear()

    def count(self, operation: Operation, prefix: str = "") -> int:
        """How many such requests there were."""
        with self._lock:
            return sum(call.operation == operation and call.key.startswith(prefix) for call in self.calls)

    def create(self, key: str, data: bytes) -> Created:
        check_key(key)
        check_data(data)
        with self._asked("create", key), self._lock:
            won = key not in self._records
            return Created(won, self._records.setdefault(key, bytes(data)))

    def read(self, key: str, *, durable: bool = False) -> Stored | None:  # noqa: ARG002  memory has no disk
        check_key(key)
        with self._asked("read", key), self._lock:
            data = self._records.get(key)
            return None if data is None else Stored(data, version_of(data))

    def replace(self, key: str, data: bytes, version: str) -> str | None:
        check_key(key)
        check_data(data)
        with self._asked("replace", key), self._lock:
            current = self._records.get(key)
            if current is None or version_of(current) != version:
                return None
            self._records[key] = bytes(data)
            return version_of(data)

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        check_prefix(prefix)
        return self._walk(prefix, after)

    def delete(self, key: str) -> None:
        check_key(key)
        with self._asked("delete", key), self._lock:
            self._records.pop(key, None)

    def _walk(self, prefix: str, after: str) -> Iterator[str]:
        with self._asked("list", prefix), self._lock:
            keys = sorted(key for key in self._records if key.startswith(prefix) and key > after)
        yield from keys

    @contextmanager
    def _asked(self, operation: Operation, key: str) -> Iterator[None]:
        call = Call(operation, key)
        with self._lock:
            self.calls.append(call)
            faults = [fault for fault in self._faults if fault.meets(call)]
        # Outside the lock, so that one delayed request holds up no other.
        for fault in faults:
            fault.before()
        yield
        for fault in faults:
            fault.after()


def _nothing() -> None:
    pass


def _raising(error: Exception | None, applied: bool | None) -> Callable[[], None]:
    def throw() -> None:
        # Made anew for each: an exception that is raised twice carries the traceback of both.
        raise error or StoreUnavailableError("the store did not answer (scripted)", hint="try again", applied=applied)

    return throw


# Inside the class, `list` is the method.
list_ = list
