"""
Putting a checkout right after a writer that died in it. Only ever under a claim of one's own, and under the checkout's lock.

First what was prepared is landed, then the files follow the log, then whatever still differs from what was committed is moved
aside and the committed content put back. The dead writer's marker goes last: cut off anywhere, all of it is done again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure._commit._marker import CrashMarker, Run
from tenure._commit._outbox_recovery import RecoveryReport
from tenure._commit._standing import Standings
from tenure._datastore._apply import Applier
from tenure._datastore._staging import Journal
from tenure._datastore._workspace import Workspace
from tenure._failpoints import reach
from tenure._lease._hold import Hold
from tenure.errors import WriterBusyError


@dataclass(frozen=True, slots=True)
class Recovered:
    """
    What was put right.

    Attributes:
        outbox: what became of prepared commits.
        interrupted: fences of the writers that had died in this checkout.
        moved_aside: files that were not committed, where they are now, relative to the checkout; nothing is deleted.
        restored: how many files got their committed content back.
    """

    outbox: RecoveryReport = field(default_factory=RecoveryReport)
    interrupted: tuple[int, ...] = ()
    moved_aside: tuple[str, ...] = ()
    restored: int = 0

    def __bool__(self) -> bool:
        """Whether there was anything to be put right."""
        return bool(
            self.interrupted or self.moved_aside or self.restored or self.outbox.landed or self.outbox.conflicted
        )


def interrupted_runs(marker: CrashMarker, standings: Standings) -> list[Run]:
    """
    The writers that died in this checkout.

    Raises:
        WriterBusyError: one lives, or may: its files must not be touched.
    """
    runs = marker.runs(standings)
    for run in runs:
        if run.state != "interrupted":
            raise busy(run)
    return runs


def busy(run: Run) -> WriterBusyError:
    """That the writer of *run* is at work in this checkout."""
    return WriterBusyError(
        f"a writer is at work in this checkout, or may be. fence=`{run.author.fence}`, doing=`{run.label}`, "
        f"reason=`{run.judgement.reason}`",
        hint="wait until it ends; its files are left alone",
        fence=run.author.fence or 0,
        holder=f"fence {run.author.fence}",
        judgement=run.judgement,
        label=run.label,
        since=run.since,
        retry_after_s=None,
    )


def restore(runs: list[Run], workspace: Workspace, hold: Hold, applier: Applier) -> int:
    """Put back what was committed, where *runs* have left something else; how many files."""
    if not runs:
        return 0
    restored = sum(applier.restore(tracked) for tracked in workspace.catalog.files())
    reach("checkout.restored")
    for run in runs:
        if run.author.fence is None:
            continue
        journal = Journal(workspace.worktree.own, run.author.fence)
        for name in journal.names():
            # What it had made anew, and never committed.
            if workspace.catalog.get(name) is None and workspace.worktree.stamp(name) is not None:
                applier.move_aside(name)
        journal.remove()
    workspace.worktree.clear_temporary()
    reach("checkout.cleaned")
    for run in runs:
        workspace.marker.clear(run, hold)
        reach("checkout.cleared")
    return restored
