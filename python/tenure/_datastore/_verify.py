"""Reading everything again: each entry, each list, each blob, against its digest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tenure._commit._log import CommitLog
from tenure._datastore._blobs import Blobs, Content
from tenure._datastore._changes import body_of
from tenure.errors import RecordError

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """
    Something that is wrong with a datastore.

    Attributes:
        slot: of the entry that it was found by.
        key: of the record or blob.
        reason: for people.
    """

    slot: int
    key: str
    reason: str


def verify(log: CommitLog, blobs: Blobs) -> Iterator[Damage]:
    """See `Datastore.verify`."""
    seen: set[str] = set()
    slot, fence = log.floor - 1, 0
    try:
        for entry in log.read(after=slot):
            slot = entry.slot
            if entry.fence < fence:
                yield Damage(slot, f"entry {slot}", f"its fence {entry.fence} is below {fence}, which came before it")
            fence = max(fence, entry.fence)
            try:
                body = body_of(entry)
                contents = list(body.blobs(body.read(blobs)))
            except RecordError as error:
                yield Damage(slot, error.key or f"entry {slot}", error.reason)
                continue
            for content in contents:
                if content.key not in seen:
                    seen.add(content.key)
                    problem = _read(blobs, content)
                    if problem is not None:
                        yield Damage(slot, content.key, problem)
    except RecordError as error:
        # Nothing after it is believed by anybody.
        yield Damage(slot + 1, error.key or f"entry {slot + 1}", error.reason)


def _read(blobs: Blobs, content: Content) -> str | None:
    try:
        with blobs.open(content) as source:
            while source.read(_PIECE):
                pass
    except RecordError as error:
        return error.reason
    return None
