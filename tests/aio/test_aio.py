"""The async door: waiting blocks no loop, and a cancellation leaves no hold or a usable one."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tenure import Hold, WriterBusyError, WriterLease, aio
from tenure._store._memory import MemoryStore
from tests.helpers import holders
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.helpers.scripts import Script, ran
from tests.lease.stores import LONG

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def lease_of(path: Path) -> WriterLease:
    return WriterLease(path / "store", ttl=LONG)


def is_free(path: Path) -> bool:
    return lease_of(path).inspect().state == "free"


async def busily(work: Awaitable[T]) -> tuple[T, int]:
    """What *work* gives, and how often a ticker of 5 ms came round meanwhile."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    try:
        return await work, ticks
    finally:
        ticking.cancel()


def test_an_awaited_hold_is_used_and_released(tmp_path: Path) -> None:
    async def main() -> None:
        hold = await aio.acquire(lease_of(tmp_path))
        assert hold.fence == 1
        assert isinstance(hold.hold, Hold)
        await hold.check()
        assert (await aio.inspect(lease_of(tmp_path))).state == "held"
        await hold.release()
        await hold.release()

    run(main())
    assert is_free(tmp_path)


@pytest.mark.parametrize("fails", [False, True])
def test_async_with_releases_at_its_end_whatever_happened(tmp_path: Path, fails: bool) -> None:
    async def main() -> None:
        async with aio.acquire(lease_of(tmp_path), timeout=5) as hold:
            await hold.check()
            if fails:
                raise RuntimeError("the owner fails")

    if fails:
        with pytest.raises(RuntimeError):
            run(main())
    else:
        run(main())
    assert is_free(tmp_path)


def test_an_awaited_hold_is_a_context_manager_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.acquire(lease_of(tmp_path)) as hold:
            await hold.check()

    run(main())
    assert is_free(tmp_path)


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_an_absurd_timeout_is_refused_at_once(tmp_path: Path, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        run(_awaited(aio.acquire(lease_of(tmp_path), timeout)))


@NEEDS_LINUX_PROC
def test_waiting_blocks_no_loop_and_ends_as_busy(tmp_path: Path) -> None:
    async def wait() -> None:
        with pytest.raises(WriterBusyError) as busy:
            await aio.acquire(lease_of(tmp_path), timeout=0.5)
        assert busy.value.judgement.verdict.value == "alive"

    async def main() -> int:
        return (await busily(wait()))[1]

    with holders.holding(tmp_path / "store"):
        # A hundred, were the machine idle; a blocked loop would have none.
        assert run(main()) >= 10


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("how", ["dies", "releases"])
def test_a_waiter_is_woken_by_the_end_of_the_hold(tmp_path: Path, how: str) -> None:
    with holders.holding(tmp_path / "store") as agent:

        async def end_it() -> None:
            await asyncio.sleep(0.1)
            if how == "dies":
                agent.kill()
            else:
                await asyncio.to_thread(agent.ask, "release_hold")

        async def main() -> int:
            ending = asyncio.ensure_future(end_it())
            async with aio.acquire(lease_of(tmp_path), timeout=30) as hold:
                await ending
                return hold.fence

        assert run(main()) == 2


async def step(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def after_a_cancellation(task: asyncio.Task[aio.AsyncHold]) -> None:
    """Either cancelled and no hold is left, or not and the hold is usable."""
    try:
        hold = await task
    except asyncio.CancelledError:
        return
    await hold.check()
    await hold.release()


@pytest.mark.parametrize("steps", range(31))
def test_an_acquire_cancelled_after_any_step_leaves_no_hold_or_a_usable_one(tmp_path: Path, steps: int) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(_awaited(aio.acquire(lease_of(tmp_path))))
        await step(steps)
        task.cancel()
        await after_a_cancellation(task)
        assert is_free(tmp_path)
        async with aio.acquire(lease_of(tmp_path)) as hold:
            await hold.check()

    run(main())
    assert is_free(tmp_path)


async def _awaited(acquiring: Awaitable[aio.AsyncHold]) -> aio.AsyncHold:
    return await acquiring


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.003, 0.006, 0.01])
def test_an_acquire_cancelled_at_any_time_leaves_no_hold_or_a_usable_one(tmp_path: Path, seconds: float) -> None:
    async def main() -> None:
        for _ in range(5):
            task = asyncio.ensure_future(_awaited(aio.acquire(lease_of(tmp_path), timeout=5)))
            await asyncio.sleep(seconds)
            task.cancel()
            await after_a_cancellation(task)
            assert is_free(tmp_path)

    run(main())


