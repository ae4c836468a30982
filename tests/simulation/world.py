"""What the processes of a simulation share: a store that loses requests and answers, clocks that differ, and who lives."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from tenure import Judgement, ProcessIdentity, Verdict
from tenure._clock import Clock
from tenure._commit import _keys
from tenure._commit._entry import Entry
from tenure._judgement import RELEASED, Asker
from tenure._store._records import version_of
from tenure.errors import StoreUnavailableError
from tenure.stores import Created, Store, Stored
from tests.simulation.scheduler import Actor, CrashError, Scheduler

Answer = TypeVar("Answer")
# How a process reaches the store of its world.
Access: TypeAlias = "Callable[[World, Actor, Clock], Store]"

_ALIVE = Judgement(Verdict.ALIVE, "same_start_time", "pidfd")
_GONE = Judgement(Verdict.GONE, "exited", "pidfd")
_UNKNOWN = Judgement(Verdict.UNKNOWN, "other_boot", "record")


@dataclass
class Rates:
    """How often what goes wrong, each per request or step."""

    crash: float = 0.004
    no_answer: float = 0.02
    lost_reply: float = 0.03
    late: float = 0.02
    refused: float = 0.01
    # Of a bucket alone: that a request is delivered a second time, and that a list leaves out what is new, or everything.
    twice: float = 0.02
    stale: float = 0.02
    nap: float = 0.01
    # Of a commit: that a snapshot follows it, and that what it sums up is collected.
    collection: float = 0.15
    # Of a step: that something arrives which was on its way.
    arrival: float = 0.2


def weather(chance: random.Random, scale: float = 1.0) -> Rates:
    """What a seed makes of them: calm, as usual, or a storm. In the calm much is written, in the storm little goes as meant."""
    factor = chance.choice((0.1, 0.3, 1.0, 2.0)) * scale
    usual = Rates()
    return Rates(
        crash=usual.crash * factor,
        no_answer=usual.no_answer * factor,
        lost_reply=usual.lost_reply * factor,
        late=usual.late * factor,
        refused=usual.refused * factor,
        twice=usual.twice * factor,
        stale=usual.stale * factor,
        nap=usual.nap * chance.choice((0.3, 1.0, 4.0)) * scale,
        collection=chance.choice((0.05, 0.3, 0.9)),
        arrival=chance.choice((0.2, 0.02)),
    )


@dataclass
class World:
    """Everything outside the processes."""

    scheduler: Scheduler
    rates: Rates = field(default_factory=Rates)
    records: dict[str, bytes] = field(default_factory=dict)
    # Requests of which the answer is overdue, and which may arrive whenever the seed wills.
    in_flight: list[Callable[[], None]] = field(default_factory=list)
    # The true log: the first entry that ever stood at each slot, in order; what came to a freed slot later is a ghost.
    history: list[Entry] = field(default_factory=list)
    ghosts: int = 0
    incarnations: dict[int, Actor] = field(default_factory=dict)
    faults: int = 0

    def between(self) -> None:
        """Something that was on its way arrives, perhaps twice."""
        chance = self.scheduler.random.random
        if self.in_flight and chance() < self.rates.arrival:
            arrival = self.scheduler.random.choice(self.in_flight)
            arrival()
            if chance() < 0.8:
                self.in_flight.remove(arrival)

    def apply_create(self, key: str, data: bytes) -> bool:
        if key in self.records:
            return False
        self.records[key] = data
        slot = _keys.slot_of(key) if key.startswith(_keys.PREFIX) else None
        if slot is not None:
            if slot == len(self.history) + 1:
                self.history.append(Entry.decode(key, data))
            else:
                self.ghosts += 1
        return True

    def apply_replace(self, key: str, data: bytes, version: str) -> bool:
        current = self.records.get(key)
        if current is None or version_of(current) != version:
            return False
        self.records[key] = data
        return True

    def apply_delete(self, key: str) -> None:
        self.records.pop(key, None)

    def listed(self) -> list[str]:
        """The keys that there are, as a bucket shows them: now and then without the newest ones."""
        keys = list(self.records)
        if self.scheduler.random.random() < self.rates.stale:
            self.faults += 1
            return keys[: -self.scheduler.random.choice((1, 3, len(keys)))]
        return keys


class SimulatedStore:
    """The store, as one process sees it."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    @property
    def url(self) -> str:
        return "memory:simulated"

    def create(self, key: str, data: bytes) -> Created:
        won = self._ask(lambda: self._world.apply_create(key, data))
        return Created(won, self._world.records.get(key, data))

    def read(self, key: str, *, durable: bool = False) -> Stored | None:
        def look() -> Stored | None:
            data = self._world.records.get(key)
            return None if data is None else Stored(data, version_of(data))

        return self._ask(look, changes=False)

    def replace(self, key: str, data: bytes, version: str) -> str | None:
        done = self._ask(lambda: self._world.apply_replace(key, data, version))
        return version_of(data) if done else None

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        return iter(
            self._ask(
                lambda: sorted(key for key in self._world.records if key.startswith(prefix) and key > after),
                changes=False,
            )
        )

    def delete(self, key: str) -> None:
        self._ask(lambda: self._world.apply_delete(key))

    def _ask(self, apply: Callable[[], Answer], *, changes: bool = True) -> Answer:
        pause(self._world, self._actor)
        world, rates = self._world, self._world.rates
        chance = world.scheduler.random.random()
        if chance < rates.refused:
            world.faults += 1
            raise StoreUnavailableError("refused (simulated)", applied=False)
        chance -= rates.refused
        unclear = StoreUnavailableError("no answer (simulated)", applied=None if changes else False)
        if chance < rates.no_answer:
            world.faults += 1
            raise unclear
        chance -= rates.no_answer
        if changes and chance < rates.late:
            world.faults += 1
            world.in_flight.append(lambda: (apply(), None)[1])
            raise unclear
        chance -= rates.late
        answer = apply()
        if chance < rates.lost_reply:
            world.faults += 1
            raise unclear
        # The answer takes its time too.
        pause(self._world, self._actor)
        return answer


