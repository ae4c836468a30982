"""
A bucket as a store: S3, Google Cloud Storage, Azure.

The client sends each request once; trying again is ours, because only who knows the bytes can tell afterwards what a lost
reply has hidden. On any unclear answer the same bytes go out under the same condition, and if that is refused the key is
read: our bytes, somebody else's, or nothing. Out of time is "nobody can tell", never "lost".
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar

from tenure._clock import Clock, SystemClock
from tenure._store import _object_blobs as blobs
from tenure._store._object_answers import Answer, store_error, understood
from tenure._store._object_probe import Probe
from tenure._store._object_url import Location
from tenure._store._protocol import Created, Stored, check_key, check_prefix
from tenure._store._records import MAX_SIZE_BYTES, check_data
from tenure.errors import StoreError, StoreUnavailableError

Result = TypeVar("Result")

# How long an operation lasts, in attempts; and how much of one must be left to begin another.
_ATTEMPTS, _LEAST = 2.0, 0.2
_FIRST_PAUSE_S, _BUSY_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.5, 1.0
# For a blob, which may be long on its way to a slow machine; and for silence on that way.
_LONGEST_S, _SILENT_S = 6 * 3600.0, 30.0
# What one request brings, and obstore then hands out in one piece.
# Azure's 5,000 begin with the very key that a list is to start behind.
_PAGE = {"s3": 1000, "gs": 1000, "az": 4000}


class ObjectStore:
    """
    The objects below a prefix of a bucket.

    Before its first write, a store that was never proven is tried in scratch keys: one that takes a second writer for the
    first is refused. Reading needs no such proof, and no permission to write.

    Args:
        where: bucket, prefix and options.
        attempt_s: seconds for one request; an operation takes twice that at most.
        clock: times the operations, and waits between attempts.
    """

    def __init__(self, where: Location, *, attempt_s: float | None = None, clock: Clock | None = None) -> None:
        self._where = where
        self._clock = clock or SystemClock()
        self._attempt_s = where.attempt_s if attempt_s is None else attempt_s
        self._client: Any = None
        self._blob_client: Any = None
        # Once seen to list in no order, it is never asked to start in the middle.
        self._unordered = False
        self._probe = Probe(where)
        self._is_tried = False

    @staticmethod
    def at(url: str) -> ObjectStore:
        """The store at *url*. Nothing is asked before the first operation."""
        return ObjectStore(Location.parse(url))

    @property
    def url(self) -> str:
        return self._where.url

    @property
    def where(self) -> Location:
        """Bucket, prefix and options."""
        return self._where

    @property
    def attempt_s(self) -> float:
        """Seconds for one request."""
        return self._attempt_s

    @property
    def clock(self) -> Clock:
        """What its operations are timed by."""
        return self._clock

    def within(self, seconds: float) -> ObjectStore:
        """The same store, each of whose operations ends within *seconds*."""
        attempt_s = min(self._attempt_s, seconds / _ATTEMPTS)
        if attempt_s == self._attempt_s:
            return self
        return ObjectStore(self._where, attempt_s=attempt_s, clock=self._clock)

    def to_try(self) -> ObjectStore:
        """
        The same store, which writes without being proven: for those who try what it does.

        Raises:
            StoreError: the prefix is somebody else's, or cannot be listed.
        """
        self._probe.refuse_strangers(self)
        tried = ObjectStore(self._where, attempt_s=self._attempt_s, clock=self._clock)
        tried._is_tried = True
        return tried

    def _prove(self) -> None:
        if not self._is_tried:
            self._probe.prove(self)

    def create(self, key: str, data: bytes) -> Created:
        check_key(key)
        check_data(data)
        self._prove()
        return self.create_anything(key, data)

    def create_anything(self, key: str, data: bytes) -> Created:
        """As `create`, for scratch keys too, and unproven."""
        effort = _Effort(self, key, "create a record")
        for _ in effort.attempts():
            answer = effort.ask(lambda client: client.put(key, data, mode="create", use_multipart=False))
            if not isinstance(answer, Answer):
                return Created(True, data, self._version(answer))
            effort.meets(answer)
            if answer.kind != "refused":
                continue
            found = self._get(effort, key)
            if isinstance(found, Answer):
                effort.meets(found)
            elif found is not None:
                # Without an attempt of ours that may have arrived, equal bytes are somebody else's equal bytes.
                return Created(effort.may_have_arrived and found.data == data, found.data, found.version)
            # Refused, and nothing there: a 409, which says that others were writing, and nothing of who won.
        raise effort.is_over()

    def read(self, key: str, *, durable: bool = False) -> Stored | None:  # noqa: ARG002  what a bucket shows is durable
        check_key(key)
        return self.read_anything(key)

    def read_anything(self, key: str) -> Stored | None:
        """As `read`, for scratch keys too."""
        effort = _Effort(self, key, "read a record", writes=False)
        for _ in effort.attempts():
            found = self._get(effort, key)
            if not isinstance(found, Answer):
                return found
            effort.meets(found)
        raise effort.is_over()

    def replace(self, key: str, data: bytes, version: str) -> str | None:
        check_key(key)
        check_data(data)
        return self.replace_anything(key, data, version)

    def replace_anything(self, key: str, data: bytes, version: str) -> str | None:
        """As `replace`, for scratch keys too."""
        # Google compares generations, the others tags. obstore takes no None for either.
        condition = {"version" if self._where.scheme == "gs" else "e_tag": version}
        effort = _Effort(self, key, "replace a record")
        for _ in effort.attempts():
            answer = effort.ask(lambda client: client.put(key, data, mode=condition, use_multipart=False))
            if not isinstance(answer, Answer):
                return self._version(answer)
            # Absent is the answer of S3 to a condition on a key that is not there.
            absent = answer.kind == "absent"
            if not absent:
                effort.meets(answer)
            if answer.kind not in ("refused", "absent"):
                continue
            found = self._get(effort, key)
            if isinstance(found, Answer):
                effort.meets(found)
            elif found is not None and found.data == data and effort.may_have_arrived:
                return found.version
            elif found is not None and found.version == version:
                # A 409: others were writing, and what they wrote was refused too.
                continue
            elif effort.may_have_arrived:
                # Ours may have been there before what is there now: one record that everybody writes keeps no history.
                raise effort.is_over()
            else:
                return None
        raise effort.is_over()

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        check_prefix(prefix)
        return self._keys(prefix, after)

    def _keys(self, prefix: str, after: str) -> Iterator[str]:
        for key in self.list_anything(prefix, after):
            try:
                check_key(key)
            except ValueError:
                # Somebody else's, or a scratch key of ours.
                continue
            yield key

    def list_anything(self, prefix: str, after: str = "") -> Iterator[str]:
        """As `list`, with scratch keys and whatever else is there."""
        begun, shown = after, 0
        while not self._unordered:
            # A list of its own for each page: one that broke off goes on where it was.
            page = self._page(prefix, after)
            if any(later <= earlier for earlier, later in zip([after, *page], page, strict=False)):
                self._unordered = True
                break
            yield from page
            shown += len(page)
            if len(page) < _PAGE[self._where.scheme]:
                return
            after = page[-1]
        found = sorted(key for key in self._everything(prefix) if key > begun)
        if sum(key <= after for key in found) != shown:
            # What was shown so far cannot be taken back.
            raise StoreUnavailableError(
                f"the store's list is in no order. store=`{self._where.name}`, prefix=`{prefix}`",
                hint="try again: from now on it is read as a whole and put in order",
            )
        yield from found[shown:]

    def _page(self, prefix: str, after: str) -> list_[str]:
        size = _PAGE[self._where.scheme]

        def ask(client: Any) -> list_[str]:
            found = client.list(prefix or None, offset=after or None, chunk_size=size)
            return [one["path"] for one in next(iter(found), ())]

        return self._listed(ask, prefix)

    def _everything(self, prefix: str) -> list_[str]:
        def ask(client: Any) -> list_[str]:
            return [one["path"] for one in client.list(prefix or None).collect()]

        return self._listed(ask, prefix)

    def _listed(self, ask: Callable[[Any], list_[str]], prefix: str) -> list_[str]:
        effort = _Effort(self, prefix, "list records", writes=False)
        for _ in effort.attempts():
            answer = effort.ask(ask)
            if not isinstance(answer, Answer):
                return answer
            effort.meets(answer)
        raise effort.is_over()

    def delete(self, key: str) -> None:
        check_key(key)
        self.delete_anything(key)

    def delete_anything(self, key: str) -> None:
        """As `delete`, for scratch keys too."""
        effort = _Effort(self, key, "delete a record")
        for _ in effort.attempts():
            answer = effort.ask(lambda client: client.delete(key))
            if not isinstance(answer, Answer) or answer.kind == "absent":
                return
            effort.meets(answer)
        raise effort.is_over()

    def put_stream(self, key: str, source: BinaryIO) -> bool:
        """
        As `Streams.put_stream`, for keys that name their content.

        What is large goes in parts, which no store puts together under a condition: two writers of one key then both
        write it, and bring the same bytes.
        """
        check_key(key)
        self._prove()
        return blobs.put(self, key, source)

    def get_stream(self, key: str) -> BinaryIO | None:
        check_key(key)
        return blobs.get(self, key)

    def ask(self, work: Callable[[Any], Result], *, within_s: float | None = None) -> Result | Answer:
        """
        Let *work* do one request, with a client that has so many seconds for it.

        Nothing is tried again, and nothing that the client says leaves here as an exception.
        """
        _check_not_forked(self._where)
        if self._client is None:
            self._client = self._where.client(self._attempt_s)
        client = self._client
        if within_s is not None and within_s < self._attempt_s:
            # Another client takes some milliseconds to make, and comes when seconds are lost already.
            client = self._where.client(max(within_s, _LEAST * self._attempt_s))
        from obstore.exceptions import BaseError  # noqa: PLC0415  an extra, and slow to load

        try:
            return work(client)
        except (BaseError, FileNotFoundError) as error:
            answer = understood(error)
        # Outside the handler, so that what is raised next does not carry the client's own words as its context.
        return answer

    def client_for_blobs(self) -> Any:
        """One for long transfers, which tries again by itself: a blob's key names its content."""
        _check_not_forked(self._where)
        if self._blob_client is None:
            self._blob_client = self._where.client(_LONGEST_S, silence_s=_SILENT_S, retries=3)
        return self._blob_client

    def _get(self, effort: _Effort, key: str) -> Stored | Answer | None:
        def ask(client: Any) -> Stored:
            found = client.get(key)
            size = found.meta["size"]
            if size > MAX_SIZE_BYTES:
                raise _TooLargeError(size)
            return Stored(bytes(found.bytes()), self._version(found.meta))

        try:
            answer = effort.ask(ask)
        except _TooLargeError as error:
            name = f"{self._where.name}/{key}"
            raise StoreError(
                f"a record is larger than any record may be. key=`{name}`, size_bytes=`{error}`,"
                f" limit_bytes=`{MAX_SIZE_BYTES}`",
                hint="nothing was read; find out who wrote it, and move it away",
                errno=errno.EFBIG,
                filename=name,
            ) from None
        return None if isinstance(answer, Answer) and answer.kind == "absent" else answer

    def _version(self, meta: Any) -> str:
        return str(meta["version" if self._where.scheme == "gs" else "e_tag"] or "")


