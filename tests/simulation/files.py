"""
The scene of the datastore: writers in checkouts, one of which two of them share; readers that catch up in the writers' checkouts;
retention. Files, catalogs and markers are real, the store is not.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from tenure import Checkout, CheckoutWriter, CommitUnknownError, Datastore, Error, FencedError
from tenure._datastore import _changes, _writer
from tenure._datastore._datastore import FORMAT_KEY
from tests.simulation.isolation import isolated
from tests.simulation.ledger import Result, in_memory
from tests.simulation.record import History, Operation, check
from tests.simulation.scheduler import Actor, Scheduler
from tests.simulation.world import Access, Rates, SimulatedAsker, SimulatedClock, World, plain, weather

# Whose files lie where: two writers share a checkout, and each reader follows in that of a writer.
_WRITERS = {"writer-0": "shared", "writer-1": "shared", "writer-2": "alone"}
_READERS = {"reader-0": "shared", "reader-1": "alone"}
_NAMES = ("a", "b", "dir/c", "dir/d")


class Files:
    """One run."""

    def __init__(self, seed: int, directory: Path, rates: Rates | None = None, access: Access = plain) -> None:
        self.access = access
        self.scheduler = Scheduler(seed)
        self.world = World(self.scheduler, rates or weather(self.scheduler.random, 0.25))
        self.history = History()
        self.directory = directory
        self.crashes = 0
        self.wrong: list[str] = []
        self.inspected = False
        # What was put, by its content, which is never the same twice; and by the commit that was to carry it.
        self.commits: dict[str, dict[str, str]] = {}
        self._number = 0
        self.world.records[FORMAT_KEY] = json.dumps(
            {"v": 1, "kind": "datastore", "format": 1, "reader": 1, "id": "simulated"}
        ).encode()

    def run(self, steps: int) -> Result:
        with isolated(self.world):
            for name in (*_WRITERS, *_READERS):
                self._start(name)
            self.scheduler.run(steps, self._between)
            # The storm is over, and everybody of before is gone.
            self.world.rates = Rates(**dict.fromkeys(Rates.__dataclass_fields__, 0.0))
            inspector = self.scheduler.spawn("inspector", self._inspects)
            self.world.incarnations[len(self.world.incarnations)] = inspector
            self.scheduler.run(self.scheduler.steps + 20_000, lambda: None)
            if not self.inspected:
                self.wrong.append("nobody could put the checkouts right again")
        log = self.world.history
        return Result(
            seed=0,
            wrong=self.wrong + check(self.history, log) + self._uncommitted(),
            landed=sum(operation.outcome == "landed" for operation in self.history.operations.values()),
            entries=len(log),
            fences=log[-1].fence if log else 0,
            faults=self.world.faults,
            crashes=self.crashes,
            ghosts=self.world.ghosts,
        )

    def _start(self, name: str) -> None:
        function: Callable[[Actor, str], None] = self._writes if name in _WRITERS else self._reads
        actor = self.scheduler.spawn(name, lambda actor: function(actor, name))
        self.world.incarnations[len(self.world.incarnations)] = actor

    def _between(self) -> None:
        self.world.between()
        current = self.scheduler.current
        if current is not None and current.finished and current.crashed:
            self.crashes += 1
            self._start(current.name)

    def _opened(self, actor: Actor, place: str) -> tuple[Checkout, SimulatedClock]:
        number = next(number for number, one in self.world.incarnations.items() if one is actor)
        clock = SimulatedClock(self.world, actor)
        while True:
            try:
                patience = self.scheduler.random.choice((0.0, 1.0))
                store = self.access(self.world, actor, clock)
                datastore = Datastore(store, ttl=3.0, skew=1.0, clock=clock, patience_s=patience)
                checkout = datastore.checkout(self.directory / place)
            except Error:
                clock.sleep(0.5)
                continue
            checkout._lease._asker = checkout._lease._observer._asker = SimulatedAsker(self.world, number)
            return checkout, clock

    def _writes(self, actor: Actor, name: str) -> None:
        chance = self.scheduler.random
        checkout, clock = self._opened(actor, _WRITERS[name])
        with checkout:
            while True:
                try:
                    with checkout.writer(timeout=chance.choice((0.0, 1.0, 10.0))) as writer:
                        for _ in range(chance.randrange(1, 5)):
                            self._commit(checkout, writer)
                            if chance.random() < 0.2:
                                writer.hold.renew()
                            if chance.random() < self.world.rates.collection / 2:
                                writer.retain(keep=chance.choice((1, 3)))
                except Error:
                    pass
                clock.sleep(chance.choice((0.0, 0.1, 2.0)))

    def _commit(self, checkout: Checkout, writer: CheckoutWriter) -> None:
        chance = self.scheduler.random
        self._number += 1
        commit_id = f"c{self._number}"
        put: dict[str, str] = {}
        for name in chance.sample(_NAMES, chance.randrange(1, 4)):
            # Some of it larger than what an entry carries itself.
            content = f"{commit_id} {name} " + "x" * chance.choice((0, 100))
            writer.put(name, content.encode())
            put[name] = content
        self.commits[commit_id] = put
        for name, content in put.items():
            found = (checkout.path / name).read_text()
            if found != content and writer.hold.state == "held":
                self.wrong.append(f"{name} of {commit_id} was changed under its writer, to {found[:20]!r}")
        operation = self.history.invoke(commit_id, self.scheduler.steps)
        try:
            done = writer.commit(id=commit_id)
        except CommitUnknownError:
            operation.outcome = "unknown"
            raise
        except FencedError:
            operation.outcome = "failed"
            raise
        except Error as error:
            operation.outcome = (
                "unknown" if error.applied is not False or _was_prepared(checkout, operation) else "failed"
            )
            raise
        assert done is not None
        operation.outcome, operation.slot, operation.completed = "landed", done.slot, self.scheduler.steps

    def _reads(self, actor: Actor, name: str) -> None:
        chance = self.scheduler.random
        checkout, clock = self._opened(actor, _READERS[name])
        with checkout:
            while True:
                try:
                    checkout.catch_up()
                except Error:
                    pass
                clock.sleep(chance.choice((0.5, 5.0, 30.0)))

    def _inspects(self, actor: Actor) -> None:
        """In the end each checkout can be put right, and holds what the log says, to the byte."""
        for place in sorted({*_WRITERS.values(), *_READERS.values()}):
            checkout, _ = self._opened(actor, place)
            with checkout:
                checkout.recover(timeout=200.0)
                undecided = [entry for entry in checkout.outbox.entries() if entry.state in ("prepared", "landing")]
                self.wrong += [
                    f"{entry.commit_id} is still {entry.state} in {place}" for entry in undecided if not entry.note
                ]
                marks = [run.file for run in checkout._workspace.marker.runs()]
                self.wrong += [f"{mark} was left" for mark in marks if "inspector" not in mark]
                expected = {info.name: checkout._datastore.read(info.name) for info in checkout._datastore.files()}
                root = checkout.path
                found = {
                    path.relative_to(root).as_posix(): path.read_bytes()
                    for path in root.rglob("*")
                    if path.is_file() and ".tenure" not in path.relative_to(root).parts
                }
                if found != expected:
                    self.wrong.append(f"{place} holds {found}, the log says {expected}")
                self.wrong += [f"damaged: {damage}" for damage in checkout._datastore.verify()]
        self.inspected = True

    def _uncommitted(self) -> list[str]:
        """Whatever is in the log was put by the commit of that id, all of it and nothing else."""
        wrong = []
        for entry in self.world.history:
            if entry.kind != "commit" or entry.id not in self.commits:
                continue
            expected = self.commits[entry.id]
            body = _changes.body_of(entry)
            for change in body.changes or ():
                content = expected.get(change.name)
                if change.content is None or content is None:
                    wrong.append(f"{entry.id} says {change.name}, which was not put")
                elif change.content.size != len(content) or (
                    change.content.data is not None and change.content.data.decode() != content
                ):
                    wrong.append(f"{entry.id} holds other bytes of {change.name} than were put")
        return wrong


def _was_prepared(checkout: Checkout, operation: Operation) -> bool:
    entry = checkout.outbox.get(operation.id)
    return entry is not None and entry.state != "withdrawn"


def play(seed: int, steps: int = 3000, rates: Rates | None = None, *, access: Access = plain) -> Result:
    """One seed, from its beginning to its end."""
    with (
        # So that small files show what large ones do, and few commits what thousands do.
        mock.patch.object(_changes, "INLINE_BYTES", 60),
        mock.patch.object(_writer, "INLINE_BYTES", 60),
        mock.patch.object(_writer, "SNAPSHOT_EVERY", 7),
        tempfile.TemporaryDirectory(dir=in_memory()) as directory,
    ):
        result = Files(seed, Path(directory), rates, access).run(steps)
    result.seed = seed
    return result