def plain(world: World, actor: Actor, _: Clock) -> Store:
    """The store, as one process sees it: nothing of any backend between the scene and the faults."""
    return SimulatedStore(world, actor)


def pause(world: World, actor: Actor) -> None:
    """A place at which others may go first, and at which a process may stall or die."""
    actor.step()
    chance = world.scheduler.random.random()
    if chance < world.rates.crash:
        actor.crashed = True
        raise CrashError
    if chance < world.rates.crash + world.rates.nap:
        # Longer than a lease, often enough.
        actor.wakes_at = world.scheduler.now + world.scheduler.random.choice((0.5, 5.0, 60.0))
        actor.step()


class SimulatedClock:
    """The clock of one machine: it goes a little wrong, and its wall time is anything."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor
        self._rate = world.scheduler.random.uniform(0.99, 1.01)

    def awake(self) -> float:
        return self._world.scheduler.now * self._rate

    def elapsed(self) -> float:
        return self._world.scheduler.now * self._rate

    def sleep(self, seconds: float, *, unless: object = ()) -> None:
        self._actor.wakes_at = self._world.scheduler.now + seconds
        self._actor.step()

    def wall(self) -> str:
        return f"20{self._world.scheduler.random.randrange(10, 99)}-01-01T00:00:00+00:00"


class SimulatedAsker(Asker):
    """
    Who lives, as the process table of one machine has it: nobody but an incarnation itself, on which half of the others cannot tell.

    Not a `ProcessIdentity`: all the processes here are one real one.
    """

    __slots__ = ("number", "world")

    def __init__(self, world: World, number: int) -> None:
        super().__init__()
        object.__setattr__(self, "world", world)
        object.__setattr__(self, "number", number)

    def me(self) -> ProcessIdentity:
        return json.dumps({"incarnation": self.number})  # type: ignore[return-value,attr-defined]

    def judge(
        self, holder: ProcessIdentity | str | None, *, lifeline: bool | None = None, released: bool = False
    ) -> Judgement:
        if released:
            return RELEASED
        other = json.loads(holder).get("incarnation") if isinstance(holder, str) else None
        if other is None or (other + self.number) % 2:  # type: ignore[attr-defined]
            return _UNKNOWN
        return _GONE if self.world.incarnations[other].crashed else _ALIVE  # type: ignore[attr-defined]
