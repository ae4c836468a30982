"""A whole datastore, with real processes that are killed, stopped for longer than their ttl, and broken by force."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tenure import Datastore, Error
from tests.helpers.capabilities import NEEDS_PID_NAMESPACE
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.processes import ROOT
from tests.torture.datastore_worker import SKEW, TTL, content

SECONDS = float(os.environ.get("TENURE_TORTURE_SECONDS", "10"))
# Role, checkout, and whether in a pid namespace of its own: two writers share a checkout, and readers follow where writers work.
WORKERS = [
    ("write", "shared", False),
    ("write", "shared", True),
    ("write", "alone", False),
    ("read", "shared", False),
    ("read", "alone", True),
]
# Between the steps, where a kill at random seldom comes.
POINTS = (
    "log.putting",
    "log.put",
    "log.sealed",
    "outbox.prepared",
    "checkout.put",
    "publish.linked",
    "checkout.restored",
)


def start(place: Path, role: str, checkout: str, apart: bool) -> subprocess.Popen[bytes]:
    points = f"{random.choice(POINTS)}=kill@{random.randrange(1, 30)}" if random.random() < 0.5 else ""
    worker = [sys.executable, "-m", "tests.torture.datastore_worker"]
    arguments = [role, str(place / "data"), str(place / checkout), str(place / "events")]
    return subprocess.Popen(
        [*(OWN_PROC if apart else ()), *worker, *arguments],
        cwd=ROOT,
        env=os.environ | {"TENURE_FAILPOINTS": points},
        stderr=subprocess.DEVNULL,
    )


def torture(place: Path, seconds: float) -> Counter[str]:
    """What was done to them."""
    done: Counter[str] = Counter()
    running = [start(place, *worker) for worker in WORKERS]
    lease = Datastore(place / "data", ttl=TTL, skew=SKEW).lease()
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            number = random.randrange(len(running))
            process = running[number]
            chance = random.random()
            if process.poll() is not None:
                running[number] = start(place, *WORKERS[number])
                done["started"] += 1
            elif chance < 0.2:
                process.kill()
                done["killed"] += 1
                # Left unreaped for a while.
            elif chance < 0.4:
                process.send_signal(signal.SIGSTOP)
                time.sleep(random.choice((0.01, 2 * (TTL + SKEW))))
                process.send_signal(signal.SIGCONT)
                done["stopped"] += 1
            elif chance < 0.45:
                with contextlib.suppress(Error):
                    lease.force_release(lease.inspect().nonce, even_if_alive=True)
                    done["forced"] += 1
            time.sleep(0.05)
    finally:
        for process in running:
            process.kill()
            process.wait()
    return done


@NEEDS_PID_NAMESPACE
@pytest.mark.timeout(120 + SECONDS)
def test_nothing_acknowledged_is_lost_and_nothing_uncommitted_gets_in(tmp_path: Path) -> None:
    datastore = Datastore.create(tmp_path / "data", ttl=TTL, skew=SKEW)
    done = torture(tmp_path, SECONDS)
    said: dict[str, dict[str, str]] = {}
    for told in (tmp_path / "events").read_text().splitlines():
        word, commit_id, *rest = told.split()
        said.setdefault(word, {})[commit_id] = rest[0] if rest else ""
    begun, landed = said.get("begun", {}), said.get("landed", {})
    for name in ("shared", "alone"):
        with datastore.checkout(tmp_path / name) as checkout:
            checkout.recover(timeout=60.0)
            expected = {info.name: datastore.read(info.name) for info in datastore.files()}
            found = {name: (checkout.path / name).read_bytes() for name in expected}
            assert found == expected
            assert checkout.outbox.undecided_floor() is None
    log = [line for line in datastore.log() if line.kind == "commit" and line.message is None]
    there = Counter(line.id for line in log)
    assert set(there.values()) <= {1}, "landed twice"
    assert {line.id: str(line.slot) for line in log if line.id in landed} == landed, "lost or moved"
    assert there.keys() <= begun.keys(), "in the log, and nobody has committed it"
    assert not there.keys() & said.get("refused", {}).keys(), "reported as refused, and landed"
    assert "changed" not in said, "a live writer's file changed under it"
    fences = [line.fence for line in datastore.log()]
    assert fences == sorted(fences)
    for line in log:
        for info in datastore.files(at=line.slot):
            if info.slot == line.slot:
                assert datastore.read(info.name, at=line.slot) == content(line.id, info.name)
    assert list(datastore.verify()) == []
    # Or nothing was shown.
    assert len(landed) >= 5
    assert done["killed"] >= 5
