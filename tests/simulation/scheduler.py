"""
One thing at a time, in an order that a seed decides.

Each actor is a thread that runs only while it has the turn, and gives it up at each step: a request to the store, a place between
two steps of the code, a sleep. So the same seed gives the same run, whatever the machine does.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

_PATIENCE_S = 60.0


class CrashError(BaseException):
    """The process is gone, here and now. No `except Exception` sees it, and nothing after it reaches the store."""


class Actor:
    """A process of the simulation: dead for good once it has crashed, and then followed by another one."""

    def __init__(self, scheduler: Scheduler, name: str, function: Callable[[Actor], None]) -> None:
        self.name = name
        self.crashed = False
        self.finished = False
        self.wakes_at = 0.0
        self.error: BaseException | None = None
        self._scheduler = scheduler
        self._function = function
        self._turn = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.crashed:
                self._function(self)
        except CrashError:
            self.crashed = True
        except BaseException as error:  # noqa: BLE001  told to whoever runs the simulation
            self.error = error
        finally:
            self.finished = True
            self._scheduler.done.release()

    def go(self) -> None:
        """Let it run until its next step."""
        self._scheduler.current = self
        self._turn.release()
        if not self._scheduler.done.acquire(timeout=_PATIENCE_S):
            raise AssertionError(f"{self.name} waits for something that is not simulated")

    def step(self) -> None:
        """Let others go first, as many as the seed wills."""
        if self.crashed:
            raise CrashError
        self._scheduler.done.release()
        self._turn.acquire()
        if self.crashed:
            raise CrashError

    def end(self) -> None:
        """Have its thread end."""
        self.crashed = True
        while not self.finished:
            self.go()
        self._thread.join(_PATIENCE_S)


class Scheduler:
    """Whose turn it is, and what time it is."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self.done = threading.Semaphore(0)
        self.current: Actor | None = None
        self.actors: list[Actor] = []

    def spawn(self, name: str, function: Callable[[Actor], None]) -> Actor:
        """A new process."""
        actor = Actor(self, name, function)
        self.actors.append(actor)
        return actor

    def run(self, limit: int, between: Callable[[], None]) -> None:
        """Give turns until nobody has anything left to do, or *limit* steps are over; *between* is called after each."""
        try:
            while self.steps < limit:
                ready = [actor for actor in self.actors if not actor.finished]
                if not ready:
                    return
                awake = [actor for actor in ready if actor.wakes_at <= self.now]
                if not awake:
                    self.now = min(actor.wakes_at for actor in ready)
                    continue
                self.steps += 1
                # A step takes its time, so that leases run out while others work.
                self.now += self.random.choice((0.0, 0.01, 0.01, 0.1))
                actor = self.random.choice(awake)
                actor.go()
                if actor.error is not None:
                    raise actor.error
                between()
        finally:
            for actor in self.actors:
                actor.end()
            self.current = None
