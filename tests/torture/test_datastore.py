"""A whole datastore in a directory, with real processes that are killed, stopped for longer than their ttl, and broken by force."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pytest

from tenure import Datastore, RecordError
from tests.helpers.capabilities import NEEDS_PID_NAMESPACE
from tests.helpers.namespaces import OWN_PROC
from tests.torture.datastore import SECONDS, check, torture, worker

TTL, SKEW = 0.4, 0.1
# Role, checkout, and whether in a pid namespace of its own: two writers share a checkout, and readers follow where writers work.
WORKERS = [
    ("write", "shared", False),
    ("write", "shared", True),
    ("write", "alone", False),
    ("read", "shared", False),
    ("read", "alone", True),
]


def tortured(place: Path, seconds: float, **environment: str) -> tuple[Datastore, Counter[str]]:
    datastore = Datastore.create(place / "data", ttl=TTL, skew=SKEW)
    starts = [
        functools.partial(
            worker,
            place,
            str(place / "data"),
            role,
            checkout,
            TTL,
            prefix=OWN_PROC if apart else (),
            environment=environment,
        )
        for role, checkout, apart in WORKERS
    ]
    return datastore, torture(starts, datastore.lease(), seconds, long_s=2 * (TTL + SKEW))


@NEEDS_PID_NAMESPACE
@pytest.mark.timeout(120 + SECONDS)
def test_nothing_acknowledged_is_lost_and_nothing_uncommitted_gets_in(tmp_path: Path) -> None:
    datastore, done = tortured(tmp_path, SECONDS)
    # Or nothing was shown.
    assert check(datastore, tmp_path, ["shared", "alone"]) >= 5
    assert done["killed"] >= 5


@NEEDS_PID_NAMESPACE
@pytest.mark.timeout(300)
def test_a_store_that_checks_and_then_writes_is_caught(tmp_path: Path) -> None:
    """Or the torture has no teeth. Chance decides what is lost, so it gets eight tries, of which about every second one is enough."""
    for attempt in range(8):
        (tmp_path / str(attempt)).mkdir()
        datastore, _ = tortured(tmp_path / str(attempt), 10, CHECK_THEN_PUT="1")
        try:
            check(datastore, tmp_path / str(attempt), ["shared", "alone"])
        except (AssertionError, RecordError):
            return
    pytest.fail("nothing was lost")
