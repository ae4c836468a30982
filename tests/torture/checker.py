"""
What must be true of every history, whatever was killed, stopped or delayed.

A pure function over events. Where a moment is not known (a process that killed itself at a fail point), only what is
certain counts: a process lived as long as it was seen to live, and was dead when it was seen to be dead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.torture.events import BY_THE_DRIVER, Entry, Event

_MS = 1_000_000
# The beat before a stop may be one interval old, and a busy machine is late with it.
_BEAT_SLACK_S = 0.05


@dataclass(frozen=True, slots=True)
class Promise:
    """
    What a run is held to.

    With *witnessed* deaths (lifelines) a holder that lives, stopped or not, is never replaced; without, not before
    ttl + skew of silence. *bound_s* limits the wait of a worker without fail points after the holder before it ended.
    """

    ttl: float
    skew: float
    witnessed: bool = True
    bound_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken promise, and the events that show it."""

    rule: str
    says: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join([f"{self.rule}: {self.says}", *map(str, self.events)])


@dataclass(frozen=True, slots=True)
class Report:
    problems: tuple[Problem, ...]
    fences: int
    acknowledged: int
    fenced: int
    kills: int
    stops: int
    gaps_s: tuple[float, ...]

    def rules(self) -> set[str]:
        return {problem.rule for problem in self.problems}

    def gap(self, share: float) -> float:
        """That quantile of the times from the end of a hold to the next one, while somebody waited."""
        ordered = sorted(self.gaps_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def __str__(self) -> str:
        gaps = "  ".join(f"{name} {self.gap(at) * 1000:.1f}" for name, at in (("p50", 0.5), ("p99", 0.99), ("max", 1)))
        counted = (
            f"{self.fences} holds, {self.acknowledged} acknowledged appends, {self.fenced} fenced, "
            f"{self.kills} kills, {self.stops} stops\nms from the end of a hold to the next: {gaps}"
        )
        shown = [str(problem) for problem in self.problems[:20]]
        return "\n".join(
            [counted, *shown, f"{len(self.problems)} promises broken" if shown else "every promise was kept"]
        )


@dataclass
class _Hold:
    """One acquire that returned."""

    who: str
    fence: int
    invoked: int
    acquired: int
    releasing: int | None = None


@dataclass
class _Life:
    """What is known of one process."""

    last_sign: int = 0
    died: int | None = None
    slow: bool = False
    # Times in which it certainly could not renew: from, to.
    stops: list[tuple[int, int]] = field(default_factory=list)


def check(events: Iterable[Event], log: Sequence[Entry], promise: Promise) -> Report:
    """Hold a history against the promise."""
    by_worker: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.t):
        by_worker[event.who].append(event)
    lives = {who: _life(mine) for who, mine in by_worker.items()}
    holds = sorted((hold for mine in by_worker.values() for hold in _holds(mine)), key=lambda hold: hold.fence)
    everything = [event for mine in by_worker.values() for event in mine]
    gaps, slow = _waits(holds, lives, promise)
    found = [
        *_one_holder_each(holds),
        *_in_real_time(holds),
        *_never_robbed(holds, lives, promise),
        *slow,
        *_true_checks(holds, everything),
        *_obedient(by_worker),
        *_fences_never_fall(log),
        *_nothing_lost(by_worker, log),
    ]
    if promise.witnessed:
        found += [
            Problem("fenced alive", f"fence {event.fence} was lost by a process that lived", (event,))
            for event in everything
            if event.kind == "fenced"
        ]
    around = [
        Problem(problem.rule, problem.says, _around(problem.events, everything)) if problem.events else problem
        for problem in found[:20]
    ]

    def count(*kinds: str) -> int:
        return sum(event.kind in kinds for event in everything)

    return Report(
        problems=(*around, *found[20:]),
        fences=len(holds),
        acknowledged=count("appended"),
        fenced=count("fenced"),
        kills=count("died"),
        stops=count("stopped"),
        gaps_s=gaps,
    )


