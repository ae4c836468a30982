"""Wrong versions of the code under test. A simulation that does not notice each of them has lost its teeth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from tenure._commit import _collect, _log, _positions, _put, _seal
from tenure._store import _object
from tenure._store._object_answers import Answer
from tenure.errors import StoreError, StoreUnavailableError
from tenure.stores import Created
from tests.simulation import bucket
from tests.simulation.world import SimulatedStore


@contextmanager
def no_seal() -> Iterator[None]:
    """A new writer reads the end of the log and writes on."""

    def unsealed(putter: _put.Putter, hold: Any, *, known: int) -> _seal.Sealed:
        hold.check()
        putter.put_clearly("log/floor/" + "0" * 20, b"{}")
        floor, head = _positions.ends(putter.store, known=known)
        return _seal.Sealed(head, floor)

    with mock.patch.object(_log, "seal", unsealed):
        yield


@contextmanager
def check_then_put() -> Iterator[None]:
    """The writer makes sure that nobody is there, and then writes, whatever has come since."""

    def create(self: SimulatedStore, key: str, data: bytes) -> Created:
        if not key.startswith("log/0"):
            return original(self, key, data)
        found = self.read(key)
        if found is not None:
            return Created(False, found.data)

        def put() -> bool:
            self._world.records.pop(key, None)
            return self._world.apply_create(key, data)

        self._ask(put)
        return Created(True, data)

    original = SimulatedStore.create
    with mock.patch.object(SimulatedStore, "create", create):
        yield


@contextmanager
def unclear_is_failure() -> Iterator[None]:
    """No answer is taken for "not done"."""

    def put(self: _put.Putter, key: str, data: bytes) -> _put.Found:
        try:
            return _put.Found(self.store.create(key, data).data, True)
        except StoreError as error:
            raise StoreUnavailableError(str(error), applied=False) from error

    with mock.patch.object(_put.Putter, "put", put):
        yield


@contextmanager
def seals_are_collected() -> Iterator[None]:
    """Nothing is left of old writers, so that one which slept finds its slot free."""
    with mock.patch.object(_collect, "_is_seal", return_value=False):
        yield


@contextmanager
def a_lower_fence_is_let_in() -> Iterator[None]:
    """The seal ignores a higher fence that is in the log already, and that it has been replaced meanwhile."""

    class Careless:
        def __init__(self, hold: Any) -> None:
            self.fence, self.nonce = hold.fence, hold.nonce

        def check(self) -> None:
            pass

    def careless(putter: _put.Putter, hold: Any, *, known: int) -> _seal.Sealed:
        return original(putter, Careless(hold), known=known)

    original = _seal.seal
    with mock.patch.object(_log, "seal", careless), mock.patch.object(_seal, "_refuse_if_fenced"):
        yield


@contextmanager
def a_refusal_is_somebody_elses_success() -> Iterator[None]:
    """A bucket's 412 is believed: it is not looked at whether the bytes are those that were sent a moment before."""

    def meets(self: _object._Effort, answer: Answer) -> None:
        original(self, answer)
        if answer.kind == "refused":
            raise StoreUnavailableError("somebody else was first", applied=False)

    original = _object._Effort.meets
    with mock.patch.object(_object._Effort, "meets", meets):
        yield


@contextmanager
def a_fault_of_the_server_is_a_no() -> Iterator[None]:
    """A 500 is taken for "not applied"."""

    def meets(self: _object._Effort, answer: Answer) -> None:
        original(self, answer._replace(kind="unsent") if answer.status >= 500 else answer)
        if answer.status >= 500:
            raise self.is_over()

    original = _object._Effort.meets
    with mock.patch.object(_object._Effort, "meets", meets):
        yield


@contextmanager
def an_unproven_bucket() -> Iterator[None]:
    """The bucket takes conditions and does not keep them, and nobody has tried."""

    def put(self: bucket._Client, key: str, data: Any, **options: Any) -> Any:
        return original(self, key, data, **{**options, "mode": "overwrite"})

    original = bucket._Client.put
    with mock.patch.object(bucket._Client, "put", put):
        yield


# Rarer ones (a seal that is not looked at again, a reader of ghosts) need more steps in one order than chance gives; the model in
# tests/model explores every order, and has them.
SABOTAGE: tuple[Callable[[], AbstractContextManager[None]], ...] = (
    no_seal,
    check_then_put,
    unclear_is_failure,
    seals_are_collected,
    a_lower_fence_is_let_in,
)
# Of the code for buckets, which only a bucket shows.
OF_BUCKETS: tuple[Callable[[], AbstractContextManager[None]], ...] = (
    a_refusal_is_somebody_elses_success,
    a_fault_of_the_server_is_a_no,
    an_unproven_bucket,
)
