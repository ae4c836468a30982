"""
What must hold, whoever dies, stalls or is robbed.

Some speak of a state, others of a step between two. Each is a function that answers whether it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType

from tests.model.state import Entry, Model, State, floor, referenced, undecided

_OPENED = {
    "recover",
    "land",
    "note landed",
    "ready",
    "check",
    "put",
    "unclear",
    "note",
    "snapshot",
    "condemn",
    "delete",
}


def a_commit_lands_once(model: Model, state: State) -> bool:
    ids = [entry.what for entry in state.log if entry.kind == "commit"]
    return len(ids) == len(set(ids))


def fences_never_fall(model: Model, state: State) -> bool:
    return all(one.fence <= other.fence for one, other in pairwise(state.log))


def what_is_acknowledged_is_in_the_log(model: Model, state: State) -> bool:
    return not state.acknowledged & ~_landed(state)


def acknowledged_commits_are_in_order(model: Model, state: State) -> bool:
    """Of one writer; between writers, order is what the log says."""
    last: dict[int, int] = {}
    for entry in state.log:
        if entry.kind == "commit" and state.acknowledged >> entry.what & 1:
            writer = model.scene.ops[entry.what].writer
            if last.get(writer, -1) > entry.what:
                return False
            last[writer] = entry.what
    return True


def what_is_reported_failed_is_not_in_the_log(model: Model, state: State) -> bool:
    return not _landed(state) & (state.failed | _rows(state, "withdrawn") | _rows(state, "conflicted"))


def what_is_marked_landed_is_in_the_log(model: Model, state: State) -> bool:
    return not _rows(state, "landed") & ~_landed(state)


def an_open_log_is_sealed(model: Model, state: State) -> bool:
    """Whoever reads state or writes has its seal in the true log."""
    for writer in state.writers:
        if writer.step in _OPENED and Entry("seal", writer.fence) not in state.log:
            return False
    return True


def nothing_newer_is_rewound(model: Model, state: State) -> bool:
    """Between a commit and the head that it was prepared on, nobody else has changed its path."""
    for slot, entry in enumerate(state.log, 1):
        if entry.kind != "commit":
            continue
        path = model.scene.ops[entry.what].path
        for between in state.log[entry.base : slot - 1]:
            same = between.kind == "commit" and between.what != entry.what
            if same and model.scene.ops[between.what].path == path:
                return False
    return True


def what_is_skipped_stays_landable(model: Model, state: State) -> bool:
    """
    No floor passes an undecided row, or nobody could tell any more what became of it and what has changed since.

    Not one in an outbox out of reach, nor one that was prepared after it had been sealed out.
    """
    if not model.scene.shared:
        return True
    lowest = min(
        (row.base + 1 for row in state.outbox if row is not None and undecided(row) and row.promised), default=0
    )
    return not lowest or lowest >= floor(state)


def live_content_is_there(model: Model, state: State) -> bool:
    return not model.scene.blobs or not referenced(model, state) & ~state.blobs


def a_reader_applies_the_truth(model: Model, state: State) -> bool:
    return state.reader.true


def no_fence_is_taken_twice(model: Model, before: State, after: State) -> bool:
    for one, other in zip(before.writers, after.writers, strict=True):
        if one.step == "look above" and other.step == "read head" and before.taken >> other.fence & 1:
            return False
    return True


def an_opened_log_is_closed_to_older_fences(model: Model, before: State, after: State) -> bool:
    return len(before.log) == len(after.log) or after.log[-1].fence >= before.opened


def a_lost_hold_is_joined_by_nobody(model: Model, before: State, after: State) -> bool:
    """An acquire gives no fence below one that had been taken before it was asked for."""
    for one, other in zip(before.writers, after.writers, strict=True):
        if one.step == "join" and other.step == "ready" and other.fence < one.at:
            return False
    return True


def _landed(state: State) -> int:
    found = 0
    for entry in state.log:
        if entry.kind == "commit":
            found |= 1 << entry.what
    return found


def _rows(state: State, kind: str) -> int:
    found = 0
    for which, row in enumerate(state.outbox):
        if row is not None and row.state == kind:
            found |= 1 << which
    return found


OF_A_STATE: Mapping[str, Callable[[Model, State], bool]] = MappingProxyType(
    {
        rule.__name__.replace("_", " "): rule
        for rule in (
            a_commit_lands_once,
            fences_never_fall,
            what_is_acknowledged_is_in_the_log,
            acknowledged_commits_are_in_order,
            what_is_reported_failed_is_not_in_the_log,
            what_is_marked_landed_is_in_the_log,
            an_open_log_is_sealed,
            nothing_newer_is_rewound,
            what_is_skipped_stays_landable,
            live_content_is_there,
            a_reader_applies_the_truth,
        )
    }
)
OF_A_STEP: Mapping[str, Callable[[Model, State, State], bool]] = MappingProxyType(
    {
        rule.__name__.replace("_", " "): rule
        for rule in (
            no_fence_is_taken_twice,
            an_opened_log_is_closed_to_older_fences,
            a_lost_hold_is_joined_by_nobody,
        )
    }
)
