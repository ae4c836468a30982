# ruff: noqa: PT012  what is raised at the end of a block depends on all that was done in it
"""Telling caches: after a commit that is known and never before; and what a cache may conclude."""

from __future__ import annotations

import pytest

from tenure.sql import Notice, Pin, PublishFailedError, StaleEpochError, freshness
from tests.sql.conftest import SQLITE
from tests.sql.databases import SCOPE, STORE, Database, Writer

PIN = Pin("doc:42", 7, "0" * 32)


class Cache:
    """Takes notices, or is out of order."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.order: list[str] = []
        self.broken = False

    def __call__(self, notice: Notice) -> None:
        self.order.append(notice.encode())
        if self.broken:
            raise ConnectionError("no cache")
        self.values[notice.scope] = notice.encode()


@pytest.fixture
def cache() -> Cache:
    return Cache()


def test_what_is_committed_is_told_and_nothing_else(database: Database, cache: Cache) -> None:
    a, b = Writer(database.fence(publish=cache)).load(), Writer(database.fence()).load()
    a.append("+A")
    assert cache.order == ["2"]
    with pytest.raises(StaleEpochError):
        Writer(a.fence).fence.write(b.pin).__enter__()
    with pytest.raises(KeyError), a.fence.write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        raise KeyError
    with a.fence.write(a.pin):
        pass
    assert cache.order == ["2"], "a refusal, a failure and a block that did nothing are not told"
    assert a.fence.claim(SCOPE).epoch == 3
    a.load().fence.destroy(a.pin)
    assert cache.order == ["2", "3", "gone:4"]


@pytest.mark.parametrize("empty", [SQLITE], indirect=True)
def test_when_telling_fails_the_commit_stands_and_the_notice_is_kept(database: Database, cache: Cache) -> None:
    a = Writer(database.fence(publish=cache)).load()
    cache.broken = True
    with pytest.raises(PublishFailedError) as failed, a.fence.write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
    assert (failed.value.applied, failed.value.retry) == (True, "never")
    assert tx.committed_pin is not None
    assert database.body() == "x"
    assert a.fence.publish_deferred() == 1
    cache.broken = False
    assert a.fence.publish_deferred() == 0
    assert cache.values == {SCOPE: "2"}


@pytest.mark.parametrize("empty", [SQLITE], indirect=True)
def test_a_later_commit_says_all_that_an_earlier_notice_would_have_said(database: Database, cache: Cache) -> None:
    a = Writer(database.fence(publish=cache)).load()
    cache.broken = True
    for _ in range(2):
        with pytest.raises(PublishFailedError):
            a.append("+A")
        a.load()
    assert a.fence.publish_deferred() == 1, "one for the scope, and the newer one"
    cache.broken = False
    a.append("+A")
    assert a.fence.publish_deferred() == 0
    assert cache.values == {SCOPE: "4"}


@pytest.mark.parametrize(
    ("published", "answer"),
    [
        ("7", "current"),
        (b"7", "current"),
        ("8", "moved"),
        ("9", "moved"),
        ("6", "behind"),
        ("0", "behind"),
        (None, "absent"),
        ("gone:8", "gone"),
        (b"gone:0", "gone"),
        ("gone:", "gone"),
        ("", "garbage"),
        ("-1", "garbage"),
        ("7 ", "garbage"),
        ("7.0", "garbage"),
        ("\u0667", "garbage"),
        (b"\xff", "garbage"),
        ("9" * 19, "garbage"),
        ("9" * 40, "garbage"),
    ],
)
def test_a_tombstone_an_absence_and_nonsense_are_three_answers(published: str | bytes | None, answer: str) -> None:
    assert freshness(PIN, published) == answer
