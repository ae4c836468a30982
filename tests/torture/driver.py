"""Starts workers, kills, stops and continues them at random, replaces the dead, and holds what they wrote to the promise."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tenure._core import boottime_ns
from tenure.stores import open_store
from tests.helpers import independent, libc
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.processes import ROOT
from tests.torture import events
from tests.torture.checker import Promise, Report, check
from tests.torture.log import Log
from tests.torture.worker import Orders

_TICK_S = 0.003
# Unreaped ones are kept as long as there are not too many.
_MOST_ZOMBIES = 64
_POINTS = (
    "publish.written",
    "publish.synced",
    "publish.linked",
    "lease.looked",
    "lease.lifeline",
    "lease.claimed",
    "lease.started",
    "lease.beat",
    "lease.releasing",
    "torture.checked",
)
# A release that fails where no release can: not a fault that any system makes.
_NO_ERRORS_AT = ("lease.looked", "lease.releasing", "torture.checked")


@dataclass(frozen=True)
class Plan:
    """What a run is to be; equal plans make equal choices, and the machine makes the rest."""

    seconds: float
    seed: int
    workers: int = 6
    ttl: float = 0.3
    skew: float = 0.1
    variant: str = "real"
    blind: bool = False
    namespaces: bool = True
    # Mean seconds between two deeds to one worker.
    calm_s: float = 0.8
    # Of the workers: how many have fail points; all have *points* where given.
    faulty: float = 0.4
    points: str | None = None
    bound_s: float = 1.0

    @property
    def promise(self) -> Promise:
        return Promise(self.ttl, self.skew, witnessed=self.variant != "strangers", bound_s=self.bound_s)


@dataclass
class _Child:
    who: str
    process: subprocess.Popen[bytes]
    slot: int
    # Its number here; None until it runs.
    pid: int | None = None
    seen_running: int = 0
    continue_at: float | None = None
    next_deed: float = 0.0


class Driver:
    """One run, in the directory *directory*, which must be empty."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan = plan
        self._store = directory / "store"
        self._histories = directory / "history"
        self._histories.mkdir()
        self._cache = directory / "cache"
        self._complaints = (directory / "stderr").open("wb")
        self._random = random.Random(plan.seed)
        self._history = events.History(self._histories, "driver")
        self._until = time.monotonic() + plan.seconds
        self._children: dict[int, _Child] = {}
        self._dead: list[_Child] = []
        self._started = 0

    def run(self) -> Report:
        try:
            while time.monotonic() < self._until:
                for slot in range(self._plan.workers):
                    child = self._children.get(slot)
                    if child is None:
                        self._children[slot] = self._start(slot)
                    else:
                        self._attend(child)
                time.sleep(_TICK_S)
        finally:
            self._end()
        return check(events.read(self._histories), list(Log(open_store(self._store)).entries()), self._plan.promise)

    def _start(self, slot: int) -> _Child:
        self._started += 1
        who = f"w{self._started}"
        plan = self._plan
        orders = Orders(
            who=who,
            seed=self._random.getrandbits(32),
            store=str(self._store),
            history=str(self._histories),
            ttl=plan.ttl,
            skew=plan.skew,
            variant=plan.variant,
            blind=plan.blind,
            until_ns=boottime_ns() + round((self._until - time.monotonic() + 10) * 1e9),
        )
        points = plan.points if plan.points is not None else self._draw_points()
        self._history.add("started", who=who, note=points or None)
        command = [sys.executable, "-m", "tests.torture.worker", orders.to_json()]
        if self._is_namespaced(slot):
            # A shell as the first process: the kernel lets nobody inside kill or stop that one, itself included.
            command = [*OWN_PROC, "sh", "-c", '"$@"; true', "sh", *command]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=self._complaints,
            cwd=ROOT,
            env=os.environ | {"TENURE_FAILPOINTS": points, "TENURE_CACHE": str(self._cache)},
            preexec_fn=_die_with_the_driver,  # noqa: PLW1509  the driver has one thread
        )
        return _Child(who, process, slot)

    def _is_namespaced(self, slot: int) -> bool:
        return self._plan.namespaces and slot % 2 == 1

    def _stays_a_zombie(self, slot: int) -> bool:
        # In slots 2, 3, 6, 7 ...: half of those with a namespace of their own, and half of the others.
        return slot // 2 % 2 == 1

    def _draw_points(self) -> str:
        drawn = []
        patience = self._plan.ttl + self._plan.skew
        if self._random.random() < self._plan.faulty:
            for name in self._random.sample(_POINTS, self._random.randrange(1, 4)):
                action = self._random.choice(["kill", "stop", "sleep", "error"])
                if action == "error" and name in _NO_ERRORS_AT:
                    action = "sleep"
                if action == "sleep":
                    action = f"sleep:{self._random.random() * 1.5 * patience:.3f}"
                drawn.append(f"{name}={action}@{self._random.randrange(1, 8)}")
        return ";".join(drawn)

    def _attend(self, child: _Child) -> None:
        now = time.monotonic()
        if child.pid is None:
            self._let_run(child, now)
            return
        looked = boottime_ns()
        state = _state(child.pid)
        if state in "ZX":
            self._bury(child)
        elif state == "T":
            if child.continue_at is None:
                # It has stopped itself, since we looked last.
                self._history.add("stopped", who=child.who, t=child.seen_running)
                child.continue_at = now + self._a_long_stop()
            elif now >= child.continue_at:
                child.continue_at = None
                if self._random.random() < 0.3:
                    self._kill(child, looked)
                else:
                    self._history.add("continued", who=child.who, t=looked)
                    _signal(child.pid, signal.SIGCONT)
                    child.seen_running = looked
        else:
            child.seen_running = looked
            if child.continue_at is None and now >= child.next_deed:
                self._do_something(child, looked, now)

    def _do_something(self, child: _Child, looked: int, now: float) -> None:
        assert child.pid is not None
        child.next_deed = now + self._random.expovariate(1 / self._plan.calm_s)
        if self._random.random() < 0.6:
            self._kill(child, looked)
            return
        self._history.add("stopped", who=child.who, t=looked)
        _signal(child.pid, signal.SIGSTOP)
        child.continue_at = now + (self._a_long_stop() if self._random.random() < 0.5 else self._random.random() * 0.2)

    def _kill(self, child: _Child, looked: int) -> None:
        assert child.pid is not None
        self._history.add("killed", who=child.who, t=looked)
        _signal(child.pid, signal.SIGKILL)

    def _a_long_stop(self) -> float:
        return (self._plan.ttl + self._plan.skew) * (1.2 + self._random.random())

    def _let_run(self, child: _Child, now: float) -> None:
        """Once it has opened its history it waits for a line from us."""
        if child.process.poll() is not None:
            self._complaints.flush()
            said = Path(self._complaints.name).read_text("utf-8", "replace")[-2000:]
            raise RuntimeError(f"a worker ended before it began, with {child.process.returncode}: {said}")
        if not (self._histories / f"{child.who}.jsonl").exists():
            return
        lineage = [child.process.pid]
        while below := _children(lineage[-1]):
            lineage.append(below[0])
        child.pid = lineage[-1]
        if self._is_namespaced(child.slot) and self._stays_a_zombie(child.slot):
            # A first process that does not wait for its child, as in many containers.
            _signal(lineage[-2], signal.SIGSTOP)
        child.seen_running = boottime_ns()
        child.next_deed = now + self._random.expovariate(1 / self._plan.calm_s)
        assert child.process.stdin is not None
        with contextlib.suppress(OSError):
            child.process.stdin.write(b"go\n")
            child.process.stdin.flush()

    def _bury(self, child: _Child) -> None:
        self._history.add("died", who=child.who)
        del self._children[child.slot]
        if self._stays_a_zombie(child.slot):
            self._dead.append(child)
            if len(self._dead) > _MOST_ZOMBIES:
                _let_go(self._dead.pop(0))
        else:
            _let_go(child)

    def _end(self) -> None:
        for child in self._children.values():
            if child.pid is not None:
                looked = boottime_ns()
                if _state(child.pid) not in "ZX":
                    self._kill(child, looked)
        for child in [*self._children.values(), *self._dead]:
            _let_go(child)
        self._complaints.close()
        self._history.close()


def _let_go(child: _Child) -> None:
    """End what is left of it, a stopped first process of its namespace too, and reap it."""
    child.process.kill()
    child.process.wait(30)
    assert child.process.stdin is not None
    with contextlib.suppress(OSError):
        child.process.stdin.close()


def _die_with_the_driver() -> None:
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)


def _state(pid: int) -> str:
    try:
        return independent.state(pid)
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _children(pid: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    return []


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