def _life(mine: Sequence[Event]) -> _Life:
    life = _Life()
    stopped: int | None = None
    for event in mine:
        if event.kind == "died":
            life.died = event.t if life.died is None else life.died
        elif event.kind != "started":
            life.last_sign = event.t
        if event.kind == "started":
            life.slow = bool(event.note)
        elif event.kind == "stopped":
            stopped = event.t
        elif event.kind in ("continued", "killed", "died") and stopped is not None:
            life.stops.append((stopped, event.t))
            stopped = None
        if event.kind == "killed":
            life.died = event.t
    return life


def _holds(mine: Sequence[Event]) -> Iterator[_Hold]:
    invoked, hold = 0, None
    for event in mine:
        if event.kind == "invoke":
            invoked = event.t
        elif event.kind == "acquired" and event.fence is not None:
            hold = _Hold(event.who, event.fence, invoked, event.t)
            yield hold
        elif event.kind == "releasing" and hold is not None and hold.fence == event.fence:
            hold.releasing = event.t


def _shown(hold: _Hold) -> Event:
    return Event(hold.acquired, hold.who, "acquired", hold.fence)


def _one_holder_each(holds: Sequence[_Hold]) -> Iterator[Problem]:
    for one, other in pairwise(holds):
        if one.fence == other.fence:
            yield Problem("one holder", f"fence {one.fence} was given out twice", (_shown(one), _shown(other)))


def _in_real_time(holds: Sequence[_Hold]) -> Iterator[Problem]:
    returned = sorted(holds, key=lambda hold: hold.acquired)
    times = [hold.acquired for hold in returned]
    highest: list[_Hold] = []
    for hold in returned:
        highest.append(hold if not highest or hold.fence > highest[-1].fence else highest[-1])
    for hold in holds:
        before = bisect_left(times, hold.invoked)
        if before and highest[before - 1].fence > hold.fence:
            above = highest[before - 1]
            says = f"fence {hold.fence} was asked for after fence {above.fence} had been given out"
            yield Problem("rising fences", says, (_shown(above), _shown(hold)))


def _never_robbed(holds: Sequence[_Hold], lives: dict[str, _Life], promise: Promise) -> Iterator[Problem]:
    patience = round((promise.ttl + promise.skew) * 1e9)
    needed = patience - round((promise.ttl / 3 + _BEAT_SLACK_S) * 1e9)
    for hold, successor in pairwise(holds):
        at, life = successor.acquired, lives[hold.who]
        over = hold.releasing is not None and hold.releasing <= at
        if hold.fence == successor.fence or over or life.last_sign <= at:
            continue
        if not promise.witnessed:
            # It has not beaten yet while its acquire is under way.
            silences = [*life.stops, (hold.invoked, hold.acquired)]
            if any(min(until, at) - since >= needed for since, until in silences):
                continue
        says = f"fence {hold.fence} of {hold.who} was replaced by {successor.fence} while it lived"
        sign = Event(life.last_sign, hold.who, "alive")
        yield Problem("never robbed", says, (_shown(hold), _shown(successor), sign))


def _waits(
    holds: Sequence[_Hold], lives: dict[str, _Life], promise: Promise
) -> tuple[tuple[float, ...], list[Problem]]:
    """How long the next one took each time, and what was too long: judged only where nothing else was in the way."""
    gaps: list[float] = []
    problems: list[Problem] = []
    for hold, successor in pairwise(holds):
        life = lives[hold.who]
        ends = [end for end in (hold.releasing, life.died) if end is not None]
        if not ends:
            continue
        waiter = lives[successor.who]
        since = max(min(ends), successor.invoked)
        waited = max(0, successor.acquired - since) / 1e9
        gaps.append(waited)
        disturbed = life.slow or waiter.slow or any(to > since - 100 * _MS for _, to in waiter.stops)
        if successor.fence == hold.fence + 1 and not disturbed and waited > promise.bound_s:
            says = f"{successor.who} waited {waited:.3f} s for fence {successor.fence}"
            ended = Event(min(ends), hold.who, "ended", hold.fence)
            problems.append(Problem("bounded wait", says, (ended, _shown(successor))))
    return tuple(gaps), problems


