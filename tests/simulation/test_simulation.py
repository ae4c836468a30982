"""The real code, many processes of it, one seed at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tenure._commit._entry import Entry
from tests.simulation import files, ledger
from tests.simulation.bucket import bucket
from tests.simulation.record import History, check
from tests.simulation.sabotage import OF_BUCKETS, SABOTAGE
from tests.simulation.world import Access, plain

# In blocks, so that they are shared between workers; a failing seed is played again by `python -m tests.simulation --seed N`.
_BLOCK = 50
_LEDGER_SEEDS, _FILES_SEEDS = 2000, 200
# The first of the same on a bucket, which takes some times as long; `python -m tests.simulation` plays on.
_LEDGER_SEEDS_ON_A_BUCKET, _FILES_SEEDS_ON_A_BUCKET = 250, 50
# Each of these was wrong once.
_FOUND = {"a snapshot's failure was reported as that of the commit before it": 30}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _takeovers_are_no_news() -> Iterator[None]:
    logger = logging.getLogger("tenure.lease")
    before = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(before)


@pytest.mark.parametrize("first", range(0, _LEDGER_SEEDS, _BLOCK))
def test_what_writers_of_a_log_were_told_is_true(first: int) -> None:
    results = [ledger.play(seed) for seed in range(first, first + _BLOCK)]
    assert [result for result in results if result.wrong] == []
    # Or nothing was shown.
    assert sum(result.landed for result in results) > 100
    assert sum(result.faults for result in results) > 100
    assert sum(result.crashes for result in results) > 10


@pytest.mark.parametrize("first", range(0, _FILES_SEEDS, _BLOCK // 2))
def test_what_writers_of_a_datastore_were_told_is_true_and_their_files_are_right(first: int) -> None:
    results = [files.play(seed) for seed in range(first, first + _BLOCK // 2)]
    assert [result for result in results if result.wrong] == []
    assert sum(result.landed for result in results) > 50
    assert sum(result.faults for result in results) > 50


@pytest.mark.parametrize("first", range(0, _LEDGER_SEEDS_ON_A_BUCKET, _BLOCK))
def test_what_writers_of_a_log_in_a_bucket_were_told_is_true(first: int) -> None:
    results = [ledger.play(seed, access=bucket) for seed in range(first, first + _BLOCK)]
    assert [result for result in results if result.wrong] == []
    assert sum(result.landed for result in results) > 100
    assert sum(result.faults for result in results) > 500
    assert sum(result.crashes for result in results) > 10


@pytest.mark.parametrize("first", range(0, _FILES_SEEDS_ON_A_BUCKET, _BLOCK // 2))
def test_what_writers_of_a_datastore_in_a_bucket_were_told_is_true_and_their_files_are_right(first: int) -> None:
    results = [files.play(seed, access=bucket) for seed in range(first, first + _BLOCK // 2)]
    assert [result for result in results if result.wrong] == []
    assert sum(result.landed for result in results) > 50
    assert sum(result.faults for result in results) > 100


@pytest.mark.parametrize("what", _FOUND)
def test_a_seed_that_was_wrong_once_is_right(what: str) -> None:
    assert files.play(_FOUND[what]).wrong == []


@pytest.mark.parametrize("seed", [3, 28])
@pytest.mark.parametrize("access", [plain, bucket])
def test_a_seed_replays(seed: int, access: Access) -> None:
    assert ledger.play(seed, access=access) == ledger.play(seed, access=access)


@pytest.mark.parametrize("sabotage", SABOTAGE, ids=lambda one: str(one.__name__))
def test_wrong_code_is_noticed(sabotage: Callable[[], AbstractContextManager[None]]) -> None:
    with sabotage():
        assert any(ledger.play(seed).wrong for seed in range(100))


@pytest.mark.parametrize("sabotage", OF_BUCKETS, ids=lambda one: str(one.__name__))
def test_wrong_code_for_buckets_is_noticed(sabotage: Callable[[], AbstractContextManager[None]]) -> None:
    with sabotage():
        assert any(ledger.play(seed, access=bucket).wrong for seed in range(100))


def commit(slot: int, commit_id: str, fence: int = 1, kind: str = "commit") -> Entry:
    return Entry(slot, fence, "0" * 32, kind, commit_id, 0, None)  # type: ignore[arg-type]


LOG = [commit(1, "s", kind="seal"), commit(2, "a"), commit(3, "b")]


@pytest.mark.parametrize(
    ("log", "said", "wrong"),
    [
        (LOG, {}, None),
        (LOG, {"a": ("landed", 0, 1, 2), "b": ("landed", 2, 3, 3)}, None),
        (LOG, {"c": ("landed", 0, 1, 4)}, "not in the log"),
        (LOG, {"a": ("failed", 0, 1, None)}, "reported failed"),
        (LOG, {"a": ("landed", 5, 6, 2), "b": ("landed", 0, 1, 3)}, "acknowledged before it began"),
        (LOG, {"b": ("landed", 0, 1, 2)}, "acknowledged at 2 and is at 3"),
        ([*LOG, commit(4, "a")], {}, "landed twice"),
        ([*LOG, commit(4, "c", fence=2)], {}, "without having sealed"),
        ([commit(1, "s", fence=2, kind="seal"), commit(2, "a")], {}, "the fence falls"),
    ],
)
def test_the_checker_notices(
    log: list[Entry], said: dict[str, tuple[str, int, int, int | None]], wrong: str | None
) -> None:
    history = History()
    for name, (outcome, invoked, completed, slot) in said.items():
        operation = history.invoke(name, invoked)
        operation.outcome, operation.completed, operation.slot = outcome, completed, slot  # type: ignore[assignment]
    found = check(history, log)
    assert found == [] if wrong is None else any(wrong in problem for problem in found)


@pytest.mark.parametrize(("applied", "good"), [(["a"], True), (["a", "b"], True), (["b"], False), (["a", "a"], False)])
def test_a_reader_must_have_seen_a_prefix(applied: list[str], good: bool) -> None:
    assert (check(History(readers={"r": [applied]}), LOG) == []) == good
