"""
A whole datastore under torture: real processes that are killed, stopped for longer than their ttl, broken by force and cut off; and
what must hold afterwards.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tenure import Datastore, Error, WriterLease
from tests.helpers.networks import Machine
from tests.helpers.processes import ROOT
from tests.torture.datastore_worker import content

SECONDS = float(os.environ.get("TENURE_TORTURE_SECONDS", "10"))
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
# Between the last look and the put: where only the store itself can refuse who was replaced meanwhile.
_STALL = "log.putting=stop@3"
Start = Callable[[], "subprocess.Popen[bytes]"]


def worker(
    place: Path,
    store: str,
    role: str,
    checkout: str,
    ttl: float,
    *,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """One of those who work in the datastore *store*, in a checkout below *place*."""
    points = random.choice(("", f"{random.choice(POINTS)}=kill@{random.randrange(1, 30)}", _STALL))
    module = [sys.executable, "-m", "tests.torture.datastore_worker"]
    return subprocess.Popen(
        [*prefix, *module, role, store, str(place / checkout), str(place / "events"), str(ttl)],
        cwd=ROOT,
        env={**os.environ, **(environment or {}), "TENURE_FAILPOINTS": points},
        stderr=subprocess.DEVNULL,
    )


def torture(
    starts: Sequence[Start], lease: WriterLease, seconds: float, *, long_s: float, machines: Sequence[Machine] = ()
) -> Counter[str]:
    """
    Do things to the workers that *starts* start, and say what.

    Args:
        starts: start a worker each, and another one for each that has ended.
        lease: of the store, to break it by force.
        seconds: for how long.
        long_s: longer than ttl and skew: for how long a worker is stopped, or a machine cut off.
        machines: whose cable may be cut.
    """
    done: Counter[str] = Counter()
    running = [start() for start in starts]
    undo: list[tuple[float, Callable[[], None]]] = []
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            for one in [one for one in undo if one[0] <= time.monotonic()]:
                undo.remove(one)
                one[1]()
            number = random.randrange(len(running))
            process = running[number]
            chance = random.random()
            later = time.monotonic() + random.choice((0.01, long_s))
            if process.poll() is not None:
                running[number] = starts[number]()
                done["started"] += 1
            elif chance < 0.15:
                process.kill()
                done["killed"] += 1
                # Left unreaped for a while.
            elif chance < 0.3:
                process.send_signal(signal.SIGSTOP)
                undo.append((later, lambda process=process: process.send_signal(signal.SIGCONT)))  # type: ignore[misc]
                done["stopped"] += 1
            elif chance < 0.35:
                with contextlib.suppress(Error):
                    lease.force_release(lease.inspect().nonce, even_if_alive=True)
                    done["forced"] += 1
            elif chance < 0.4:
                # Who has stopped by itself.
                process.send_signal(signal.SIGCONT)
            elif chance < 0.45 and machines:
                machine = random.choice(machines)
                machine.cut()
                undo.append((later, machine.mend))
                done["cut off"] += 1
            time.sleep(0.05)
    finally:
        for process in running:
            process.kill()
            process.wait()
        for machine in machines:
            machine.mend()
    return done


def check(datastore: Datastore, place: Path, checkouts: Sequence[str]) -> int:
    """Raise `AssertionError` unless all that the workers were told is true; how many commits were acknowledged."""
    said: dict[str, dict[str, str]] = {}
    for told in (place / "events").read_text().splitlines():
        word, commit_id, *rest = told.split()
        said.setdefault(word, {})[commit_id] = rest[0] if rest else ""
    begun, landed = said.get("begun", {}), said.get("landed", {})
    for name in checkouts:
        with datastore.checkout(place / name) as checkout:
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
    for before, after in itertools.pairwise(datastore.log()):
        assert before.fence == after.fence or (before.fence < after.fence and after.kind == "seal"), (before, after)
    for line in log:
        for info in datastore.files(at=line.slot):
            if info.slot == line.slot:
                assert datastore.read(info.name, at=line.slot) == content(line.id, info.name)
    assert list(datastore.verify()) == []
    return len(landed)
