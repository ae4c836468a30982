"""What one real process has once, given to each simulated one; and each place between two steps made one to stop or die at."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from tenure import Judgement, _failpoints
from tenure._commit import _standing
from tenure._lease import _forsaken, _tenancy, _waiting
from tenure._lease._hold import Hold
from tenure._lease._lifelines import Lifelines
from tests.simulation.bucket import small
from tests.simulation.scheduler import Actor
from tests.simulation.world import SimulatedAsker, World, pause


class PerActor:
    """A stand-in for a module's variable, which is another object for each actor."""

    def __init__(self, world: World, make: Callable[[], Any]) -> None:
        self._world = world
        self._make = make
        self._theirs: dict[Actor | None, Any] = {}

    def _mine(self) -> Any:
        actor = self._world.scheduler.current
        if actor not in self._theirs:
            self._theirs[actor] = self._make()
        return self._theirs[actor]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mine(), name)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._mine()[key] = value

    def __contains__(self, key: Any) -> bool:
        return key in self._mine()


class _EveryPoint:
    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        return True


@contextmanager
def isolated(world: World) -> Iterator[None]:
    """Run the library as many processes."""

    def reached(name: str) -> None:
        actor = world.scheduler.current
        if actor is not None:
            pause(world, actor)

    def judged(records: Any, **_: Any) -> list[Judgement]:
        actor = world.scheduler.current
        number = next(number for number, one in world.incarnations.items() if one is actor)
        return [SimulatedAsker(world, number).judge(record) for record in records]

    with ExitStack() as stack:
        stack.enter_context(small(world))
        for module, name, value in (
            (_tenancy, "_registry", PerActor(world, dict)),
            (_tenancy, "_turns", PerActor(world, dict)),
            (_forsaken, "_nonces", PerActor(world, set)),
            (_failpoints, "_points", _EveryPoint()),
            (_failpoints, "_act", reached),
            (_standing, "judge_many", judged),
            (_waiting, "random", world.scheduler.random),
            # The kernel would say of each of them that it lives: they are one process.
            (Lifelines, "create", lambda *_: None),
            # Who is killed runs no destructor; and when one runs is for the interpreter to say, not for the seed.
            (Hold, "__del__", lambda _: None),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield
        # While its destructors still do nothing.
        gc.collect()
