"""
The store of a simulation as a bucket: what a client library of an object store is, beneath the real code that asks one.

Speaks as `obstore` does for S3, to the word where the real code reads words. What goes wrong is met by that code and not by the
scene: the scene sees what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar
from unittest import mock

from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

from tenure._clock import Clock
from tenure._store import _object, _object_blobs, _object_probe
from tenure._store._object import ObjectStore
from tenure._store._object_url import Location
from tenure._store._records import version_of
from tests.simulation.scheduler import Actor
from tests.simulation.world import World, pause

Result = TypeVar("Result")
# Below, `list` and `bytes` are methods.
_Metas: TypeAlias = "list[dict[str, Any]]"
_Pieces: TypeAlias = "Iterator[bytes]"

# A sixth of the ttl of the scenes, as the default is of the default.
_ATTEMPT_S = 0.5
# So that what takes thousands of keys, and megabytes, is met with few and small ones.
_PAGE, _PART_BYTES = 8, 90

# What there is instead of an answer; nobody can tell from some of it whether the request was applied.
_NO_ANSWER = "HTTP error: error sending request"
_NOT_APPLIED = (
    _NO_ANSWER,
    "status code: 500 Internal Server Error: <Code>InternalError</Code>",
    "status code: 503 Service Unavailable: <Code>SlowDown</Code>",
    "status code: 429 Too Many Requests: <Code>TooManyRequests</Code>",
    "status code: 400 Bad Request: <Code>RequestTimeout</Code>",
)
_APPLIED = (
    _NO_ANSWER,
    "status code: 500 Internal Server Error: <Code>InternalError</Code>",
    "status code: 408 Request Timeout: <Code>RequestTimeout</Code>",
)
_UNSENT = "error sending request, source: hyper_util::client::legacy::Error(Connect, ConnectError)"
_CONFLICT = "status code: 409 Conflict: <Code>ConditionalRequestConflict</Code>"


@dataclass(frozen=True)
class _Simulated(Location):
    """A bucket of the world, as *actor* reaches it."""

    world: World
    actor: Actor

    def client(self, timeout_s: float, *, silence_s: float | None = None, retries: int = 0) -> Any:
        # A blob's client waits for hours; not that long in a run of minutes.
        return _Client(self.world, self.actor, min(timeout_s, _ATTEMPT_S), retries)


def bucket(world: World, actor: Actor, clock: Clock) -> ObjectStore:
    """The store, as one process sees it."""
    where = _Simulated("s3", "simulated", "team", {}, world, actor)
    return ObjectStore(where, attempt_s=_ATTEMPT_S, clock=clock)


@contextmanager
def small(world: World) -> Iterator[None]:
    """Have pages and parts that a run fills, a store that is proven already, and chance from the seed."""
    with ExitStack() as stack:
        for module, name, value in (
            (_object, "_PAGE", {"s3": _PAGE}),
            (_object, "random", world.scheduler.random),
            (_object_blobs, "_PART_BYTES", _PART_BYTES),
            (_object_probe, "_proven", {"s3://simulated/team"}),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


class _Client:
    """What `obstore.store.S3Store` is to the code under test."""

    def __init__(self, world: World, actor: Actor, timeout_s: float, retries: int) -> None:
        self._world = world
        self._actor = actor
        self._timeout_s = timeout_s
        self._retries = retries

    def put(
        self, key: str, data: Any, *, mode: Any = "overwrite", use_multipart: bool, **_: Any
    ) -> dict[str, str | None]:
        # In parts, it is put together by one last request, which is the only one that is seen.
        content = b"".join([data] if isinstance(data, bytes) else data)
        # No store puts parts together under a condition.
        assert mode == "overwrite" or not use_multipart

        def apply() -> dict[str, str | None]:
            if mode == "create":
                if not self._world.apply_create(key, content):
                    raise AlreadyExistsError("status code: 412 Precondition Failed: <Code>PreconditionFailed</Code>")
            elif mode == "overwrite":
                self._world.records[key] = content
            elif not self._world.apply_replace(key, content, mode["e_tag"]):
                raise PreconditionError("status code: 412 Precondition Failed: <Code>PreconditionFailed</Code>")
            return _meta(key, content)

        return self._ask(apply, changes=True, has_condition=mode != "overwrite")

    def get(self, key: str) -> _Found:
        return self._ask(lambda: _Found(self._ask, key, self._content(key)))

    def head(self, key: str) -> dict[str, Any]:
        return self._ask(lambda: _meta(key, self._content(key)))

    def delete(self, key: str) -> None:
        self._ask(lambda: self._world.apply_delete(key), changes=True)

    def list(self, prefix: str | None, *, offset: str | None = None, chunk_size: int = _PAGE) -> _Listing:
        def look() -> _Metas:
            keys = self._world.listed()
            found = sorted(key for key in keys if key.startswith(prefix or "") and key > (offset or ""))
            return [_meta(key, self._world.records[key]) for key in found]

        return _Listing(lambda: self._ask(look), chunk_size)

    def _content(self, key: str) -> bytes:
        data = self._world.records.get(key)
        if data is None:
            raise FileNotFoundError("status code: 404 Not Found: <Code>NoSuchKey</Code>")
        return data

    def _ask(self, apply: Callable[[], Result], *, changes: bool = False, has_condition: bool = False) -> Result:
        """One request, and as many more as this client makes by itself."""
        for _ in range(self._retries):
            try:
                return self._once(apply, changes, has_condition)
            except GenericError:
                continue
        return self._once(apply, changes, has_condition)

    def _once(self, apply: Callable[[], Result], changes: bool, has_condition: bool) -> Result:
        world, rates, chance = self._world, self._world.rates, self._world.scheduler.random
        pause(world, self._actor)
        fate = chance.random()
        if (fate := fate - rates.refused) < 0:
            world.faults += 1
            if has_condition and chance.random() < 0.5:
                raise AlreadyExistsError(_CONFLICT)
            raise GenericError(_UNSENT)
        if (fate := fate - rates.no_answer) < 0:
            world.faults += 1
            self._hang_perhaps()
            raise GenericError(chance.choice(_NOT_APPLIED))
        if changes and (fate := fate - rates.late) < 0:
            world.faults += 1
            world.in_flight.append(lambda: _unheard(apply))
            self._hang_perhaps()
            raise GenericError(_NO_ANSWER)
        answer = apply()
        if (fate := fate - rates.lost_reply) < 0:
            world.faults += 1
            self._hang_perhaps()
            raise GenericError(chance.choice(_APPLIED))
        if changes and fate - rates.twice < 0:
            world.faults += 1
            world.in_flight.append(lambda: _unheard(apply))
        # The answer takes its time too.
        pause(world, self._actor)
        return answer

    def _hang_perhaps(self) -> None:
        """Some hear soon that nothing will come, the others wait until their time is over."""
        if self._world.scheduler.random.random() < 0.5:
            self._actor.wakes_at = self._world.scheduler.now + self._timeout_s
            self._actor.step()


class _Listing:
    def __init__(self, ask: Callable[[], _Metas], size: int) -> None:
        self._ask = ask
        self._size = size

    def __iter__(self) -> Iterator[_Metas]:
        found = self._ask()
        for first in range(0, len(found), self._size):
            yield found[first : first + self._size]

    def collect(self) -> _Metas:
        return self._ask()


class _Found:
    def __init__(self, ask: Callable[..., Any], key: str, content: bytes) -> None:
        self._ask = ask
        self._content = content
        self.meta = _meta(key, content)

    def bytes(self) -> bytes:
        return self._content

    def stream(self, **_: int) -> _Pieces:
        half = len(self._content) // 2
        for piece in filter(None, (self._content[:half], self._content[half:])):
            # What has begun to arrive may break off.
            self._ask(lambda: None)
            yield piece


def _meta(key: str, content: bytes) -> dict[str, Any]:
    return {"path": key, "size": len(content), "e_tag": version_of(content), "version": None}


def _unheard(apply: Callable[[], Any]) -> None:
    """What arrives late is applied or refused, and nobody hears which."""
    try:
        apply()
    except (AlreadyExistsError, PreconditionError):
        pass
