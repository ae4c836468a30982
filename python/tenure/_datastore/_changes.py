"""
What a commit of the datastore says: which files changed to what, as the body of an entry.

A long list goes into a blob, since an entry is bounded; then the body names that blob. Bodies are untrusted input: a name that
could lead out of a checkout, or a digest that is none, makes the entry damaged.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeGuard, cast

from tenure._commit._entry import Entry
from tenure._datastore._blobs import Blobs, Content, content_of_key, is_digest
from tenure._datastore._names import is_normal
from tenure.errors import RecordError

# Content of at most this many bytes travels in the list itself.
INLINE_BYTES = 8192
# Of JSON, before the list is put into a blob.
_SPILL_BYTES = 256 * 1024
_MAX_SIZE = 2**63 - 1
# As many as the key of a blob has room for.
_MAX_TURN = 10**9 - 1


@dataclass(frozen=True, slots=True)
class Change:
    """One file and what it became; `content` is None where it was removed. `slot` is of a snapshot: its last change."""

    name: str
    content: Content | None
    slot: int = 0


@dataclass(frozen=True, slots=True)
class Body:
    """
    The body of an entry.

    Attributes:
        message: of the commit, for people.
        count: how many files it changes; of a snapshot, how many there are.
        changes: the list, or None where it lies in a blob.
        spilled: that blob.
        condemned: keys of blobs that nobody may refer to any more.
    """

    message: str | None = None
    count: int = 0
    changes: tuple[Change, ...] | None = ()
    spilled: Content | None = None
    condemned: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What stands in the entry."""
        body: dict[str, Any] = {"message": self.message, "count": self.count}
        if self.spilled is not None:
            body["spilled"] = _record(self.spilled)
        else:
            body["changes"] = [_line(change) for change in self.changes or ()]
        if self.condemned:
            body["condemned"] = list(self.condemned)
        return body

    def read(self, blobs: Blobs) -> Iterator[Change]:
        """
        Its changes, one by one.

        Raises:
            RecordError: the list is missing or damaged.
            StoreError: the store cannot be read.
        """
        if self.spilled is None:
            yield from self.changes or ()
            return
        key = self.spilled.key
        with blobs.open(self.spilled) as lines:
            for line in _lines(lines):
                yield _change(_loaded(line, key), key)

    def blobs(self, changes: Iterable[Change]) -> Iterator[Content]:
        """The blobs that it needs, of which *changes* are the changes."""
        if self.spilled is not None:
            yield self.spilled
        for change in changes:
            if change.content is not None and change.content.data is None:
                yield change.content


def body_of(entry: Entry) -> Body:
    """
    The body of *entry*.

    Raises:
        RecordError: it is none that a datastore writes.
    """
    key = f"entry {entry.slot}"
    if entry.kind == "seal":
        return Body()
    body = entry.body
    if not isinstance(body, dict):
        raise _damaged(key, "the body is not a JSON object")
    message, count, changes, condemned = (body.get(name) for name in ("message", "count", "changes", "condemned"))
    spilled = body.get("spilled")
    if not _is_count(count) or not (spilled is not None or isinstance(changes, list)):
        raise _damaged(key, "the body lists no changes")
    keys = condemned if isinstance(condemned, list) else []
    if not all(isinstance(one, str) and content_of_key(one) for one in keys):
        raise _damaged(key, "it condemns what is no blob")
    return Body(
        message=message if isinstance(message, str) else None,
        count=count,
        changes=None if spilled is not None else tuple(_change(one, key) for one in changes or ()),
        spilled=None if spilled is None else _list(spilled, key),
        condemned=tuple(keys),
    )


