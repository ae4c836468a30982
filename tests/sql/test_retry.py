"""retry: the load with the write, and only where nothing was applied."""

from __future__ import annotations

import itertools

import pytest

from tenure.sql import (
    CommitUnknownError,
    EpochFence,
    FenceError,
    PublishFailedError,
    ScopeGoneError,
    ScopeLostError,
    StaleEpochError,
)
from tenure.sql._errors import FenceError as Base
from tenure.testing import ManualClock
from tests.sql.conftest import SQLITE
from tests.sql.databases import STORE, Database, Writer
from tests.sql.waiting import InThread

pytestmark = pytest.mark.parametrize("empty", [SQLITE], indirect=True)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fence(database: Database, clock: ManualClock) -> EpochFence:
    return database.fence(clock=clock)


def stale() -> StaleEpochError:
    return StaleEpochError("stale", ours=1, current=2)


def test_a_refused_append_is_loaded_and_written_again(database: Database, fence: EpochFence) -> None:
    peers = [Writer(database.fence()).load() for _ in range(3)]

    @fence.retry(tries=5)
    def append(tail: str) -> str:
        """Appends."""
        writer = Writer(fence).load()
        if peers:
            # In another thread, as everybody else's commits are: those of this call would forbid its repetition.
            assert InThread(lambda: peers.pop().load().append("+peer")).end() is None
        writer.append(tail)
        return writer.body

    assert append("+A") == "base+peer+peer+peer+A"
    assert database.body() == "base+peer+peer+peer+A"
    assert (append.__name__, append.__doc__) == ("append", "Appends.")


def test_it_gives_up_after_its_tries_with_the_last_refusal(fence: EpochFence, clock: ManualClock) -> None:
    calls: list[float] = []

    @fence.retry(tries=4, pause=1.0, longest=2.0)
    def refused() -> None:
        calls.append(clock.awake())
        raise stale()

    with pytest.raises(StaleEpochError):
        refused()
    assert len(calls) == 4
    pauses = [later - earlier for earlier, later in itertools.pairwise(calls)]
    assert all(0 <= pause <= limit for pause, limit in zip(pauses, [1.0, 2.0, 2.0], strict=True))


@pytest.mark.parametrize(
    "error",
    [
        CommitUnknownError("unknown", applied=None),
        PublishFailedError("published", applied=True),
        ScopeGoneError("gone"),
        FenceError("odd"),
        ValueError("mine"),
    ],
)
def test_what_may_have_been_applied_or_will_not_change_is_not_repeated(fence: EpochFence, error: Exception) -> None:
    calls = []

    @fence.retry(tries=5)
    def failing() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        failing()
    assert len(calls) == 1


def test_a_lost_transaction_is_repeated(fence: EpochFence) -> None:
    calls = []

    @fence.retry(tries=5)
    def failing() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ScopeLostError("lost")
        return "done"

    assert failing() == "done"
    assert len(calls) == 3


def test_a_call_that_has_committed_something_is_not_repeated(database: Database, fence: EpochFence) -> None:
    """The promise is about a transaction and not about a call: all of it again would apply the first one twice."""
    calls = []

    @fence.retry(tries=5)
    def two_transactions() -> None:
        calls.append(1)
        writer = Writer(fence).load()
        writer.append("+first")
        raise stale()

    with pytest.raises(StaleEpochError):
        two_transactions()
    assert len(calls) == 1
    assert database.body() == "base+first"


def test_not_even_when_it_is_called_within_another_one(database: Database, fence: EpochFence) -> None:
    calls = []

    @fence.retry(tries=5)
    def inner() -> None:
        Writer(fence).load().append("+first")

    @fence.retry(tries=5)
    def outer() -> None:
        calls.append(1)
        inner()
        raise stale()

    with pytest.raises(StaleEpochError):
        outer()
    assert len(calls) == 1
    assert database.body() == "base+first"


def test_a_block_that_did_nothing_does_not_count_as_a_commit(database: Database, fence: EpochFence) -> None:
    calls = []

    @fence.retry(tries=2)
    def idle() -> None:
        calls.append(1)
        with fence.write(Writer(fence).load().pin) as tx:
            tx.execute(STORE, {"id": "nobody", "body": "x"})
            tx.withdraw()
        raise stale()

    with pytest.raises(StaleEpochError):
        idle()
    assert len(calls) == 2


@pytest.mark.parametrize("bad", [{"tries": 0}, {"pause": -1.0}, {"pause": 2.0, "longest": 1.0}])
def test_bad_limits_are_refused(fence: EpochFence, bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="tries"):
        fence.retry(**bad)(lambda: None)()  # type: ignore[arg-type]


def test_there_is_no_way_to_have_an_unknown_commit_repeated(fence: EpochFence) -> None:
    """Not by an option, and not by an error that says that it may be."""
    error = CommitUnknownError("unknown", applied=None, retry="reload")
    calls = []

    @fence.retry(tries=5)
    def failing() -> None:
        calls.append(1)
        raise error

    with pytest.raises(Base):
        failing()
    assert len(calls) == 1
