"""
The async door: the same lease for asyncio.

    async with aio.acquire(WriterLease("/srv/data"), timeout=60) as hold:
        await hold.check()

Waiting does not block the event loop, and a cancellation at any `await` leaves either no hold or a usable one.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TypeVar

from tenure._lease._hold import Hold
from tenure._lease._lease import WriterLease
from tenure._lease._sight import LeaseStatus

__all__ = ["AsyncHold", "acquire", "inspect"]

T = TypeVar("T")


class AsyncHold:
    """A `Hold` whose calls to the store run in a thread. An async context manager."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    @property
    def fence(self) -> int:
        """See `Hold.fence`."""
        return self._hold.fence

    @property
    def hold(self) -> Hold:
        """The hold itself, for code that is not async."""
        return self._hold

    async def check(self) -> None:
        """See `Hold.check`."""
        await asyncio.to_thread(self._hold.check)

    async def release(self) -> None:
        """See `Hold.release`. Comes to its end also when it is cancelled."""
        await _to_its_end(_in_a_thread(self._hold.release))

    async def __aenter__(self) -> AsyncHold:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    def __repr__(self) -> str:
        return f"<AsyncHold of {self._hold!r}>"


class _Acquiring(Awaitable[AsyncHold]):
    """What `acquire` returns: to be awaited for a hold, or entered for one that is released at the end."""

    def __init__(self, lease: WriterLease, timeout: float) -> None:
        self._lease = lease
        self._timeout = timeout
        self._hold: AsyncHold | None = None

    def __await__(self) -> Generator[object, None, AsyncHold]:
        return _acquire(self._lease, self._timeout).__await__()

    async def __aenter__(self) -> AsyncHold:
        self._hold = await self
        return self._hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hold is not None:
            await self._hold.release()


def acquire(lease: WriterLease, timeout: float = 0.0) -> _Acquiring:
    """
    Take *lease*, waiting up to *timeout* seconds; 0 tries once. Await it, or use it in `async with`.

    Raises:
        As `WriterLease.acquire`.
    """
    if not timeout >= 0:
        raise ValueError(f"timeout must be 0 or more seconds, not {timeout!r}")
    return _Acquiring(lease, timeout)


async def inspect(lease: WriterLease) -> LeaseStatus:
    """See `WriterLease.inspect`."""
    return await asyncio.to_thread(lease.inspect)


async def _acquire(lease: WriterLease, timeout: float) -> AsyncHold:
    with lease.waiting(timeout) as waiting:
        while True:
            trying = _in_a_thread(functools.partial(lease.attempt, waiting))
            try:
                outcome = await _to_its_end(trying)
            except asyncio.CancelledError:
                # The thread cannot be stopped. Whatever it still got is given back before anybody hears of the
                # cancellation, so that there is no hold that nobody knows of.
                if not trying.cancelled() and trying.exception() is None and isinstance(got := trying.result(), Hold):
                    await _to_its_end(_in_a_thread(got.release))
                raise
            if isinstance(outcome, Hold):
                return AsyncHold(outcome)
            await _until_readable(waiting.wakers(outcome), waiting.nap(outcome))


async def _until_readable(descriptors: list[int], seconds: float) -> None:
    """Sleep, no longer than until one of *descriptors* is readable."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    added = []
    # Not `asyncio.wait_for`: before Python 3.12 it swallows a cancellation that comes together with its result.
    timer = loop.call_later(seconds, woken.set)
    try:
        for descriptor in descriptors:
            try:
                loop.add_reader(descriptor, woken.set)
                added.append(descriptor)
            except NotImplementedError:
                # The proactor loop of Windows: the sleep alone.
                pass
        await woken.wait()
    finally:
        timer.cancel()
        for descriptor in added:
            loop.remove_reader(descriptor)


def _in_a_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """
    Have *work* done in a thread, from this moment on.

    A future and no task: `asyncio.run` ends by cancelling every task that is left, and what the thread brings would be lost.
    """
    context = contextvars.copy_context()
    return asyncio.get_running_loop().run_in_executor(None, lambda: context.run(work))


async def _to_its_end(work: asyncio.Future[T]) -> T:
    """Await *work*, also when cancelled meanwhile; the cancellation is passed on afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:  # noqa: BLE001  told by `result` below
            break
    if cancelled is not None:
        if not work.cancelled():
            # Looked at, or asyncio would complain that nobody has.
            work.exception()
        raise cancelled
    return work.result()