def _true_checks(holds: Sequence[_Hold], everything: Sequence[Event]) -> Iterator[Problem]:
    """A check that passed was true when it began: no higher fence had been given out by then."""
    returned = sorted(holds, key=lambda hold: hold.acquired)
    times = [hold.acquired for hold in returned]
    highest: list[int] = []
    for hold in returned:
        highest.append(max(hold.fence, highest[-1] if highest else 0))
    asked: dict[str, int] = {}
    for event in everything:
        if event.kind == "checking":
            asked[event.who] = event.t
        elif event.kind == "checked" and event.fence is not None:
            before = bisect_left(times, asked.get(event.who, event.t))
            if before and highest[before - 1] > event.fence:
                says = f"a check of fence {event.fence} passed although {highest[before - 1]} had been given out"
                yield Problem("true checks", says, (event,))


def _obedient(by_worker: dict[str, list[Event]]) -> Iterator[Problem]:
    for who, mine in by_worker.items():
        fenced: dict[int | None, Event] = {}
        for event in mine:
            if event.kind == "fenced":
                fenced.setdefault(event.fence, event)
            elif event.kind in ("appending", "appended", "checked") and event.fence in fenced:
                says = f"{who} knew that it had lost fence {event.fence}, and went on"
                yield Problem("obedient", says, (fenced[event.fence], event))


def _fences_never_fall(log: Sequence[Entry]) -> Iterator[Problem]:
    for one, other in pairwise(log):
        if other.seq != one.seq + 1:
            yield Problem("no gaps", f"the log goes from {one.seq} to {other.seq}")
        if other.fence < one.fence:
            yield Problem("log fences rise", f"the log falls from {one} to {other}")


def _nothing_lost(by_worker: dict[str, list[Event]], log: Sequence[Entry]) -> Iterator[Problem]:
    """Acknowledged: there once, where it was said. Begun only: at most once. Never begun: not there. In order."""
    places: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for entry in log:
        places[entry.who, entry.entry].append(entry)
    for who, mine in by_worker.items():
        begun, last = set(), 0
        for event in mine:
            if event.entry is None:
                continue
            if event.kind == "appending":
                begun.add(event.entry)
                continue
            found = places[who, event.entry]
            if [(entry.seq, entry.fence) for entry in found] != [(event.seq, event.fence)]:
                where = ", ".join(str(entry.seq) for entry in found) or "nowhere"
                says = f"entry {event.entry} of {who} was acknowledged at {event.seq}, and is {where}"
                yield Problem("nothing lost", says, (event,))
            elif event.seq is not None and event.seq < last:
                yield Problem("in order", f"entry {event.entry} of {who} lies before an earlier one", (event,))
            last = max(last, event.seq or 0)
        for (whose, number), found in places.items():
            if whose == who and (len(found) > 1 or number not in begun):
                yield Problem(
                    "nothing lost", f"entry {number} of {who}: {len(found)} in the log, begun: {number in begun}"
                )


def _around(shown: Sequence[Event], everything: Sequence[Event]) -> tuple[Event, ...]:
    """What the processes concerned did in the last moments before each of these events."""
    who = {event.who for event in shown}
    near = [
        event
        for event in everything
        if event.who in who and any(-30 * _MS <= event.t - one.t <= 5 * _MS for one in shown)
    ]
    picked = {*shown, *near[:40], *(event for event in everything if event.who in who and event.kind in BY_THE_DRIVER)}
    return tuple(sorted(picked, key=lambda event: event.t))
