"""
What workers and the driver write down: one JSON line an event, each process into a file of its own.

| kind | by | says |
|---|---|---|
| `invoke`, `acquired`, `busy`, `failed` | worker | an acquire was begun; it returned with *fence*; or without |
| `checking`, `checked`, `fenced` | worker | a check was begun; it passed; or the worker knows that it lost *fence* |
| `appending`, `appended` | worker | an append of *entry* to the log was begun; it was acknowledged as *seq* |
| `releasing`, `released` | worker | |
| `started` | driver | with *note*, the fail points of that worker |
| `stopped`, `continued`, `killed` | driver | about to be done, to a process that lived at that time |
| `died` | driver | seen to be dead |

Times are taken *before* what is begun and *after* what has returned, on the clock that all processes share.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tenure._core import boottime_ns

BY_THE_DRIVER = frozenset({"started", "stopped", "continued", "killed", "died"})


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history. `t` is in nanoseconds."""

    t: int
    who: str
    kind: str
    fence: int | None = None
    seq: int | None = None
    entry: int | None = None
    note: str | None = None

    def __str__(self) -> str:
        facts = [f"{name}={value}" for name, value in asdict(self).items() if value is not None]
        return f"{self.t / 1e9:.6f} {self.who:>5} {self.kind:<9} {' '.join(facts[3:])}".rstrip()


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the shared log, as it lies there at the end."""

    seq: int
    fence: int
    who: str
    entry: int


class History:
    """The history that one process writes. A line is one write to a file opened for appending, so a kill loses none."""

    def __init__(self, directory: Path, who: str) -> None:
        self._fd = os.open(directory / f"{who}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._who = who

    def add(
        self,
        kind: str,
        *,
        t: int | None = None,
        who: str | None = None,
        fence: int | None = None,
        seq: int | None = None,
        entry: int | None = None,
        note: str | None = None,
    ) -> None:
        event = Event(boottime_ns() if t is None else t, who or self._who, kind, fence, seq, entry, note)
        fields = {name: value for name, value in asdict(event).items() if value is not None}
        os.write(self._fd, json.dumps(fields).encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


def read(directory: Path) -> Iterator[Event]:
    """All histories in *directory*, in no order."""
    for path in sorted(directory.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield Event(**json.loads(line))
