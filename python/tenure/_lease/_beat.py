"""
The heartbeat: a counter that rises while the holder lives, and the word "released" at the end.

On a local directory it is written in place: no temporary file, no sync. After a power cut the holder is dead anyway, so
nothing needs to be durable, and a record of one fixed length in one page is never seen in two lengths. Elsewhere it is a
compare-and-swap, which also shows a clone of the holder: whoever swaps second has lost.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Literal, Protocol

from tenure._lease import _keys
from tenure.errors import StoreError
from tenure.stores import LocalDirectory, Store

State = Literal["held", "released"]
_LENGTH = 160
_NEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat says. Number 0, which is never written, stands for "none seen yet"."""

    number: int = 0
    released: bool = False

    @staticmethod
    def decode(data: bytes | None, nonce: str) -> Beat:
        """
        The heartbeat of the claim with *nonce*.

        Whatever cannot be read is no beat: the claim then looks silent, which costs its holder nothing, since silence
        only counts for holders that nobody can judge.
        """
        try:
            fields = json.loads(data or b"")
            if fields["v"] == 1 and fields["nonce"] == nonce:
                return Beat(int(fields["beat"]), fields["state"] == "released")
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        return Beat()


def _encode(nonce: str, number: int, state: State) -> bytes:
    tag = os.urandom(4).hex()
    record = f'{{"v":1,"nonce":"{nonce}","beat":"{number:020d}","state":"{state}","tag":"{tag}"}}'
    return record.ljust(_LENGTH - 1).encode() + b"\n"


class Heart(Protocol):
    """What keeps the heartbeat of one hold."""

    def beat(self) -> bool:
        """Write the next number. False: somebody else has written here, so the hold is no longer ours."""

    def release(self) -> None:
        """Write that the hold is over."""

    def close(self) -> None:
        """Let go of what it has open. Writes nothing."""


def start_heart(store: Store, fence: int, nonce: str) -> Heart:
    """
    The heart of a new hold, before its first beat.

    Raises:
        StoreError: the heartbeat cannot be made.
    """
    if isinstance(store, LocalDirectory):
        return _InPlace(store.open(_keys.beat(fence), _NEW), nonce)
    return _BySwap(store, _keys.beat(fence), nonce)


class _InPlace:
    def __init__(self, fd: int, nonce: str) -> None:
        self._fd = fd
        self._nonce = nonce
        self._number = 0

    def beat(self) -> bool:
        self._write(self._number + 1, "held")
        self._number += 1
        return True

    def release(self) -> None:
        self._write(self._number + 1, "released")

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _write(self, number: int, state: State) -> None:
        record = _encode(self._nonce, number, state)
        try:
            written = os.pwrite(self._fd, record, 0)
        except OSError as error:
            raise StoreError(f"the heartbeat cannot be written: {error.strerror}", errno=error.errno) from error
        if written != len(record):
            # Disk full in the middle, which a page that exists rules out; a reader takes it for no beat.
            raise StoreError("the heartbeat could be written in part only")


class _BySwap:
    """
    A version of None means that there is no heartbeat of ours in the store yet.

    A try whose outcome is unclear is settled by its bytes before the next one. The bytes hold a random tag, or two
    clones of one holder would take each other's heartbeat for their own.
    """

    def __init__(self, store: Store, key: str, nonce: str) -> None:
        self._store = store
        self._key = key
        self._nonce = nonce
        self._number = 0
        self._version: str | None = None
        self._unclear: bytes | None = None

    def beat(self) -> bool:
        return self._swap("held")

    def release(self) -> None:
        self._swap("released")

    def close(self) -> None:
        pass

    def _swap(self, state: State) -> bool:
        if self._unclear is not None and self._outcome(self._unclear) == "lost":
            return False
        record = _encode(self._nonce, self._number + 1, state)
        self._unclear = record
        if self._version is None:
            self._store.create(self._key, record)
            return self._outcome(record) == "landed"
        version = self._store.replace(self._key, record, self._version)
        if version is None:
            # Refused by somebody else's heartbeat, or by our own, whose reply was lost on the way.
            return self._outcome(record) == "landed"
        self._version, self._number, self._unclear = version, self._number + 1, None
        return True

    def _outcome(self, record: bytes) -> Literal["landed", "not_applied", "lost"]:
        """What became of the try to write *record*."""
        found = self._store.read(self._key)
        self._unclear = None
        if found is not None and found.data == record:
            self._version, self._number = found.version, self._number + 1
            return "landed"
        return "not_applied" if (found.version if found else None) == self._version else "lost"