def collect_body(
    changes: Iterable[Change], blobs: Blobs, fence: int, *, message: str | None = None, condemned: Iterable[str] = ()
) -> Body:
    """
    The body that says *changes*, in memory that does not grow: a long list is put into a blob of *fence*.

    Raises:
        StoreError: that blob could not be written.
    """
    kept: list[Change] = []
    size, count = 0, 0
    with tempfile.SpooledTemporaryFile(_SPILL_BYTES) as lines:
        digest = hashlib.sha256()
        for change in changes:
            line = json.dumps(_line(change), separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
            lines.write(line)
            digest.update(line)
            size += len(line)
            count += 1
            if size <= _SPILL_BYTES:
                kept.append(change)
        if size <= _SPILL_BYTES:
            return Body(message, count, tuple(kept), None, tuple(condemned))
        lines.seek(0)
        spilled = Content(size, digest.hexdigest(), fence=fence)
        blobs.put(spilled, cast("BinaryIO", lines))
    return Body(message, count, None, spilled, tuple(condemned))


def _line(change: Change) -> dict[str, Any]:
    line: dict[str, Any] = {"name": change.name}
    if change.slot:
        line["slot"] = str(change.slot)
    if change.content is None:
        line["gone"] = True
    else:
        line.update(_record(change.content))
    return line


def _record(content: Content) -> dict[str, Any]:
    record: dict[str, Any] = {"size": content.size, "sha256": content.sha256}
    if content.data is not None:
        record["data"] = base64.b64encode(content.data).decode()
    else:
        record["blob"] = str(content.fence)
        if content.turn:
            record["turn"] = content.turn
    return record


def _change(line: object, key: str) -> Change:
    if not isinstance(line, dict):
        raise _damaged(key, f"not a change: {line!r:.80}")
    name, slot = line.get("name"), line.get("slot", "0")
    if not is_normal(name):
        raise _damaged(key, f"not a name for a file: {name!r:.200}")
    if not (isinstance(slot, str) and slot.isascii() and slot.isdigit() and len(slot) < 20):
        raise _damaged(key, f"slot: not a number as text, {slot!r:.60}")
    return Change(name, None if line.get("gone") is True else _content(line, key), int(slot))


def _content(record: object, key: str) -> Content:
    fields: dict[str, Any] = record if isinstance(record, dict) else {}
    size, digest, data = fields.get("size"), fields.get("sha256"), fields.get("data")
    if not _is_count(size):
        raise _damaged(key, f"size: expected a number of bytes, found {size!r:.60}")
    if not is_digest(digest):
        raise _damaged(key, f"sha256: expected 64 hex digits, found {digest!r:.80}")
    if isinstance(data, str):
        return Content(size, digest, data=_inline(data, size, digest, key))
    fence, turn = fields.get("blob"), fields.get("turn")
    if not (isinstance(fence, str) and fence.isascii() and fence.isdigit() and len(fence) < 20):
        raise _damaged(key, f"blob: expected a fence as text, found {fence!r:.60}")
    if not (turn is None or _is_count(turn, _MAX_TURN)):
        raise _damaged(key, f"turn: not how often a blob was condemned, {turn!r:.60}")
    return Content(size, digest, fence=int(fence), turn=turn or 0)


def _list(record: object, key: str) -> Content:
    content = _content(record, key)
    if content.data is not None:
        raise _damaged(key, "its list of changes lies in no blob")
    return content


def _is_count(value: object, most: int = _MAX_SIZE) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _inline(text: str, size: int, digest: str, key: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise _damaged(key, f"data: not base64: {error}") from error
    if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
        raise _damaged(key, "the content is not what its digest says")
    return data


def _loaded(line: bytes, key: str) -> object:
    try:
        # As text: of bytes, json would guess the encoding, line by line.
        return json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise _damaged(key, f"a line is not JSON: {error}") from error


def _lines(source: BinaryIO) -> Iterator[bytes]:
    rest = b""
    while piece := source.read(1 << 18):
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    # Reading to the very end is what checks the digest; nothing may follow the last newline.
    if rest:
        raise _damaged("a list of changes", "its last line is cut off")


def _damaged(key: str, reason: str) -> RecordError:
    return RecordError(
        f"this commit is damaged. entry=`{key}`, reason=`{reason}`",
        hint="nothing after it is read; its bytes are kept: see `tenure verify`",
        key=key,
        reason=reason,
    )