class _Effort:
    """One operation's attempts, and what their answers leave open."""

    def __init__(self, store: ObjectStore, key: str, doing: str, *, writes: bool = True) -> None:
        self._store = store
        self._key = key
        self._doing = doing
        self._writes = writes
        self._clock = store.clock
        self._ends = self._clock.elapsed() + _ATTEMPTS * store.attempt_s
        self._last: Answer | None = None
        self.may_have_arrived = False

    def attempts(self) -> Iterator[None]:
        """The first attempt, and further ones as long as there is time."""
        pause = _FIRST_PAUSE_S
        yield
        while True:
            if self._last is not None and self._last.is_busy:
                # For how long it wants to be left alone stands in a header that obstore keeps to itself.
                pause = max(pause, _BUSY_PAUSE_S)
            # Of two writers that met, one has to come back first.
            wait = pause * random.uniform(0.5, 1.0)
            if wait + _LEAST * self._store.attempt_s > self._left():
                return
            self._clock.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            yield

    def ask(self, work: Callable[[Any], Result]) -> Result | Answer:
        """One request of this operation, within the time that is left for it."""
        return self._store.ask(work, within_s=self._left())

    def _left(self) -> float:
        return self._ends - self._clock.elapsed()

    def meets(self, answer: Answer) -> None:
        """Note *answer*, and raise if no further attempt can bring a better one."""
        self._last = answer
        self.may_have_arrived |= answer.kind == "unclear" and self._writes
        if answer.kind in ("impossible", "absent"):
            raise self.is_over()

    def is_over(self) -> StoreError:
        """The error for an operation without an outcome."""
        applied = None if self.may_have_arrived else False
        if self._last is None:
            return StoreUnavailableError(
                f"cannot {self._doing}: no time for one attempt. store=`{self._store.where.name}`", applied=applied
            )
        return store_error(self._last, self._store.where, self._key, self._doing, applied=applied)


class _TooLargeError(Exception):
    pass


# The client's threads are not there in a forked child, and a request would wait for them for ever.
_used_by: int | None = None


def _check_not_forked(where: Location) -> None:
    global _used_by
    if _used_by is None:
        _used_by = os.getpid()
    elif _used_by != os.getpid():
        raise StoreError(
            f"this process was forked from one that had used an object store. store=`{where.name}`",
            hint="fork before the first use, or start processes anew (multiprocessing's `spawn`)",
        )


# Inside the class, `list` is the method.
list_ = list
