"""A datastore in a bucket, worked at from two machines whose processes are killed and stopped, and whose network is cut and loses replies."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tenure import Datastore
from tests.helpers.capabilities import NEEDS_CABLES, NEEDS_LINUX_PROC, NEEDS_MOUNT
from tests.helpers.networks import machines
from tests.helpers.object_server import ENVIRONMENT, ObjectServer
from tests.torture.datastore import SECONDS, check, torture, worker

# Longer than in a directory: a renewal here is a request to a server that has them all to answer.
TTL, SKEW = 1.0, 0.25
# Machine, role and checkout: a checkout is on one machine.
WORKERS = [
    (0, "write", "shared"),
    (0, "write", "shared"),
    (1, "write", "alone"),
    (0, "read", "shared"),
    (1, "read", "alone"),
]


@NEEDS_LINUX_PROC
@NEEDS_MOUNT
@NEEDS_CABLES
@pytest.mark.timeout(180 + 2 * SECONDS)
def test_nothing_acknowledged_is_lost_between_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with machines("first", "second") as (address, made), ObjectServer(host=address) as server:
        url = f"{server.url()}&timeout=1"
        datastore = Datastore.create(url, ttl=TTL, skew=SKEW)
        # A cut seldom comes just between what is applied and its reply.
        server.on("create", "replace", "delete", nth=0).lose_replies(0.03)
        starts = [
            functools.partial(
                worker,
                tmp_path,
                url,
                role,
                checkout,
                TTL,
                prefix=made[machine].prefix,
                environment={"TENURE_HOST_ID": made[machine].name, "TENURE_CACHE": str(tmp_path / made[machine].name)},
            )
            for machine, role, checkout in WORKERS
        ]
        done = torture(starts, datastore.lease(), SECONDS, long_s=2 * (TTL + SKEW), machines=made)
        # Or nothing was shown.
        assert check(datastore, tmp_path, ["shared", "alone"]) >= 5
        assert done["killed"] >= 5
        assert done["cut off"] >= 1
