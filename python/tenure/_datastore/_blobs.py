"""
Content outside the log: named by its digest and by the fence of the writer that stored it.

The fence is in the name because a store cannot fence a delete. A collector first *condemns* a name in a log entry and deletes it
later; a writer that needs condemned content stores it anew, under its own fence. So a collector that slept can delete only what
nobody refers to any more.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeGuard, cast

from tenure.errors import RecordError, RecordTooNewError
from tenure.stores import Store, as_streams

PREFIX = "blob/"
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Where the store takes records only. Well below their bound, and few requests for a large file.
_PIECE = 512 * 1024
_READ = 1 << 20
# Of the record that ends a blob in pieces.
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Content:
    """
    What a file contains, and where that lies: in `data` itself if it is small, else in the blob of `fence`.

    Attributes:
        size: in bytes.
        sha256: of all of them, as 64 hex digits.
        data: the content itself, or None.
        fence: of the writer that stored the blob, or None.
        turn: how often that writer had seen this very blob condemned before.
    """

    size: int
    sha256: str
    data: bytes | None = None
    fence: int | None = None
    turn: int = 0

    @property
    def key(self) -> str:
        """Where the blob lies."""
        assert self.fence is not None
        # 256 directories, so that none of them is too large to list.
        name = f"{PREFIX}{self.sha256[:2]}/{self.sha256}.{self.fence:020d}"
        return f"{name}.{self.turn}" if self.turn else name

    def is_same_as(self, other: Content | None) -> bool:
        """Whether both are the same bytes, wherever they lie."""
        return other is not None and (self.size, self.sha256) == (other.size, other.sha256)


def content_of_key(key: str) -> Content | None:
    """The blob that *key* names, of unknown size; None if it names none."""
    match = re.fullmatch(rf"{PREFIX}([0-9a-f]{{2}})/(\1[0-9a-f]{{62}})\.([0-9]{{20}})(?:\.([1-9][0-9]{{0,8}}))?", key)
    return None if match is None else Content(-1, match[2], fence=int(match[3]), turn=int(match[4] or 0))


def is_digest(text: object) -> TypeGuard[str]:
    """Whether *text* is a SHA-256; asked of records, since it becomes part of a key."""
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None


class Checked(io.RawIOBase):
    """
    Reads *source* through, and calls *mismatch* at its end unless it was exactly *size* bytes with the digest *sha256*.

    Whoever copies from it has not yet said "done" when that raises. *progress* hears how many bytes were read so far.
    """

    def __init__(
        self,
        source: BinaryIO,
        size: int,
        sha256: str,
        mismatch: Callable[[int, str], Exception],
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._source = source
        self._progress = progress
        self._expected = (size, sha256)
        self._mismatch = mismatch
        self._start()

    def _start(self) -> None:
        self._size = 0
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._source.seekable()

    def seek(self, offset: int, whence: int = 0) -> int:
        """Back to the beginning, and nowhere else: for a copy that has to start over."""
        if (offset, whence) != (0, 0):
            raise io.UnsupportedOperation("only back to the beginning")
        self._start()
        return self._source.seek(0)

    def tell(self) -> int:
        return self._size

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._source.read(len(buffer))
        buffer[: len(piece)] = piece
        return self._took(piece)

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(_READ), b""))
        piece = self._source.read(size)
        self._took(piece)
        return piece

    def _took(self, piece: bytes) -> int:
        self._hash.update(piece)
        self._size += len(piece)
        if not piece or self._size > self._expected[0]:
            found = (self._size, self._hash.hexdigest())
            if found != self._expected:
                raise self._mismatch(*found)
        if piece and self._progress is not None:
            self._progress(self._size)
        return len(piece)

    def close(self) -> None:
        self._source.close()
        super().close()


class Blobs:
    """The blobs of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._streams = as_streams(store)

    def put(self, content: Content, source: BinaryIO) -> None:
        """
        Store what *source* gives as the blob that *content* names: durable when this returns, and nothing if it raises.

        Raises:
            StoreError: it could not be written.
        """
        if self._streams is not None:
            self._streams.put_stream(content.key, source)
            return
        pieces = 0
        while piece := source.read(_PIECE):
            self._store.create(f"{content.key}/{pieces:08d}", piece)
            pieces += 1
        # Last: whoever finds it finds all the others.
        self._store.create(f"{content.key}/end", json.dumps({"v": _SCHEMA, "pieces": pieces}).encode())

    def open(self, content: Content, progress: Callable[[int], None] | None = None) -> BinaryIO:
        """
        The bytes of *content*, checked while they are read: the end is reached only if they are the right ones.

        *progress* hears how many bytes of a blob have arrived so far.

        Raises:
            RecordError: the blob is missing; while reading, also: it is damaged.
            StoreError: the store cannot be read.
        """
        if content.data is not None:
            return io.BytesIO(content.data)
        found = self._found(content)
        if found is None:
            raise RecordError(
                f"a blob is missing. key=`{content.key}`, store=`{self._store.url}`",
                hint="restore it from a backup; `tenure verify` lists all that are missing",
                key=content.key,
                reason="missing",
            )

        def damaged(size: int, sha256: str) -> RecordError:
            return RecordError(
                f"a blob is damaged. key=`{content.key}`, expected=`{content.size}:{content.sha256}`, "
                f"found=`{size}:{sha256}`, store=`{self._store.url}`",
                hint="restore it from a backup; `tenure verify` lists all that are damaged",
                key=content.key,
                reason="damaged",
            )

        checked = Checked(found, content.size, content.sha256, damaged, progress)
        return cast("BinaryIO", io.BufferedReader(checked, _READ))

    def has(self, content: Content) -> bool:
        """Whether the blob is there. Raises `StoreError`."""
        found = self._found(content)
        if found is None:
            return False
        found.close()
        return True

    def _found(self, content: Content) -> BinaryIO | None:
        if self._streams is not None:
            return self._streams.get_stream(content.key)
        end = self._store.read(f"{content.key}/end")
        if end is None:
            return None
        pieces = _pieces(f"{content.key}/end", end.data)
        return cast("BinaryIO", io.BufferedReader(_Pieces(self._store, content.key, pieces)))

    def names(self) -> Iterator[str]:
        """The names of all blobs, whether anybody refers to them or not; those that were cut off in the making too."""
        last = None
        for key in self._store.list(PREFIX):
            name = key if content_of_key(key) is not None else key.rpartition("/")[0]
            if name != last and content_of_key(name) is not None:
                last = name
                yield name

    def delete(self, key: str) -> None:
        """Remove a blob that was condemned. Already gone is what was wanted."""
        if self._streams is None:
            # The end first: then it is missing, and never half there.
            self._store.delete(f"{key}/end")
            for piece in list(self._store.list(f"{key}/")):
                self._store.delete(piece)
            return
        self._store.delete(key)


