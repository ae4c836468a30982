# ruff: noqa: PT012  what is raised at the end of a block depends on all that was done in it
"""The fence for asyncio: the same verdicts, and a cancellation that leaves nothing half known."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tenure import FencedError, StoreCannotLockError
from tenure.sql import (
    Applied,
    AsyncEpochFence,
    CommitToken,
    CommitUnknownError,
    FenceError,
    NotApplied,
    Notice,
    Pin,
    PublishFailedError,
    ScopeGoneError,
    ScopeLostError,
    StaleEpochError,
)
from tests.helpers.proxy import Loss, Proxy
from tests.sql.conftest import MARIADB, POOLED, POSTGRESQL, SQLITE
from tests.sql.databases import BASE, LOAD, SCOPE, STORE, Database, Writer

DRIVERS = [
    pytest.param("sqlite", "aiosqlite", marks=SQLITE.marks),
    pytest.param("postgresql", "psycopg", marks=POSTGRESQL.marks),
    pytest.param("pooled", "psycopg", marks=POOLED.marks),
    pytest.param("postgresql", "asyncpg", marks=POSTGRESQL.marks),
    pytest.param("mariadb", "asyncmy", marks=MARIADB.marks),
]
every_driver = pytest.mark.parametrize(("empty", "driver"), DRIVERS, indirect=["empty"])
one_driver = pytest.mark.parametrize(("empty", "driver"), DRIVERS[1:2], indirect=["empty"])


@contextlib.asynccontextmanager
async def opened(database: Database, driver: str, url: str | None = None, **options: Any) -> AsyncIterator[AsyncEngine]:
    """An engine of the running loop."""
    scheme, _, rest = (url or database.url).partition("://")
    if database.kind == "pooled":
        options["connect_args"] = {"prepare_threshold": None}
    engine = create_async_engine(f"{scheme.partition('+')[0]}+{driver}://{rest}", **options)
    try:
        yield engine
    finally:
        await engine.dispose()


async def loaded(fence: AsyncEpochFence) -> tuple[Pin, str]:
    async with fence.read(SCOPE) as snap:
        return snap.pin, await snap.scalar(LOAD, {"id": SCOPE})


async def append(fence: AsyncEpochFence, pin: Pin, body: str) -> Pin:
    async with fence.write(pin) as tx:
        await tx.execute(STORE, {"id": SCOPE, "body": body})
    assert tx.committed_pin is not None
    return tx.committed_pin


def played(
    database: Database, driver: str, scene: Callable[[AsyncEpochFence], Awaitable[None]], **options: Any
) -> None:
    async def play() -> None:
        async with opened(database, driver) as engine:
            await scene(AsyncEpochFence(engine, **options))

    asyncio.run(play())


@every_driver
def test_a_stale_writer_is_refused_and_a_reload_helps(database: Database, driver: str) -> None:
    async def scene(fence: AsyncEpochFence) -> None:
        await fence.migrate()
        pin, body = await loaded(fence)
        await asyncio.to_thread(lambda: Writer(database.fence()).load().append("+B"))
        with pytest.raises(StaleEpochError):
            await append(fence, pin, body + "+A")
        pin, body = await loaded(fence)
        await append(fence, pin, body + "+A")

    played(database, driver, scene)
    assert database.body() == "base+B+A"


@every_driver
def test_all_the_rest_of_it(database: Database, driver: str) -> None:
    told: list[str] = []

    async def tell(notice: Notice) -> None:
        told.append(notice.encode())

    async def scene(fence: AsyncEpochFence) -> None:
        pin = await fence.claim(SCOPE, holder="me")
        async with fence.write(pin) as tx:
            async with tx.session() as session:
                await session.execute(STORE, {"id": SCOPE, "body": "x"})
                await session.commit()
            token = tx.token
        assert await fence.resolve(token) == Applied(tx.committed_pin)  # type: ignore[arg-type]
        with pytest.raises(KeyError):
            async with fence.write(tx.committed_pin) as failing:  # type: ignore[arg-type]
                with pytest.raises(KeyError):
                    async with failing.savepoint():
                        await failing.execute(STORE, {"id": SCOPE, "body": "y"})
                        raise KeyError
                assert await failing.scalar(LOAD, {"id": SCOPE}) == "x"
                raise KeyError
        async with fence.write(tx.committed_pin) as idle:  # type: ignore[arg-type]
            idle.withdraw()
        assert idle.committed_pin == tx.committed_pin
        await fence.destroy(tx.committed_pin)  # type: ignore[arg-type]
        with pytest.raises(ScopeGoneError):
            await loaded(fence)
        assert (await fence.create(SCOPE)).epoch == 5
        assert await fence.prune(3600) == 0

    played(database, driver, scene, publish=tell)
    assert told == ["2", "3", "gone:4", "5"]


@every_driver
def test_a_swallowed_error_is_raised_at_the_end(database: Database, driver: str) -> None:
    async def scene(fence: AsyncEpochFence) -> None:
        pin, _ = await loaded(fence)
        with pytest.raises(ScopeLostError):
            async with fence.write(pin) as tx:
                await tx.execute(STORE, {"id": SCOPE, "body": "x"})
                with contextlib.suppress(SQLAlchemyError):
                    await tx.execute(text("nonsense"))
                with pytest.raises(FenceError):
                    await tx.execute(STORE, {"id": SCOPE, "body": "y"})

    played(database, driver, scene)
    assert (database.body(), database.epoch()) == (BASE, 1)


@every_driver
def test_a_block_that_is_cancelled_leaves_nothing(database: Database, driver: str) -> None:
    async def scene(fence: AsyncEpochFence) -> None:
        pin, _ = await loaded(fence)
        inside = asyncio.Event()

        async def work() -> None:
            async with fence.write(pin) as tx:
                await tx.execute(STORE, {"id": SCOPE, "body": "x"})
                inside.set()
                await asyncio.sleep(3600)

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await append(fence, pin, "after")

    played(database, driver, scene)
    assert (database.body(), database.epoch()) == ("after", 2)


@pytest.mark.parametrize(("empty", "driver"), DRIVERS[1:], indirect=["empty"])
def test_an_open_that_is_cancelled_is_not_adopted_by_the_next_one(database: Database, driver: str) -> None:
    """It waits for the row when it is cancelled; what it was granted afterwards belongs to nobody."""

    async def scene(fence: AsyncEpochFence) -> None:
        pin, _ = await loaded(fence)
        async with fence.write(pin) as holding:
            await holding.execute(text("SELECT 1"))
            late = asyncio.create_task(fence.write(pin).__aenter__())
            await asyncio.sleep(0.3)
            late.cancel()
            with pytest.raises(asyncio.CancelledError):
                await late
            holding.withdraw()
        pin = await append(fence, pin, "first")
        await append(fence, pin, "second")

    played(database, driver, scene)
    assert (database.body(), database.epoch()) == ("second", 3)


@every_driver
def test_a_commit_that_was_sent_is_waited_for_although_cancelled(database: Database, driver: str) -> None:
    async def scene(fence: AsyncEpochFence) -> None:
        pin, _ = await loaded(fence)
        transactions: list[Any] = []

        async def work() -> None:
            async with fence.write(pin) as tx:
                transactions.append(tx)
                await tx.execute(STORE, {"id": SCOPE, "body": "x"})
                # Heard at the next await, which is in the commit.
                asyncio.get_running_loop().call_soon(task.cancel)

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        committed = transactions[0].committed_pin
        assert committed is not None, "the program can still learn what became of it"
        assert await fence.resolve(transactions[0].token) == Applied(committed)

    played(database, driver, scene)
    assert database.body() == "x"


@one_driver
@pytest.mark.parametrize(("loss", "applied"), [("answer", True), ("request", False)])
def test_a_lost_commit_is_unknown_until_it_is_resolved(
    database: Database, driver: str, loss: Loss, applied: bool
) -> None:
    async def play() -> None:
        with Proxy(database.port) as proxy:
            async with opened(database, driver, proxy.before(database.url)) as engine:
                fence = AsyncEpochFence(engine)
                pin, _ = await loaded(fence)
                with pytest.raises(CommitUnknownError) as unknown:
                    async with fence.write(pin) as tx:
                        await tx.execute(STORE, {"id": SCOPE, "body": "x"})
                        proxy.lose(loss, b"COMMIT")
                token: CommitToken = unknown.value.token
                assert isinstance(await fence.resolve(token), Applied if applied else NotApplied)

    asyncio.run(play())
    assert database.body() == ("x" if applied else BASE)


@one_driver
def test_many_tasks_keep_every_append_that_was_acknowledged(database: Database, driver: str) -> None:
    async def scene(fence: AsyncEpochFence) -> None:
        @fence.retry(tries=200)
        async def grow(tail: str) -> None:
            pin, body = await loaded(fence)
            await append(fence, pin, body + tail)

        await asyncio.gather(*(grow(f"+{number}") for number in range(20)))

    played(database, driver, scene)
    assert sorted((database.body() or "").split("+")[1:], key=int) == [str(number) for number in range(20)]


@one_driver
def test_a_notice_that_cannot_be_published_is_kept(database: Database, driver: str) -> None:
    broken = True

    def tell(_: Notice) -> None:
        if broken:
            raise ConnectionError

    async def scene(fence: AsyncEpochFence) -> None:
        nonlocal broken
        pin, _ = await loaded(fence)
        with pytest.raises(PublishFailedError):
            await append(fence, pin, "x")
        assert await fence.publish_deferred() == 1
        broken = False
        assert await fence.publish_deferred() == 0

    played(database, driver, scene, publish=tell)
    assert database.body() == "x"


@one_driver
def test_a_lease_lost_before_commit_rolls_back(database: Database, driver: str) -> None:
    class Lost:
        state = "lost"

        def check(self) -> None:
            raise FencedError("lost", ours=1, current=2)

    async def scene(fence: AsyncEpochFence) -> None:
        pin, _ = await loaded(fence)
        with pytest.raises(FencedError):
            async with fence.write(pin, hold=Lost()) as tx:
                await tx.execute(STORE, {"id": SCOPE, "body": "x"})

    played(database, driver, scene)
    assert (database.body(), database.epoch()) == (BASE, 1)


@one_driver
def test_an_engine_in_autocommit_is_refused(database: Database, driver: str) -> None:
    async def play() -> None:
        async with opened(database, driver, isolation_level="AUTOCOMMIT") as engine:
            with pytest.raises(StoreCannotLockError):
                AsyncEpochFence(engine)

    asyncio.run(play())
