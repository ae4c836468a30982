"""The state of the datastore at any slot of its log that is still kept: the newest snapshot before it, and what came after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Literal

from tenure._commit._entry import Entry
from tenure._commit._log import CommitLog
from tenure._datastore._blobs import Blobs
from tenure._datastore._changes import Change, body_of
from tenure.errors import RecordError


@dataclass(frozen=True, slots=True)
class FileInfo:
    """
    A file in one version of the datastore.

    Attributes:
        name: of the file.
        size: in bytes.
        sha256: of its content, as 64 hex digits.
        slot: the version that changed it last.
    """

    name: str
    size: int
    sha256: str
    slot: int


@dataclass(frozen=True, slots=True)
class LogLine:
    """
    One entry of the log, as `Datastore.log` and `tenure log` show it.

    Attributes:
        slot: its place, which is also the version of the state that it made.
        kind: `commit`, `snapshot` or `seal`.
        id: of the commit.
        fence: of its writer.
        at: when, by the writer's wall clock; for people.
        message: of the commit, or None.
        count: how many files it changed; of a snapshot, how many there were.
    """

    slot: int
    kind: Literal["seal", "commit", "snapshot"]
    id: str
    fence: int
    at: str | None
    message: str | None
    count: int

    @staticmethod
    def of(entry: Entry) -> LogLine:
        """*entry*, as a line."""
        body = body_of(entry)
        return LogLine(entry.slot, entry.kind, entry.id, entry.fence, entry.at, body.message, body.count)


class View:
    """Looks into the log of one datastore."""

    def __init__(self, log: CommitLog, blobs: Blobs) -> None:
        self._log = log
        self._blobs = blobs

    def entries(self, at: int | None) -> Iterator[Entry]:
        """
        The entries that make the state at the slot *at* (the newest if None), beginning with a snapshot if there is one.

        Raises:
            ValueError: there is no such slot, or it was collected.
            RecordError, StoreError: as `CommitLog.read`.
        """
        snapshots = self._log.snapshots()
        floor = self._log.floor
        if at is not None and at < max(floor, 1):
            raise ValueError(f"there is no version {at} any more, or never was: the oldest is {max(floor, 1)}")
        start = max((slot for slot in snapshots if at is None or slot <= at), default=0)
        newest = start
        for entry in self._log.read(after=start - 1):
            if at is not None and entry.slot > at:
                return
            if entry.kind == "snapshot" and entry.slot > start and entry.slot != newest + 1:
                raise RecordError(
                    f"version {at} was collected while it was read. store=`{self._log.store.url}`",
                    hint="read it again",
                    key=None,
                    reason="collected",
                )
            newest = entry.slot
            yield entry
        if at is not None and newest < at:
            raise ValueError(f"there is no version {at} yet: the newest is {newest}")

    def find(self, name: str, at: int | None) -> Change | None:
        """
        The file *name* in the state at *at*; None if there was none.

        Raises:
            As `entries`.
        """
        found: Change | None = None
        for number, entry in enumerate(self.entries(at)):
            if entry.kind == "seal" or (entry.kind == "snapshot" and number):
                # A snapshot in the midst says nothing new.
                continue
            for change in body_of(entry).read(self._blobs):
                if change.name == name:
                    found = Change(name, change.content, change.slot or entry.slot)
        return None if found is None or found.content is None else found

    def files(self, at: int | None) -> Iterator[Change]:
        """
        All files in the state at *at*, sorted by name. What changed since the snapshot is in memory, the rest is not.

        Raises:
            As `entries`.
        """
        later: dict[str, Change] = {}
        snapshot: Entry | None = None
        for number, entry in enumerate(self.entries(at)):
            if entry.kind == "snapshot" and number == 0:
                snapshot = entry
            elif entry.kind == "commit":
                for change in body_of(entry).read(self._blobs):
                    later[change.name] = Change(change.name, change.content, entry.slot)
        before = () if snapshot is None else body_of(snapshot).read(self._blobs)
        untouched = (change for change in before if change.name not in later)
        for change in merge(untouched, sorted(later.values(), key=_name), key=_name):
            if change.content is not None:
                yield change


def _name(change: Change) -> str:
    return change.name