def _pieces(key: str, data: bytes) -> int:
    """How many pieces a blob has, as the record at its end says."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        fields = None
    schema, pieces = (fields.get("v"), fields.get("pieces")) if isinstance(fields, dict) else (None, None)
    if isinstance(schema, int) and schema > _SCHEMA:
        raise RecordTooNewError(
            f"a newer tenure wrote this blob. key=`{key}`, schema=`{schema}`, understood=`{_SCHEMA}`",
            hint="upgrade tenure on this machine",
            key=key,
            reason=f"schema {schema}",
            schema=schema,
            understood=_SCHEMA,
        )
    if (
        schema != _SCHEMA
        or isinstance(schema, bool)
        or isinstance(pieces, bool)
        or not isinstance(pieces, int)
        or pieces < 0
    ):
        raise RecordError(
            f"the end of a blob is damaged. key=`{key}`",
            hint="restore it from a backup; `tenure verify` lists all that are damaged",
            key=key,
            reason="damaged",
        )
    return pieces


class _Pieces(io.RawIOBase):
    def __init__(self, store: Store, key: str, count: int) -> None:
        self._pieces = (f"{key}/{number:08d}" for number in range(count))
        self._store = store
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            key = next(self._pieces, None)
            if key is None:
                return 0
            stored = self._store.read(key)
            if stored is None:
                raise RecordError(
                    f"a piece of a blob is missing. key=`{key}`, store=`{self._store.url}`",
                    hint="restore it from a backup; `tenure verify` lists all that are missing",
                    key=key,
                    reason="missing",
                )
            self._rest = stored.data
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
