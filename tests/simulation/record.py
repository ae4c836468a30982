"""What the processes of a simulation were told, and whether it is true."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Literal

from tenure._commit._entry import Entry

Outcome = Literal["pending", "landed", "failed", "unknown"]


@dataclass
class Operation:
    """One commit, as its writer saw it; steps are those of the scheduler."""

    id: str
    invoked: int
    completed: int | None = None
    outcome: Outcome = "pending"
    slot: int | None = None


@dataclass
class History:
    """All that anybody was told."""

    operations: dict[str, Operation] = field(default_factory=dict)
    # Of each reader: the ids that it applied, in order; a snapshot stands for all that it says it replaces.
    readers: dict[str, list[list[str]]] = field(default_factory=dict)
    # Ids that a recovery has reported as conflicted; in these scenes nothing conflicts.
    settled: dict[str, str] = field(default_factory=dict)

    def invoke(self, commit_id: str, step: int) -> Operation:
        return self.operations.setdefault(commit_id, Operation(commit_id, step))


def check(history: History, log: list[Entry]) -> list[str]:
    """What is wrong, in words; nothing if all is well."""
    wrong: list[str] = []
    commits = [entry for entry in log if entry.kind == "commit"]
    slots: dict[str, int] = {}
    for entry in commits:
        if entry.id in slots:
            wrong.append(f"{entry.id} landed twice, at {slots[entry.id]} and {entry.slot}")
        slots.setdefault(entry.id, entry.slot)
    for before, after in itertools.pairwise(log):
        if after.fence < before.fence:
            wrong.append(f"the fence falls from {before.fence} to {after.fence} at {after.slot}")
        if after.fence > before.fence and after.kind != "seal":
            wrong.append(f"fence {after.fence} writes at {after.slot} without having sealed")
    for operation in history.operations.values():
        slot = slots.get(operation.id)
        if operation.outcome == "landed" and slot is None:
            wrong.append(f"{operation.id} was acknowledged and is not in the log")
        if operation.outcome == "landed" and operation.slot is not None and slot is not None and slot > operation.slot:
            wrong.append(f"{operation.id} was acknowledged at {operation.slot} and is at {slot}")
        if operation.outcome == "failed" and slot is not None:
            wrong.append(f"{operation.id} was reported failed and is at {slot}")
    wrong += _out_of_order(history, slots)
    for reader, followed in history.readers.items():
        wrong += [f"reader {reader}: {problem}" for ids in followed if (problem := _not_a_prefix(ids, commits))]
    return wrong


def _out_of_order(history: History, slots: dict[str, int]) -> list[str]:
    """What was acknowledged before another one was even begun, stands before it."""
    wrong = []
    done = sorted(
        (
            operation
            for operation in history.operations.values()
            if operation.outcome == "landed" and operation.id in slots
        ),
        key=lambda operation: operation.invoked,
    )
    ended = sorted(done, key=lambda operation: operation.completed or 0)
    furthest, last, index = -1, "", 0
    for operation in done:
        while index < len(ended) and (ended[index].completed or 0) < operation.invoked:
            if slots[ended[index].id] > furthest:
                furthest, last = slots[ended[index].id], ended[index].id
            index += 1
        if slots[operation.id] < furthest:
            wrong.append(f"{operation.id} stands before {last}, which was acknowledged before it began")
    return wrong


def _not_a_prefix(ids: list[str], commits: list[Entry]) -> str | None:
    expected = [entry.id for entry in commits[: len(ids)]]
    if ids == expected:
        return None
    where = next(
        (index for index, pair in enumerate(zip(ids, expected, strict=False)) if pair[0] != pair[1]), len(expected)
    )
    return f"applied {ids[where : where + 1]} as number {where + 1}, the log has {expected[where : where + 1]}"
