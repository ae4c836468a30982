"""
Does this store keep its word? Tried once, in scratch keys, before the first write.

Several servers that speak S3 take a conditional write and ignore the condition: each of two writers is then told that it
alone has won. The proof is remembered in the process, and in the bucket by a marker per endpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure._store._object_url import Location
from tenure.errors import StoreCannotLockError, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from tenure._store._object import ObjectStore

# A dot in front, which no key has; and before every key in a list.
_OWN = ".tenure/"
# What tells a prefix of ours whose marker a lifecycle rule has removed.
_ROOMS = ("lease/", "log/")
_PROVEN = json.dumps({"v": 1, "proven": ["create", "replace"]}).encode()
_STRANGERS_SHOWN = 3


@dataclass(frozen=True)
class Findings:
    """
    What a store was seen to do.

    Attributes:
        creates: it refuses to create a key that exists.
        replaces: it refuses to replace a version that is not there any more, or a key that is gone.
        replaces_at_all: it replaces the version that is there.
        lists: it lists what is there, in order, and from the middle.
    """

    creates: bool
    replaces: bool
    replaces_at_all: bool
    lists: bool


class Probe:
    """The proof of one store."""

    def __init__(self, where: Location) -> None:
        self._where = where

    def prove(self, store: ObjectStore) -> None:
        """
        Return if the store keeps both conditions, having tried it unless somebody did before.

        Raises:
            StoreCannotLockError: it does not.
            StoreError: it cannot be asked, or the prefix is somebody else's; nothing was written.
        """
        if self._where.url in _proven:
            return
        # One at a time: the others need not try what is being tried.
        with _lock:
            if self._where.url in _proven:
                return
            marker = f"{_OWN}proven-{_endpoint(self._where)}"
            found = store.read_anything(marker)
            if found is None or found.data != _PROVEN:
                self.refuse_strangers(store)
                self._refuse_liars(examine(store))
                store.create_anything(marker, _PROVEN)
            _proven.add(self._where.url)

    def refuse_strangers(self, store: ObjectStore) -> None:
        """Raise `StoreError` if the prefix holds what is not ours."""
        first: list[str] = []
        for key in store.list_anything(""):
            if key.startswith((_OWN, *_ROOMS)):
                return
            first.append(key)
            if len(first) == _LOOKED_AT:
                break
        if first:
            shown = ", ".join(first[:_STRANGERS_SHOWN])
            raise StoreError(
                f"the prefix holds something else. store=`{self._where.name}`, found=`{shown}`",
                hint="nothing was written; choose a prefix of its own, such as `…/tenure`",
            )

    def _refuse_liars(self, found: Findings) -> None:
        if not found.creates:
            what = "the store ignores create-if-absent (If-None-Match): two writers would both win"
        elif not found.replaces:
            what = (
                "the store keeps create-if-absent but ignores compare-and-swap (If-Match):"
                " fences would be safe, but no holder would see that it was replaced"
            )
        elif not found.replaces_at_all:
            what = "the store keeps create-if-absent but refuses every compare-and-swap (If-Match): no heartbeat can be written"
        else:
            return
        raise StoreCannotLockError(
            f"{what}. store=`{self._where.name}`, endpoint=`{self._where.endpoint or 'the default'}`",
            hint="use a store that keeps conditional writes; `tenure doctor` tries one",
        )


def examine(store: ObjectStore) -> Findings:
    """
    Try the store in scratch keys that nobody else has, and remove them.

    Raises:
        StoreError: it cannot be asked.
    """
    scratch = f"{_OWN}probe/{os.urandom(8).hex()}"
    keys = [f"{scratch}/{name}" for name in "ab"]
    creates, lists, replaces, at_all = True, False, True, False
    try:
        for key in keys:
            store.create_anything(key, b"first " + key.encode())
        second = b"second " + os.urandom(8)
        creates = not store.create_anything(keys[0], second).won
        lists = list(store.list_anything(f"{scratch}/")) == keys
        lists = lists and list(store.list_anything(f"{scratch}/", keys[0])) == keys[1:]
        found = store.read_anything(keys[1])
        if found is not None:
            # Written once more first, so that the version before is one that was true once.
            version = _replaced(store, keys[1], found.version)
            at_all = version is not None
            if version is not None:
                replaces = store.replace_anything(keys[1], b"fourth " + os.urandom(8), found.version) is None
                store.delete_anything(keys[1])
                replaces = replaces and store.replace_anything(keys[1], b"fifth", version) is None
    finally:
        for key in keys:
            try:
                store.delete_anything(key)
            except StoreError:
                # What stays is swept by nobody and read by nobody; why it stays is said by whatever failed first.
                pass
    return Findings(creates=creates, replaces=replaces, replaces_at_all=at_all, lists=lists)


def _replaced(store: ObjectStore, key: str, version: str) -> str | None:
    try:
        return store.replace_anything(key, b"third " + os.urandom(8), version)
    except StoreError as error:
        # Refused each time, with that very version there.
        if isinstance(error, StoreUnavailableError) and error.applied is False:
            return None
        raise


def _endpoint(where: Location) -> str:
    """Names the server in front of the bucket: a copy of a bucket elsewhere is another store."""
    return hashlib.sha256(f"{where.scheme} {where.endpoint}".encode()).hexdigest()[:12]


# Some of a prefix is enough to see whose it is.
_LOOKED_AT = 1000
_proven: set[str] = set()
_lock = threading.RLock()


def _forget() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
