"""
What every store promises, tried: for the authors of stores, and for whoever wants to know what a bucket really does.

Everything happens below one scratch prefix and is removed again. Which store it is does not matter here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from tenure._store._protocol import Created, Store
from tenure._store._records import MAX_SIZE_BYTES
from tenure.errors import Error, StoreError

Name = Literal[
    "create",
    "content",
    "replace",
    "replace of a key that is gone",
    "delete",
    "list",
    "order of a list",
    "list from the middle",
    "race of creates",
    "race of replaces",
    "lost reply, nobody else",
    "lost reply, another winner",
]


@dataclass(frozen=True, slots=True)
class Promise:
    """
    One thing that a store promises.

    Attributes:
        name: which; a stable name.
        kept: whether it was kept each time that it was tried.
        found: what was seen, in one sentence.
    """

    name: Name
    kept: bool
    found: str


class _BrokenError(Exception):
    """The promise is not kept; says how."""


def check_store(
    opened: Callable[[], Store],
    *,
    races: int = 20,
    writers: int = 16,
    lose_reply: Callable[[], None] | None = None,
) -> list[Promise]:
    """
    Try a store in scratch keys, which are removed again, and say which promises it keeps.

    Args:
        opened: opens one and the same store, each time as somebody else would.
        races: how many keys are raced for.
        writers: how many threads race for each.
        lose_reply: makes the store apply the next `create` and lose its reply; None where that cannot be made to happen.

    Example:
        >>> from tenure.testing import MemoryStore, check_store
        >>> store = MemoryStore()
        >>> all(promise.kept for promise in check_store(lambda: store, races=2))
        True
    """
    kit = _Kit(opened, races, writers, lose_reply)
    try:
        return [kit.tried(name, check) for name, check in kit.checks()]
    finally:
        kit.clean_up()


class _Kit:
    def __init__(
        self, opened: Callable[[], Store], races: int, writers: int, lose_reply: Callable[[], None] | None
    ) -> None:
        self._opened = opened
        self._store = opened()
        self._races = races
        self._writers = writers
        self._lose_reply = lose_reply
        self._prefix = f"scratch-{os.urandom(8).hex()}/"
        self._made: set[str] = set()

    def checks(self) -> Iterator[tuple[Name, Callable[[], str]]]:
        yield "create", self._create
        yield "content", self._content
        yield "replace", self._replace
        yield "replace of a key that is gone", self._replace_gone
        yield "delete", self._delete
        yield "list", self._list
        yield "order of a list", self._order
        yield "list from the middle", self._after
        yield "race of creates", self._race
        yield "race of replaces", self._count
        if self._lose_reply is not None:
            yield "lost reply, nobody else", self._lost_reply
            yield "lost reply, another winner", self._lost_to_another

    def tried(self, name: Name, check: Callable[[], str]) -> Promise:
        try:
            return Promise(name, True, check())
        except _BrokenError as broken:
            return Promise(name, False, str(broken))
        except Error as error:
            return Promise(name, False, f"{type(error).__name__}: {error}")

    def clean_up(self) -> None:
        for key in sorted(self._made):
            try:
                self._store.delete(key)
            except StoreError:
                # Said by what failed before; what stays is below a prefix that nobody uses.
                return

    def _key(self, name: str) -> str:
        key = f"{self._prefix}{name}"
        self._made.add(key)
        return key

    def _create(self) -> str:
        key = self._key("create")
        _expect(self._store.create(key, b"first").won, "the first writer of a key did not win")
        second = self._opened().create(key, b"second")
        _expect(not second.won, "a second writer of a key was told that it had won")
        _expect(second.data == b"first", f"the loser was given other bytes than the winner's: {second.data!r}")
        return "the second writer is refused, and gets the bytes of the first"

    def _content(self) -> str:
        key, data = self._key("content"), os.urandom(MAX_SIZE_BYTES)
        self._store.create(key, data)
        found = self._opened().read(key, durable=True)
        _expect(found is not None and found.data == data, "a record of the greatest size came back changed")
        return f"{MAX_SIZE_BYTES} bytes came back as they went in"

    def _replace(self) -> str:
        key = self._key("replace")
        self._store.create(key, b"first")
        found = self._store.read(key)
        _expect(found is not None, "a record that was created is not there")
        assert found is not None
        version = self._store.replace(key, b"second", found.version)
        _expect(version is not None, "the version that is there was refused")
        _expect(self._opened().replace(key, b"third", found.version) is None, "a version of the past was replaced")
        after = self._store.read(key)
        _expect(
            after is not None and (after.data, after.version) == (b"second", version), "what was refused was applied"
        )
        return "only the version that is there is replaced"

    def _replace_gone(self) -> str:
        key = self._key("gone")
        self._store.create(key, b"first")
        found = self._store.read(key)
        assert found is not None
        self._store.delete(key)
        _expect(self._store.replace(key, b"second", found.version) is None, "a key that is gone was replaced")
        _expect(self._store.read(key) is None, "a key that is gone is there again")
        return "a key that is gone stays gone"

    def _delete(self) -> str:
        key = self._key("delete")
        self._store.create(key, b"first")
        self._store.delete(key)
        self._store.delete(key)
        _expect(self._store.read(key) is None, "a deleted key is still there")
        _expect(self._store.create(key, b"second").won, "a deleted key is not free")
        return "a deleted key is free, and deleting it again is no error"

    def _listed(self) -> tuple[list[str], str]:
        prefix = f"{self._prefix}list/"
        # Not made in their order; and a directory between two names that sort around its "/".
        keys = [self._key(f"list/{name}") for name in ("b", "a0", "a/b", "a.b", "c", "a-b")]
        for key in keys:
            self._store.create(key, b"x")
        return sorted(keys), prefix

    def _list(self) -> str:
        keys, prefix = self._listed()
        found = set(self._opened().list(prefix))
        _expect(not set(keys) - found, f"a list lacks keys that are there: {len(set(keys) - found)} of {len(keys)}")
        _expect(found == set(keys), "a list shows keys that are not there")
        return "each key that is there is shown"

    def _order(self) -> str:
        keys, prefix = self._listed()
        _expect(list(self._opened().list(prefix)) == keys, "a list is not in the order of its keys, or not complete")
        return "in the order of the whole keys"

    def _after(self) -> str:
        keys, prefix = self._listed()
        for number, key in enumerate(keys):
            found = list(self._opened().list(prefix, after=key))
            _expect(
                found == keys[number + 1 :], f"a list after a key shows {len(found)} keys, not {len(keys) - number - 1}"
            )
        return "strictly after a key"

    def _race(self) -> str:
        keys = [self._key(f"race/{number:06d}") for number in range(self._races)]
        start = threading.Barrier(self._writers)

        def race(writer: int) -> list[Created]:
            store = self._opened()
            outcomes = []
            for key in keys:
                start.wait(120)
                outcomes.append(store.create(key, f"writer {writer}".encode()))
            return outcomes

        for outcomes in zip(*self._at_once(race, start), strict=True):
            winners = sum(created.won for created in outcomes)
            _expect(winners == 1, f"of {self._writers} writers of one key, {winners} were told that they had won")
            _expect(
                len({created.data for created in outcomes}) == 1, "the writers of one key were shown several winners"
            )
        return f"{self._races} keys, {self._writers} writers each, one winner each"

    def _count(self) -> str:
        key = self._key("count")
        self._store.create(key, b"0 start")
        each, start = max(1, self._races // 4), threading.Barrier(self._writers)

        def count(_: int) -> None:
            store = self._opened()
            start.wait(120)
            for _ in range(each):
                while True:
                    found = store.read(key)
                    assert found is not None
                    # With a tag, since equal bytes may be an equal version.
                    number = int(found.data.split()[0]) + 1
                    if store.replace(key, f"{number} {os.urandom(8).hex()}".encode(), found.version) is not None:
                        break

        self._at_once(count, start)
        found = self._store.read(key)
        assert found is not None
        counted, expected = int(found.data.split()[0]), each * self._writers
        _expect(counted == expected, f"of {expected} increments {expected - counted} were lost")
        return f"{expected} increments by {self._writers} writers, none lost"

    def _at_once(
        self, work: Callable[[int], Created | list[Created] | None], start: threading.Barrier
    ) -> list[list[Created]]:
        def safe(writer: int) -> list[Created]:
            try:
                done = work(writer)
            except BaseException:
                # The others would wait for us.
                start.abort()
                raise
            return done if isinstance(done, list) else []

        with ThreadPoolExecutor(self._writers) as pool:
            running = [pool.submit(safe, writer) for writer in range(self._writers)]
        failures = [failed for one in running if (failed := one.exception()) is not None]
        own = [failed for failed in failures if not isinstance(failed, threading.BrokenBarrierError)]
        if failures:
            raise (own or failures)[0]
        return [one.result() for one in running]

    def _lost_reply(self) -> str:
        assert self._lose_reply is not None
        key = self._key("lost/alone")
        self._store.create(self._key("lost/warm"), b"x")
        self._lose_reply()
        data = self._outcome(key, b"ours")
        found = self._store.read(key)
        _expect(found is not None and found.data == b"ours", "a create whose reply was lost is not there")
        _expect(data in (b"ours", None), "a writer was told that it had lost a key that it had won")
        return "a create whose reply was lost " + ("is known to have won" if data else "is reported as unknown")

    def _lost_to_another(self) -> str:
        assert self._lose_reply is not None
        key = self._key("lost/other")
        self._opened().create(key, b"theirs")
        self._lose_reply()
        data = self._outcome(key, b"ours")
        _expect(data in (b"theirs", None), "a writer was told that it had won a key that another had")
        return "a create that was refused and whose reply was lost " + (
            "is known to have lost" if data else "is reported as unknown"
        )

    def _outcome(self, key: str, data: bytes) -> bytes | None:
        """The bytes that a create says it left, or None for "nobody can tell"."""
        try:
            return self._store.create(key, data).data
        except StoreError as error:
            if error.applied is None:
                return None
            raise


def _expect(kept: bool, otherwise: str) -> None:
    if not kept:
        raise _BrokenError(otherwise)
