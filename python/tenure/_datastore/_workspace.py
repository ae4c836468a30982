"""What the writer of a checkout, its recovery and its retention work with: the parts of one checkout, and where it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tenure._commit._log import CommitLog
from tenure._commit._marker import CrashMarker
from tenure._commit._outbox import Outbox
from tenure._datastore._apply import Applier, Progress
from tenure._datastore._blobs import Blobs
from tenure._datastore._catalog import Catalog
from tenure._datastore._worktree import Worktree


@dataclass(slots=True)
class Workspace:
    """
    The parts of one checkout.

    Attributes:
        log, blobs: of the datastore.
        worktree: the files.
        catalog: what they are known to be.
        outbox: the commits that are under way, in the catalog's database.
        marker: says that files are under way.
        label: what the writers of this checkout do, for people.
        snapshot: the slot of the newest one that is known of; 0 for none.
    """

    log: CommitLog
    blobs: Blobs
    worktree: Worktree
    catalog: Catalog
    outbox: Outbox
    marker: CrashMarker
    label: str | None = None
    snapshot: int = 0

    def applier(
        self, *, aside: str, before_batch: Callable[[], None] | None = None, progress: Progress | None = None
    ) -> Applier:
        """What brings files into a committed state; see `Applier`."""
        return Applier(
            self.worktree, self.catalog, self.blobs, aside=aside, before_batch=before_batch, progress=progress
        )