class Gate(MemoryStore):
    """A store whose claims are created only once the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.opened = threading.Event()

    def create(self, key: str, data: bytes) -> Any:
        self.reached.set()
        assert self.opened.wait(30)
        return super().create(key, data)


def test_a_hold_that_is_granted_after_the_cancellation_is_given_back_before_it_is_told() -> None:
    store = Gate()

    async def main() -> None:
        task = asyncio.ensure_future(_awaited(aio.acquire(WriterLease(store, ttl=LONG))))
        await asyncio.to_thread(store.reached.wait, 30)
        task.cancel()
        await step(5)
        assert not task.done(), "nobody hears of the cancellation while a hold may still be granted"
        task.cancel()
        await step(5)
        store.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert WriterLease(store).inspect().state == "free"

    run(main())


@pytest.mark.parametrize("cancelled_before", [False, True])
def test_the_end_of_the_loop_leaves_no_hold_behind(cancelled_before: bool) -> None:
    """`asyncio.run` cancels every task that is left, those too in which the library itself waits."""
    store = Gate()
    opener = threading.Timer(0.3, store.opened.set)

    async def main() -> None:
        task = asyncio.ensure_future(_awaited(aio.acquire(WriterLease(store, ttl=LONG))))
        await asyncio.to_thread(store.reached.wait, 30)
        if cancelled_before:
            task.cancel()
            await step(3)
        opener.start()

    asyncio.run(main())
    opener.join()
    assert WriterLease(store).inspect().state == "free"


@pytest.mark.parametrize("steps", range(6))
def test_a_release_that_is_cancelled_comes_to_its_end(tmp_path: Path, steps: int) -> None:
    async def main() -> None:
        hold = await aio.acquire(lease_of(tmp_path))
        releasing = asyncio.ensure_future(hold.release())
        await step(steps)
        releasing.cancel()
        try:
            await releasing
        except asyncio.CancelledError:
            pass
        if steps:
            assert is_free(tmp_path)
        await hold.release()
        assert is_free(tmp_path)

    run(main())


def test_a_release_at_the_end_of_the_loop_comes_to_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        hold = await aio.acquire(lease_of(tmp_path))
        left_behind = asyncio.ensure_future(hold.release())
        await step(1)
        assert not left_behind.done()

    asyncio.run(main())
    assert is_free(tmp_path)


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.11, 0.2])
def test_a_waiter_that_is_cancelled_stops_waiting(tmp_path: Path, seconds: float) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(_awaited(aio.acquire(lease_of(tmp_path), timeout=60)))
        await asyncio.sleep(seconds)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with holders.holding(tmp_path / "store"):
        run(main())


@pytest.mark.parametrize("steps", range(8))
def test_a_cancellation_that_meets_a_wake_up_is_not_swallowed(steps: int) -> None:
    """`asyncio.wait_for` swallows one that comes together with its result, until Python 3.12."""

    async def main() -> None:
        reading, writing = os.pipe()
        try:
            waiting = asyncio.ensure_future(aio._until_readable([reading], 30))
            await step(3)
            os.write(writing, b"x")
            await step(steps)
            was_over = waiting.done()
            waiting.cancel()
            if was_over:
                await waiting
            else:
                with pytest.raises(asyncio.CancelledError):
                    await waiting
        finally:
            os.close(reading)
            os.close(writing)

    run(main())


def test_many_tasks_of_one_process_join_and_the_last_one_ends_it(tmp_path: Path) -> None:
    async def work(fences: list[int]) -> None:
        async with aio.acquire(lease_of(tmp_path), timeout=30) as hold:
            await hold.check()
            fences.append(hold.fence)
            await asyncio.sleep(0.01)
            await hold.check()

    async def main() -> list[int]:
        fences: list[int] = []
        await asyncio.gather(*(work(fences) for _ in range(30)))
        return fences

    assert len(run(main())) == 30
    assert is_free(tmp_path)


def test_many_tasks_cancelled_at_random_leave_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with aio.acquire(lease_of(tmp_path), timeout=30) as hold:
            await hold.check()
            await asyncio.sleep(0.005)

    async def main() -> None:
        tasks = [asyncio.ensure_future(work()) for _ in range(24)]
        for number, task in enumerate(tasks):
            await asyncio.sleep(0.001 * (number % 3))
            if number % 2:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        wrong = [one for one in outcomes if isinstance(one, Exception)]
        assert wrong == []

    run(main())
    assert is_free(tmp_path)
    assert ran("import tenure; hold = tenure.WriterLease(sys.argv[1]).acquire(); print('taken')", tmp_path / "store")


WAITERS: dict[str, str] = {
    "sync": """
        import tenure
        print("waiting")
        try:
            tenure.WriterLease(sys.argv[1]).acquire(timeout=600)
        except KeyboardInterrupt:
            print("interrupted")
    """,
    "async": """
        import asyncio, tenure
        from tenure import aio
        async def main():
            print("waiting")
            await aio.acquire(tenure.WriterLease(sys.argv[1]), timeout=600)
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
    """,
}


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("code", WAITERS.values(), ids=list(WAITERS))
def test_ctrl_c_ends_a_wait_at_once(tmp_path: Path, code: str) -> None:
    """The quickest of a few: a busy machine may delay one, and a sleep that is not interrupted delays each."""
    took = []
    with holders.holding(tmp_path / "store"):
        for _ in range(5):
            with Script(code, tmp_path / "store") as waiter:
                assert waiter.says() == "waiting"
                # Until it sleeps: as long as it takes its first look there is no wait to interrupt.
                time.sleep(0.3)
                started = time.monotonic()
                waiter.send(signal.SIGINT)
                assert waiter.says() == "interrupted"
                took.append(time.monotonic() - started)
                assert waiter.ends()[0] == 0
            if took[-1] < 0.2:
                return
    raise AssertionError(took)
