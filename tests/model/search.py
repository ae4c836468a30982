"""Breadth first over all interleavings, so the first violation found is one of the shortest."""

from __future__ import annotations

import struct
from array import array
from collections import deque
from dataclasses import dataclass
from typing import Any

from tests.model.actions.world import moves
from tests.model.invariants import OF_A_STATE, OF_A_STEP
from tests.model.state import NUMBERS, Model, State


@dataclass(frozen=True)
class Found:
    """
    What an exploration has seen; `complete` if there was nothing left to see.

    `reached` are the steps that writers came to and the states of rows, so that a scene can be held to what it is about.
    """

    states: int
    steps: int
    depth: int
    complete: bool
    reached: frozenset[str]
    broken: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        seen = f"{self.states:,} states, {self.steps:,} steps, depth {self.depth}, "
        seen += "complete" if self.complete else "not complete"
        if not self.broken:
            return f"{seen}: no violation"
        story = [f"{number:4d}  {says}" for number, says in enumerate(self.trace, 1)]
        return "\n".join([f"{seen}: broken in {len(story)} steps: {', '.join(self.broken)}", *story])


class _Names(dict[Any, int]):
    """A number for each value, given when it is first asked for."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


class _Visited:
    """
    The states seen so far.

    Each part of a state has few values, so it is kept once and named by a number; a state is then a short string of
    bytes. Nothing is hashed away: two states are never taken for one. Source: Holzmann, "State Compression in SPIN", 1997.
    """

    def __init__(self) -> None:
        self._parts = [_Names() for _ in State._fields[NUMBERS:]]
        self._pack = struct.Struct(f"<{NUMBERS}H{len(self._parts)}I").pack
        self._keys: set[bytes] = set()

    def add(self, state: State) -> bool:
        """Whether it is new."""
        known = len(self._keys)
        named = [part[value] for part, value in zip(self._parts, state[NUMBERS:], strict=True)]
        self._keys.add(self._pack(*state[:NUMBERS], *named))
        return len(self._keys) > known

    def reached(self) -> frozenset[str]:
        start = State._fields[NUMBERS:]
        writers, outboxes = (self._parts[start.index(field)] for field in ("writers", "outbox"))
        found = {writer.step for values in writers for writer in values}
        found |= {row.state for rows in outboxes for row in rows if row is not None}
        if len(self._parts[start.index("ghosts")]) > 1:
            found.add("ghost")
        return frozenset(found)


def explore(model: Model, limit: int | None = None, only: str | None = None) -> Found:
    """
    Everything that can be reached, or the first *limit* states of it, up to the first violation.

    *only* names the one invariant that counts: a mutant may break a technical one long before somebody is hurt.
    """
    of_a_step = [(name, kept) for name, kept in OF_A_STEP.items() if only in (None, name)]
    of_a_state = [(name, kept) for name, kept in OF_A_STATE.items() if only in (None, name)]
    start = model.start()
    visited = _Visited()
    visited.add(start)
    # How each state was reached: from which one, by which of its moves. The trace is played again from these.
    parents, choices = array("L", [0]), array("H", [0])
    frontier = deque([start])
    number, steps, depth, end_of_depth = 0, 0, 0, 1
    while frontier:
        if number == end_of_depth:
            depth, end_of_depth = depth + 1, len(parents)
        state = frontier.popleft()
        for choice, (_, after) in enumerate(moves(model, state)):
            steps += 1
            broken = [name for name, kept in of_a_step if not kept(model, state, after)]
            if visited.add(after):
                parents.append(number)
                choices.append(choice)
                frontier.append(after)
                broken += [name for name, kept in of_a_state if not kept(model, after)]
            if broken:
                trace = _replay(model, [*_path(parents, choices, number), choice])
                return Found(len(parents), steps, depth + 1, False, visited.reached(), tuple(broken), trace)
        number += 1
        if limit is not None and len(parents) >= limit:
            return Found(len(parents), steps, depth, not frontier, visited.reached())
    return Found(len(parents), steps, depth, True, visited.reached())


def _path(parents: array[int], choices: array[int], number: int) -> list[int]:
    path = []
    while number:
        path.append(choices[number])
        number = parents[number]
    return path[::-1]


def _replay(model: Model, path: list[int]) -> tuple[str, ...]:
    state, story = model.start(), []
    for choice in path:
        says, state = list(moves(model, state))[choice]
        story.append(says)
    return tuple(story)
