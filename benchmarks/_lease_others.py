"""The other processes of the lease's benchmark: a nest that hatches holders to be killed, and a waiter."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks._measure import ROOT
from tenure import WriterLease
from tenure._core import boottime_ns

FORMS = ("reaped", "unreaped", "other namespace")

_UNSHARED = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

# Forked, not started anew: a holder is there in a millisecond. The nest itself never has a lease or a thread.
_NEST = """
import os, signal, sys
from tenure import WriterLease
for line in sys.stdin:
    store, reap = line.rstrip().split("|")
    child = os.fork()
    if child == 0:
        hold = WriterLease(store).acquire(30)
        print("held", flush=True)
        signal.pause()
    if reap == "yes":
        os.waitpid(child, 0)
    else:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        sys.stdin.readline()
        os.waitpid(child, 0)
"""

# One line in: wait for the lease of that store; one line out: when it came, and the CPU time that the waiting took.
_WAITER = """
import sys, time
from tenure import WriterLease
from tenure._core import boottime_ns
for line in sys.stdin:
    lease = WriterLease(line.rstrip())
    print("waiting", flush=True)
    before = time.process_time()
    hold = lease.acquire(60)
    came, after = boottime_ns(), time.process_time()
    hold.release()
    print(came, after - before, flush=True)
"""


class _Other:
    def __init__(self, script: str, prefix: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
        )

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the other process has ended")
        return line.rstrip()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def other(script: str, prefix: tuple[str, ...] = ()) -> Iterator[_Other]:
    made = _Other(script, prefix)
    try:
        yield made
    finally:
        made.close()


def takeovers(base: Path, form: str, *, waiting: bool, count: int) -> list[float]:
    """
    Nanoseconds from the moment of the kill to the return of an acquire: one that waited, or one that came then.

    Raises:
        OSError, RuntimeError: such a holder cannot be made here.
    """
    with other(_NEST, _UNSHARED if form == "other namespace" else ()) as nest:
        return [_takeover(base / f"{at // 50}", nest, form, waiting) for at in range(count)]


def _takeover(store: Path, nest: _Other, form: str, waiting: bool) -> float:
    reap = "no" if form == "unreaped" else "yes"
    nest.tell(f"{store}|{reap}")
    assert nest.hear() == "held"
    pid = nest.process.pid
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    returned: list[int] = []

    def acquire() -> None:
        hold = WriterLease(store).acquire(30)
        returned.append(boottime_ns())
        hold.release()

    if waiting:
        waiter = threading.Thread(target=acquire)
        waiter.start()
        time.sleep(0.02)
        began = boottime_ns()
        os.kill(pid, signal.SIGKILL)
        waiter.join()
    else:
        began = boottime_ns()
        os.kill(pid, signal.SIGKILL)
        acquire()
    if reap == "no":
        nest.tell("reap")
    return float(returned[0] - began)


def idle_share(base: Path, seconds: float) -> float:
    """The share of one CPU that a waiter takes while the holder beats."""
    store = base / "idle"
    hold = WriterLease(store, ttl=3.0).acquire()
    with other(_WAITER) as waiter:
        waiter.tell(str(store))
        assert waiter.hear() == "waiting"
        began = boottime_ns()
        time.sleep(seconds)
        hold.release()
        came, spent = waiter.hear().split()
        return float(spent) / ((int(came) - began) / 1e9)


def releases_seen(base: Path, count: int) -> list[float]:
    """Nanoseconds from the begin of a release to the return of the acquire that waited for it, in another process."""
    store = base / "released"
    times = []
    with other(_WAITER) as waiter:
        for _ in range(count):
            hold = WriterLease(store).acquire(30)
            waiter.tell(str(store))
            assert waiter.hear() == "waiting"
            time.sleep(0.02)
            began = boottime_ns()
            hold.release()
            times.append(float(int(waiter.hear().split()[0]) - began))
    return times
