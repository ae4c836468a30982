"""
Buckets: what tenure adds to the client that it speaks through, against a server in another process on this machine.

The server costs more than either side here, as a real one would; what is judged is the ratio.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import obstore

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._measure import ROOT, Row, Turn, environment, p95, ratio, report, take_turns
from tenure._store._object import ObjectStore
from tests.helpers.object_server import ENVIRONMENT

_SERVER = """
import sys
from tests.helpers.object_server import ObjectServer
server = ObjectServer("s3")
print(server.url("bench"), flush=True)
sys.stdin.read()
"""
_BLOB_BYTES = 64 << 20


@contextmanager
def server() -> Iterator[str]:
    """A server's URL."""
    child = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert child.stdout is not None
    try:
        yield child.stdout.readline().strip()
    finally:
        child.communicate("")


def timed(work: Callable[[], object], times: int) -> Turn:
    def turn() -> float:
        began = time.perf_counter_ns()
        for _ in range(times):
            work()
        return (time.perf_counter_ns() - began) / times

    return turn


def measure(url: str, rounds: int) -> list[Row]:
    """Blobs in and out, and a record."""
    store = ObjectStore.at(url)
    client = store.where.client(300.0)
    content = os.urandom(_BLOB_BYTES)
    store.create("warm", b"x")
    obstore.put(client, "blob", content)

    def ours_in() -> None:
        store.put_stream(f"blob/{uuid.uuid4().hex}", io.BytesIO(content))

    def theirs_in() -> None:
        obstore.put(client, f"blob/{uuid.uuid4().hex}", io.BytesIO(content))

    def ours_out() -> None:
        found = store.get_stream("blob")
        assert found is not None
        with found:
            while found.read(1 << 20):
                pass

    def theirs_out() -> None:
        for _ in obstore.get(client, "blob").stream(min_chunk_size=1 << 20):
            pass

    def ours() -> None:
        store.create(f"log/{uuid.uuid4().hex}", content[:600])

    def theirs() -> None:
        obstore.put(client, f"log/{uuid.uuid4().hex}", content[:600], mode="create")

    pairs = {
        "a blob of 64 MiB in": (ours_in, theirs_in, 1, "ms", 1.1),
        "a blob of 64 MiB out": (ours_out, theirs_out, 1, "ms", 1.1),
        "a record, conditional": (ours, theirs, 50, "us", None),
    }
    rows = []
    for what, (mine, yours, count, unit, limit) in pairs.items():
        times = take_turns({"ours": timed(mine, count), "theirs": timed(yours, count)}, rounds)
        unit_ns = 1e6 if unit == "ms" else 1e3
        scaled = {name: [time_ns / unit_ns for time_ns in values] for name, values in times.items()}
        share = ratio(times["ours"], times["theirs"])
        rows.append(
            Row(
                what,
                statistics.median(scaled["ours"]),
                p95(scaled["ours"]),
                unit,
                "obstore alone",
                statistics.median(scaled["theirs"]),
                share,
                "" if limit is None else f"≤ {limit}",
                None if limit is None else share <= limit,
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few turns; writes no results")
    quick = parser.parse_args().quick
    os.environ.update(ENVIRONMENT)
    with server() as url:
        rows = measure(url, 3 if quick else 15)
    notes = ["a server of Python on the same machine; medians, and the median of the ratios within each round"]
    report("objects", rows, environment("tenure", "obstore"), notes, write=not quick)


if __name__ == "__main__":
    main()
