"""
Landing what a dead writer of this checkout had prepared: late, so never in front of what others have committed since.

A prepared commit that touches a file which has moved since its base is *conflicted*: it is kept and reported, and changes nothing.
So is one whose content is gone, and one whose base is so old that nobody can tell any more.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from tenure._commit._entry import Entry
from tenure._commit._log import CommitLog
from tenure._commit._outbox import Outbox
from tenure._commit._outbox_recovery import Landing
from tenure._commit._outbox_table import OutboxEntry
from tenure._commit._writer import LogWriter, Prepared
from tenure._datastore._blobs import Blobs, Content
from tenure._datastore._changes import Change, body_of, collect_body
from tenure.errors import RecordError


class Lander:
    """Lands the entries of one outbox; `land` is for `Outbox.recover`."""

    def __init__(self, log: CommitLog, writer: LogWriter, blobs: Blobs, outbox: Outbox) -> None:
        self._log = log
        self._writer = writer
        self._blobs = blobs
        self._since = self._oldest_base(outbox)
        # What has changed since the oldest base, and where last; and what was condemned meanwhile.
        self._moved: dict[str, int] = {}
        self._condemned: set[str] = set()
        # Below this, changes can have been collected before we could see them.
        self._known_from = 0
        self._read_to = self._since

    @staticmethod
    def _oldest_base(outbox: Outbox) -> int:
        bases: list[int] = []
        for state in ("prepared", "landing"):
            for entry in outbox.entries(state):
                # One that cannot be read is named when it is its turn, and must not keep the others from landing.
                with suppress(RecordError):
                    bases.append(Prepared(entry.commit_id, entry.slot or 1, entry.data).entry.base)
        return min(bases, default=0)

    def land(self, entry: OutboxEntry) -> Landing:
        """Whether *entry* is in the log now; see `Outbox.recover`."""
        if entry.slot is None:
            raise RecordError(
                "an entry without a slot", hint="see `tenure status`", key=entry.commit_id, reason="no slot"
            )
        prepared = Prepared(entry.commit_id, entry.slot, entry.data)
        state = self._log.resolve(prepared)
        if state == "landed":
            return "landed"
        if state == "unknown" and entry.slot < self._log.floor:
            # Kept and reported like any other that cannot land; left undecided it would hold the floor for ever.
            return "conflicted", "its slot was collected, and nobody can tell any more whether it landed"
        if state == "unknown":
            return "undecided", "its slot is still free"
        late = prepared.entry
        changes = list(body_of(late).read(self._blobs))
        reason = self._conflict(late, changes)
        if reason is not None:
            return "conflicted", reason
        lost = next((one.name for one in changes if one.content is not None and not self._is_there(one.content)), None)
        if lost is not None:
            return "conflicted", f"the content of {lost!r} is gone"
        now = (Change(change.name, change.content and self._kept(change.content)) for change in changes)
        body = collect_body(now, self._blobs, self._writer.fence, message=body_of(late).message)
        self._writer.put(self._writer.prepare(body.to_json(), id=late.id, base=late.base))
        return "landed"

    def _is_there(self, content: Content) -> bool:
        return content.data is not None or self._blobs.has(content)

    def _kept(self, content: Content) -> Content:
        """*content* where nobody will delete it: one that was condemned, a sleeping collector may yet remove."""
        if content.data is not None or content.key not in self._condemned:
            return content
        fresh = replace(content, fence=self._writer.fence, turn=0)
        with self._blobs.open(content) as source:
            self._blobs.put(fresh, source)
        return fresh

    def _conflict(self, late: Entry, changes: list[Change]) -> str | None:
        self._read_on()
        if late.base < self._known_from:
            return f"what has changed since version {late.base} was collected"
        moved = next((change.name for change in changes if self._moved.get(change.name, 0) > late.base), None)
        return (
            None
            if moved is None
            else f"{moved!r} has changed in version {self._moved[moved]}, it was based on {late.base}"
        )

    def _read_on(self) -> None:
        for entry in self._log.read(after=self._read_to):
            if entry.slot > self._read_to + 1:
                self._known_from = entry.slot
            self._read_to = entry.slot
            if entry.kind != "commit":
                continue
            body = body_of(entry)
            self._condemned.update(body.condemned)
            for change in body.read(self._blobs):
                self._moved[change.name] = entry.slot
