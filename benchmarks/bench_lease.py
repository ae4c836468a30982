"""
What a lease costs: acquire and release beside its own system calls and other locks, takeover after a kill, waiting.

`--quick` takes few turns: to see that everything still runs, not to believe the numbers.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import _lease_peers as peers
from benchmarks._lease_others import FORMS, idle_share, releases_seen, takeovers
from benchmarks._measure import ROOT, Row, environment, p95, pin_to_one_cpu, python_turn, ratio, report, take_turns
from tenure import WriterLease
from tenure._core import filesystem_type
from tenure._lease import _keys

OURS = "acquire and release"
RAW = "its publish and lifeline"
CROWDED = "among 1,000 claims"
STRICT = "filelock StrictSoftFileLock"


def row(
    what: str,
    times: list[float],
    against: str,
    others: list[float],
    *,
    most: float | None = None,
    unit: str = "us",
) -> Row:
    by = {"us": 1000, "ns": 1}[unit]
    each = ratio(times, others)
    target, met = ("", None) if most is None else (f"≤ {most:g} x", each <= most)
    middle, other = statistics.median(times), statistics.median(others)
    return Row(what, middle / by, p95(times) / by, unit, against, other / by, each, target, met)


def limit(what: str, value: float, worst: float, unit: str, most: float, *, words: str) -> Row:
    """A figure that is held against a number, not against a peer."""
    return Row(what, value, worst, unit, "the target", most, value / most, words, value <= most)


def measure_cycles(base: Path, label: str, rounds: int, notes: list[str]) -> list[Row]:
    contenders = {
        OURS: peers.fresh(base, peers.ours, 20),
        RAW: peers.fresh(base, peers.publish_and_lifeline, 20),
    }
    for name, cycle_in in peers.peers():
        if cycle_in is not None:
            contenders[name] = peers.fresh(base, cycle_in, 20)
        elif (note := f"{name} was left out: it is not installed") not in notes:
            notes.append(note)
    times = take_turns(contenders, rounds)
    ours = times[OURS]
    rows = [row(f"{OURS}, {label}", ours, RAW, times[RAW], most=1.25)]
    # Few rounds: making so many files is slow.
    crowded = take_turns({CROWDED: peers.fresh(base, peers.with_claims(1000), 20), OURS: contenders[OURS]}, 3)
    rows.append(row(f"{OURS}, {CROWDED}, {label}", crowded[CROWDED], OURS, crowded[OURS]))
    rows += [
        row(f"{OURS}, {label}", ours, name, times[name], most=1 if name == STRICT else None)
        for name in contenders
        if name not in (OURS, RAW)
    ]
    return rows


def measure_hold(base: Path, label: str, rounds: int) -> list[Row]:
    store = base / "hold"
    with WriterLease(store, ttl=3600).acquire() as hold:
        fd = os.open(base / "page", os.O_RDWR | os.O_CREAT)
        # A directory that has just changed is read at every check, until its time stamp can be trusted: a hold's first
        # seconds, and not its life.
        time.sleep(3.5)
        names = {"hold": hold, "os": os, "path": str(store / _keys.claim(hold.fence)), "fd": fd, "page": b"x" * 160}
        times = take_turns(
            {
                "check": python_turn("hold.check()", names),
                "renew": python_turn("hold.renew()", names),
                "stat": python_turn("os.stat(path)", names),
                "pwrite": python_turn("os.pwrite(fd, page, 0)", names),
            },
            rounds,
        )
        os.close(fd)
    return [
        row(f"check, {label}", times["check"], "os.stat", times["stat"], most=3, unit="ns"),
        row(f"renew, {label}", times["renew"], "os.pwrite", times["pwrite"], unit="ns"),
    ]


def measure_takeovers(base: Path, label: str, count: int, notes: list[str]) -> list[Row]:
    rows = []
    for form in FORMS:
        for waiting in (True, False):
            directory = base / f"{form[:1]}{waiting:d}"
            directory.mkdir()
            try:
                times = [time / 1000 for time in takeovers(directory, form, waiting=waiting, count=count)]
            except (OSError, RuntimeError) as error:
                notes.append(f"takeover, {form}: not possible here ({type(error).__name__})")
                continue
            what = f"takeover, {form}, {'waiting' if waiting else 'fresh'}, {label}"
            ninetynine = sorted(times)[min(count - 1, round(0.99 * count))]
            middle = statistics.median(times)
            rows.append(limit(f"{what}: p50", middle, p95(times), "us", 5000, words="≤ 5 ms"))
            rows.append(limit(f"{what}: p99", ninetynine, max(times), "us", 20_000, words="≤ 20 ms"))
    return rows


def measure_waiting(base: Path, label: str, count: int, seconds: float) -> list[Row]:
    share = idle_share(base, seconds) * 1e6
    times = [time / 1000 for time in releases_seen(base, count)]
    middle = statistics.median(times)
    return [
        limit(f"a waiter, of a CPU, {label}", share, share, "ppm", 5000, words="< 0.5 %"),
        limit(f"a release is seen, {label}", middle, p95(times), "us", 20_000, words="≤ 20 ms"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few turns; writes no results")
    quick = parser.parse_args().quick
    rounds, count, seconds = (3, 10, 1.0) if quick else (21, 100, 5.0)
    os.environ["TENURE_CACHE"] = ""
    # Each takeover is worth a warning, but not here.
    logging.getLogger("tenure").setLevel(logging.ERROR)
    gc.disable()
    rows: list[Row] = []
    notes = [
        f"medians of {rounds} rounds; a ratio is the median of the ratios within each round",
        "its publish and lifeline: the same system calls in Python, in a directory that is kept open",
        f"takeovers: {count} each, from the moment of the kill; beside p99 stands the maximum; not pinned to one CPU",
    ]
    everywhere = os.sched_getaffinity(0)
    for place in (ROOT, Path("/dev/shm")):
        if not place.is_dir():
            continue
        with tempfile.TemporaryDirectory(dir=place, prefix=".bench-") as directory:
            base = Path(directory)
            fd = os.open(base, os.O_RDONLY)
            label = filesystem_type(fd) or "unknown file system"
            os.close(fd)
            pin_to_one_cpu()
            rows += measure_cycles(base, label, rounds, notes)
            rows += measure_hold(base, label, rounds)
            os.sched_setaffinity(0, everywhere)
            rows += measure_takeovers(base, label, count, notes)
            rows += measure_waiting(base, label, count, seconds)
    facts = environment("tenure", "filelock", "portalocker", "fasteners")
    report("lease", rows, facts, notes, write=not quick)


if __name__ == "__main__":
    main()
