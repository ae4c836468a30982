"""A whole datastore in a directory, with real processes that are killed, stopped for longer than their ttl, and broken by force."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tenure import Datastore
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


@NEEDS_PID_NAMESPACE
@pytest.mark.timeout(120 + SECONDS)
def test_nothing_acknowledged_is_lost_and_nothing_uncommitted_gets_in(tmp_path: Path) -> None:
    datastore = Datastore.create(tmp_path / "data", ttl=TTL, skew=SKEW)
    starts = [
        functools.partial(
            worker, tmp_path, str(tmp_path / "data"), role, checkout, TTL, prefix=OWN_PROC if apart else ()
        )
        for role, checkout, apart in WORKERS
    ]
    done = torture(starts, datastore.lease(), SECONDS, long_s=2 * (TTL + SKEW))
    # Or nothing was shown.
    assert check(datastore, tmp_path, ["shared", "alone"]) >= 5
    assert done["killed"] >= 5
