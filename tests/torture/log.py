"""
The shared log that the workers append to: write-once numbered entries, each with the fence it was written under.

Not the library's commit log: the smallest thing that a lease can protect, so that what a lost lease does becomes visible.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from tenure import FencedError
from tenure._failpoints import reach
from tenure.stores import LocalDirectory, Store
from tests.torture.events import Entry

PREFIX = "log/"


def _key(seq: int) -> str:
    return f"{PREFIX}{seq:020d}"


class Log:
    """The log in *store*. One that is *blind* checks and then writes, and does not ask the store who was first."""

    def __init__(self, store: Store, *, blind: bool = False) -> None:
        self._store = store
        self._blind = blind
        self._head = 0

    def append(self, fence: int, who: str, entry: int) -> int:
        """
        Append, and return the position.

        Raises:
            FencedError: the head of the log has a higher fence.
            StoreError: the store failed; if its `applied` is None nobody can tell whether the entry is there.
        """
        data = json.dumps({"fence": fence, "who": who, "entry": entry}).encode()
        while True:
            head = self._find_head()
            above = self._fence_at(head)
            if above > fence:
                raise FencedError("the log has gone on under a higher fence", ours=fence, current=above)
            reach("torture.checked")
            if self._blind:
                self._overwrite(head + 1, data)
                return head + 1
            if self._store.create(_key(head + 1), data).data == data:
                return head + 1

    def entries(self) -> Iterator[Entry]:
        for key in self._store.list(PREFIX):
            stored = self._store.read(key)
            assert stored is not None
            fields = json.loads(stored.data)
            yield Entry(int(key.removeprefix(PREFIX)), fields["fence"], fields["who"], fields["entry"])

    def _fence_at(self, seq: int) -> int:
        stored = self._store.read(_key(seq)) if seq else None
        return int(json.loads(stored.data)["fence"]) if stored else 0

    def _find_head(self) -> int:
        """Entries have no gaps: in strides that double from the last known head, and then by halves."""
        low, stride = self._head, 1
        while self._store.read(_key(low + stride)) is not None:
            low, stride = low + stride, stride * 2
        high = low + stride
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._store.read(_key(middle)) is None else (middle, high)
        self._head = low
        return low

    def _overwrite(self, seq: int, data: bytes) -> None:
        assert isinstance(self._store, LocalDirectory)
        path = self._store.path_of(_key(seq))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = Path(f"{path.parent.parent}/fresh-{os.getpid()}-{os.urandom(4).hex()}")
        fresh.write_bytes(data)
        fresh.replace(path)
