"""
Giving up old versions, and the content that only they had.

Only under a current hold, and the store is asked first: a command that was replaced while it slept must not tidy up for its
successor. Content is condemned by a commit, and deleted by a later pass; see `_blobs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure._clock import seconds_since
from tenure._commit._writer import LogWriter, Prepared
from tenure._datastore._blobs import Content, content_of_key
from tenure._datastore._changes import body_of, collect_body
from tenure._failpoints import reach
from tenure.errors import FencedError, StoreCannotLockError

if TYPE_CHECKING:
    from tenure._commit._entry import Entry
    from tenure._datastore._workspace import Workspace
    from tenure._datastore._writer import CheckoutWriter

# Keys in one commit, which is bounded.
_CONDEMNED_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class Retained:
    """
    What a pass of retention did.

    Attributes:
        skipped: why nothing was done at all, or None.
        oldest: the oldest version that can still be read.
        entries: how many entries of the log were removed.
        condemned: how many blobs nobody may refer to any more; a later pass deletes them.
        deleted: how many blobs, condemned before, were deleted.
    """

    skipped: str | None = None
    oldest: int = 0
    entries: int = 0
    condemned: int = 0
    deleted: int = 0


def check_terms(keep: int | None, older_than: float | None) -> None:
    """Raise `ValueError` unless they say what to keep."""
    if keep is None and older_than is None:
        raise ValueError("say what to keep: keep=VERSIONS, older_than=SECONDS, or both")
    if keep is not None and keep < 1:
        raise ValueError(f"keep must be 1 or more versions, not {keep!r}")
    if older_than is not None and not older_than >= 0:
        raise ValueError(f"older_than must be 0 or more seconds, not {older_than!r}")


def retain(writer: CheckoutWriter, workspace: Workspace, log: LogWriter, wanted: int) -> Retained:
    """Give up what is older than the version *wanted*, as far as that goes; see `Checkout.retain`."""
    try:
        writer.hold.check()
        return _retain(writer, workspace, log, wanted)
    except (FencedError, StoreCannotLockError) as error:
        return Retained(skipped=str(error))


def _retain(writer: CheckoutWriter, workspace: Workspace, log: LogWriter, wanted: int) -> Retained:
    undecided = workspace.outbox.undecided_floor()
    if undecided is not None:
        wanted = min(wanted, undecided)
    position = workspace.catalog.position
    if wanted >= position and workspace.snapshot < position:
        # Only the newest state is wanted, and nothing sums it up yet.
        position = wanted = writer.snapshot().slot
    floor = max((slot for slot in workspace.log.snapshots() if slot <= wanted), default=0)
    # Before anything is condemned: what was condemned by earlier passes nobody refers to since.
    ripe = [key for key, slot in workspace.catalog.condemned() if slot <= position]
    entries = 0
    if floor > workspace.log.floor:
        entries = log.collect(floor, undecided=undecided)
        reach("retention.collected")
    condemned = _condemn(workspace, log, set(ripe))
    reach("retention.condemned")
    deleted = 0
    for key in ripe:
        if deleted % 100 == 0:
            writer.hold.check()
        workspace.blobs.delete(key)
        reach("retention.deleted")
        deleted += 1
    # Not our own: under this hold such a name is never used again, as a delete of it may still be on its way.
    workspace.catalog.forget_condemned([key for key in ripe if _fence_of(key) != log.fence])
    return Retained(None, max(workspace.log.floor, 1), entries, condemned, deleted)


def oldest_wanted(workspace: Workspace, keep: int | None, older_than: float | None) -> int:
    """The oldest version that must stay readable."""
    position = workspace.catalog.position
    commits = [entry for entry in workspace.log.read(after=workspace.log.floor) if entry.kind == "commit"]
    wanted: list[int] = []
    if keep is not None:
        wanted.append(commits[-keep].slot if len(commits) >= keep > 1 else position if keep == 1 else 0)
    if older_than is not None:
        # By the writers' wall clocks, like every promise of this kind; it decides what is kept for people and nothing else.
        young = (entry.slot for entry in commits if not _is_older(entry, older_than))
        wanted.append(next(young, position))
    return min(wanted)


def _is_older(entry: Entry, seconds: float) -> bool:
    try:
        return entry.at is not None and seconds_since(entry.at) > seconds
    except (ValueError, TypeError):
        return False


def _fence_of(key: str) -> int | None:
    content = content_of_key(key)
    return None if content is None else content.fence


def _condemn(workspace: Workspace, log: LogWriter, before: set[str]) -> int:
    """Condemn, by commits, what no version that is kept and no prepared commit refers to."""
    used = {content.key for content in _used(workspace)}
    unused = [key for key in workspace.blobs.names() if key not in used and key not in before]
    for start in range(0, len(unused), _CONDEMNED_AT_ONCE):
        page = unused[start : start + _CONDEMNED_AT_ONCE]
        body = collect_body((), workspace.blobs, log.fence, message="condemn content that nobody uses", condemned=page)
        done = log.commit(body.to_json())
        with workspace.catalog.database.transaction():
            workspace.catalog.condemn(page, done.slot)
            workspace.catalog.apply((), (), done.slot)
    return len(unused)


def _used(workspace: Workspace) -> Iterator[Content]:
    for entry in workspace.log.read(after=workspace.log.floor - 1):
        body = body_of(entry)
        yield from body.blobs(body.read(workspace.blobs))
    for state in ("prepared", "landing", "conflicted"):
        for kept in workspace.outbox.entries(state):
            body = body_of(Prepared(kept.commit_id, kept.slot or 1, kept.data).entry)
            yield from body.blobs(body.read(workspace.blobs))
