"""
Blobs in a bucket: content of any size under a key that names it, in parts where it is large.

A key that names its content needs no condition: whoever writes it brings the same bytes. So here the client may try again
by itself, part by part, which it must not for records.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from tenure._store._object_answers import Answer, store_error
from tenure.errors import StoreError

if TYPE_CHECKING:
    from tenure._store._object import ObjectStore

_PART_BYTES = 8 << 20
_AT_ONCE = 8
_PIECE_BYTES = 1 << 20


def put(store: ObjectStore, key: str, source: BinaryIO) -> bool:
    """See `ObjectStore.put_stream`."""
    first = _filled(source)
    client = store.client_for_blobs()
    if len(first) < _PART_BYTES:
        answer = store.ask(lambda _: client.put(key, first, mode="create", use_multipart=False))
        if not isinstance(answer, Answer):
            return True
        if answer.kind == "refused" and _is_there(store, key):
            return False
    elif _is_there(store, key):
        # Read to its end all the same: a source that finds its content changed says so there.
        for _ in _pieces(first, source):
            pass
        return False
    # Written whatever the outcome of the first request was: it is the same content.
    pieces = _pieces(first, source)
    answer = store.ask(
        lambda _: client.put(
            key,
            first if len(first) < _PART_BYTES else pieces,
            use_multipart=len(first) >= _PART_BYTES,
            chunk_size=_PART_BYTES,
            max_concurrency=_AT_ONCE,
        )
    )
    if isinstance(answer, Answer):
        raise _error(store, answer, key, "store a blob", applied=None)
    return True


def get(store: ObjectStore, key: str) -> BinaryIO | None:
    """See `ObjectStore.get_stream`."""
    client = store.client_for_blobs()
    found = store.ask(lambda _: client.get(key))
    if isinstance(found, Answer):
        if found.kind == "absent":
            return None
        raise _error(store, found, key, "read a blob", applied=False)
    return _Body(store, key, found)


class _Body(io.BufferedIOBase, BinaryIO):
    """What arrives of an object, in order. Not a raw stream behind a buffer, which would copy it once more."""

    def __init__(self, store: ObjectStore, key: str, found: Any) -> None:
        self._store = store
        self._key = key
        self._stream = found.stream(min_chunk_size=_PIECE_BYTES)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        pieces, wanted = [], sys.maxsize if size is None or size < 0 else size
        while wanted and (piece := self.read1(wanted)):
            pieces.append(piece)
            wanted -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read1(self, size: int = -1, /) -> bytes:
        if not self._left:
            piece = self._next()
            if not 0 <= size < len(piece):
                return piece
            self._left = memoryview(piece)
        size = len(self._left) if size < 0 else size
        found, self._left = bytes(self._left[:size]), self._left[size:]
        return found

    def _next(self) -> bytes:
        piece = self._store.ask(lambda _: next(self._stream, b""))
        if isinstance(piece, Answer):
            raise _error(self._store, piece, self._key, "read a blob", applied=False)
        return piece


def _filled(source: BinaryIO) -> bytes:
    """A whole part, or what there is: one read of a pipe or a socket brings less."""
    pieces, left = [], _PART_BYTES
    while left and (piece := source.read(left)):
        pieces.append(piece)
        left -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _pieces(first: bytes, source: BinaryIO) -> Iterator[bytes]:
    piece = first
    while piece:
        yield piece
        piece = _filled(source)


def _is_there(store: ObjectStore, key: str) -> bool:
    answer = store.ask(lambda client: client.head(key))
    if not isinstance(answer, Answer):
        return True
    if answer.kind in ("absent", "unclear", "unsent"):
        # Stored again, then.
        return False
    raise _error(store, answer, key, "look for a blob", applied=False)


def _error(store: ObjectStore, answer: Answer, key: str, doing: str, *, applied: bool | None) -> StoreError:
    return store_error(answer, store.where, key, doing, applied=applied)
