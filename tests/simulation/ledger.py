"""
The scene of the log: writers that take the lease from each other, die, stall and come back, with an outbox each; readers that
follow; a collector that gives up old entries.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tenure import CommitLog, CommitUnknownError, Error, FencedError, LogWriter, Outbox, Prepared, WriterLease
from tenure._commit._outbox_table import OutboxEntry
from tenure._commit._standing import Standings
from tenure._lease._hold import Hold
from tests.simulation.isolation import isolated
from tests.simulation.record import History, check
from tests.simulation.scheduler import Actor, Scheduler
from tests.simulation.world import Access, Rates, SimulatedAsker, SimulatedClock, World, plain, weather

_WRITERS, _READERS = 3, 2


@dataclass
class Result:
    """How a run ended."""

    seed: int
    wrong: list[str]
    landed: int
    entries: int
    fences: int
    faults: int
    crashes: int
    ghosts: int
    trace: list[str] = field(default_factory=list)


class Ledger:
    """One run."""

    def __init__(self, seed: int, directory: Path, rates: Rates | None = None, access: Access = plain) -> None:
        self.access = access
        self.scheduler = Scheduler(seed)
        self.world = World(self.scheduler, rates or weather(self.scheduler.random))
        self.history = History()
        self.directory = directory
        self.crashes = 0
        self._ids = 0

    def run(self, steps: int) -> Result:
        with isolated(self.world):
            for number in range(_WRITERS):
                self._start(f"writer-{number}", self._writes)
            for number in range(_READERS):
                self._start(f"reader-{number}", self._reads)
            self.scheduler.run(steps, self._between)
        log = self.world.history
        return Result(
            seed=self.scheduler.random.randrange(1),
            wrong=check(self.history, log),
            landed=sum(operation.outcome == "landed" for operation in self.history.operations.values()),
            entries=len(log),
            fences=log[-1].fence if log else 0,
            faults=self.world.faults,
            crashes=self.crashes,
            ghosts=self.world.ghosts,
        )

    def _start(self, name: str, function: Callable[[Actor, str], None]) -> None:
        actor = self.scheduler.spawn(name, lambda actor: function(actor, name))
        self.world.incarnations[len(self.world.incarnations)] = actor

    def _between(self) -> None:
        self.world.between()
        current = self.scheduler.current
        if current is not None and current.finished and current.crashed:
            # Somebody starts it again, with the same files and as another process.
            self.crashes += 1
            self._start(current.name, self._writes if current.name.startswith("writer") else self._reads)

    def _writes(self, actor: Actor, name: str) -> None:
        number = next(number for number, one in self.world.incarnations.items() if one is actor)
        chance = self.scheduler.random
        clock = SimulatedClock(self.world, actor)
        store = self.access(self.world, actor, clock)
        lease = WriterLease(store, ttl=3.0, skew=1.0, clock=clock)
        asker = SimulatedAsker(self.world, number)
        lease._asker = lease._observer._asker = asker
        # Beside the log, one for each place of work, as a checkout has it; two of the writers work in the same place.
        with Outbox(self.directory / f"place-{int(name[-1]) % 2}.db") as outbox:
            while True:
                try:
                    with lease.acquire(timeout=chance.choice((0.0, 1.0, 10.0))) as hold:
                        log = CommitLog(store, patience_s=chance.choice((0.0, 0.0, 1.0)), clock=clock)
                        writer = log.open(hold)
                        self._recover(log, writer, hold, lease, outbox)
                        for _ in range(chance.randrange(1, 12)):
                            self._commit(log, writer, hold, outbox)
                            self._now_and_then(log, writer, hold, outbox)
                except Error:
                    pass
                clock.sleep(chance.choice((0.0, 0.1, 2.0)))

    def _now_and_then(self, log: CommitLog, writer: LogWriter, hold: Hold, outbox: Outbox) -> None:
        chance = self.scheduler.random.random()
        if chance < 0.2:
            hold.renew()
        if self.scheduler.random.random() < self.world.rates.collection:
            snapshot = writer.snapshot([entry.id for entry in self.world.history if entry.kind == "commit"])
            undecided = outbox.undecided_floor()
            if undecided is None or undecided >= snapshot.slot:
                writer.collect(snapshot.slot, undecided=undecided)

    def _recover(self, log: CommitLog, writer: LogWriter, hold: Hold, lease: WriterLease, outbox: Outbox) -> None:
        def land(entry: OutboxEntry) -> str:
            assert entry.slot is not None
            state = log.resolve(Prepared(entry.commit_id, entry.slot, entry.data))
            if state == "not_applied":
                writer.put(writer.prepare("late", id=entry.commit_id))
                state = "landed"
            return "undecided" if state == "unknown" else "landed"

        outbox.recover(hold, land, standings=Standings(lease, fence=hold.fence))  # type: ignore[arg-type]

    def _commit(self, log: CommitLog, writer: LogWriter, hold: Hold, outbox: Outbox) -> None:
        self._ids += 1
        commit_id = f"c{self._ids}"
        operation = self.history.invoke(commit_id, self.scheduler.steps)
        try:
            settled = writer.settle()
            assert settled is None
            prepared = writer.prepare("x", id=commit_id)
            outbox.prepare(commit_id, prepared.data, author=hold, slot=prepared.slot)
            done = writer.put(prepared)
        except CommitUnknownError:
            operation.outcome = "unknown"
            raise
        except FencedError:
            self._failed(operation, outbox)
            raise
        except Error as error:
            if error.applied is not False:
                operation.outcome = "unknown"
                raise
            self._failed(operation, outbox)
            return
        operation.outcome, operation.slot = "landed", done.slot
        operation.completed = self.scheduler.steps
        outbox.landed(commit_id)

    def _failed(self, operation: object, outbox: Outbox) -> None:
        # Reported as failed only if nobody lands it any more.
        operation.outcome = "failed" if outbox.withdraw(operation.id) or outbox.get(operation.id) is None else "unknown"  # type: ignore[attr-defined]

    def _reads(self, actor: Actor, name: str) -> None:
        clock = SimulatedClock(self.world, actor)
        log = CommitLog(self.access(self.world, actor, clock), clock=clock)
        followed: list[str] = []
        # Begun anew after each crash: what a reader keeps of its own is not what is looked at here.
        self.history.readers.setdefault(name, []).append(followed)
        position = 0
        while True:
            try:
                for entry in log.read(after=position):
                    if entry.kind == "snapshot" and entry.slot != position + 1:
                        followed[:] = entry.body
                    elif entry.kind == "commit":
                        followed.append(entry.id)
                    position = entry.slot
            except Error:
                pass
            clock.sleep(self.scheduler.random.choice((0.5, 5.0, 30.0)))


def play(seed: int, steps: int = 1500, rates: Rates | None = None, *, access: Access = plain) -> Result:
    """One seed, from its beginning to its end; the same one always goes the same way."""
    with tempfile.TemporaryDirectory(dir=in_memory()) as directory:
        result = Ledger(seed, Path(directory), rates, access).run(steps)
    result.seed = seed
    return result


def in_memory() -> str | None:
    # The outboxes sync each change; what is tested here is not the disk.
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
