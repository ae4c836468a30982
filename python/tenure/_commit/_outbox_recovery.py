"""
Landing what others have prepared: marked first, landed next, settled last, a batch at a time.

A batch costs two syncs, however many entries it has. What is lost when it is cut off between them is only the knowledge that
an entry has landed; the next recovery, with a higher fence, lands it again, and the log knows the id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from tenure._commit._outbox_table import OutboxEntry, Table
from tenure._commit._standing import Standings, treatment
from tenure._failpoints import reach
from tenure._lease._hold import Hold
from tenure.errors import ContentMismatchError, Error, RecordError

Outcome = Literal["landed", "conflicted", "undecided"]
Landing = Outcome | tuple[Outcome, str]


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """
    What `Outbox.recover` did.

    Attributes:
        landed: entries that are in the log now.
        skipped: left alone, since their writer is alive or may be.
        conflicted: kept and never landed: what they change has moved on. `Outbox.entries("conflicted")` lists them.
        undecided: tried, and nobody can tell yet; their notes say more where there was an error.
        probes: how many writers were judged.
    """

    landed: int = 0
    skipped: int = 0
    conflicted: int = 0
    undecided: int = 0
    probes: int = 0


# A message may carry what it failed on.
_MAX_NOTE = 500
# An id, the state it is in now, and why.
_Result = tuple[str, Literal["landed", "conflicted", "landing"], str | None]


def recover(
    table: Table,
    hold: Hold,
    land: Callable[[OutboxEntry], Landing],
    standings: Standings,
    progress: Callable[[int, int], None] | None,
) -> RecoveryReport:
    """See `Outbox.recover`."""
    report, done, total = RecoveryReport(), 0, table.undecided()
    for page in table.undecided_pages():
        # The log refuses us too; but not every author's log does, and what is marked for nothing stays marked.
        hold.check()
        standings.learn(heading.author for heading in page)
        mine = [heading for heading in page if treatment(standings.of(heading.author)).outbox == "land"]
        taken = table.mark_all(mine, hold.fence)
        reach("outbox.landing")
        results: list[_Result] = []
        try:
            for heading in taken:
                data = table.data(heading.number)
                if data is not None:
                    entry = replace(heading.entry(data), state="landing", landing_fence=hold.fence)
                    results.append(_land(entry, land))
                    reach("outbox.put")
        finally:
            table.settle_all(results, hold.fence)
        reach("outbox.landed")
        done += len(page)
        states = [state for _, state, _ in results]
        report = RecoveryReport(
            landed=report.landed + states.count("landed"),
            skipped=report.skipped + len(page) - len(mine),
            conflicted=report.conflicted + states.count("conflicted"),
            undecided=report.undecided + states.count("landing"),
            probes=standings.probes,
        )
        if progress is not None:
            # Some may have been prepared since they were counted.
            progress(done, max(done, total))
    return report


def _land(entry: OutboxEntry, land: Callable[[OutboxEntry], Landing]) -> _Result:
    try:
        answer = land(entry)
    except Exception as error:
        if isinstance(error, Error) and not isinstance(error, (RecordError, ContentMismatchError)):
            raise
        return entry.commit_id, "landing", f"{type(error).__name__}: {error}"[:_MAX_NOTE]
    outcome, note = answer if isinstance(answer, tuple) else (answer, None)
    if outcome not in ("landed", "conflicted", "undecided"):
        raise ValueError(f"landing must answer 'landed', 'conflicted' or 'undecided', not {outcome!r}")
    return entry.commit_id, "landing" if outcome == "undecided" else outcome, note
