"""
What a judgement costs, beside the bare system calls, psutil, filelock's owner check and plain Python.

`--quick` takes few turns among few processes: to see that everything still runs, not to believe the numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import re
import resource
import select
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil

from benchmarks._measure import ROOT, TURN_NS, Row, Turn, environment, p95, pin_to_one_cpu, python_turn, ratio, report
from benchmarks._measure import take_turns as turns
from tenure._core import ProcessIdentity, Watch, WatchSet, capabilities, judge, judge_many

OLD_KERNEL = ("handle", "pidfs")
ONLY_PROC = ("handle", "pidfs", "pidfd")

NAMES: dict[str, object] = {
    "ONLY_PROC": ONLY_PROC,
    "OLD_KERNEL": OLD_KERNEL,
    "ProcessIdentity": ProcessIdentity,
    "judge": judge,
    "judge_many": judge_many,
    "psutil": psutil,
}
"""What the timed statements know."""


class Floor:
    """The bare system calls, made by a library in this very process: see rust/identity/examples/floor.rs."""

    def __init__(self, library: Path) -> None:
        # PyDLL keeps the GIL: nothing of it is in the times.
        self._run = ctypes.PyDLL(str(library)).floor
        self._run.restype = ctypes.c_double
        self._run.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32), ctypes.c_size_t]

    def turn(self, operation: str, *pids: int) -> Turn:
        """Nanoseconds per operation; per process for `verdicts`."""
        asked = (ctypes.c_uint32 * max(1, len(pids)))(*pids)

        def run(loops: int) -> float:
            return float(self._run(operation.encode(), loops, asked, len(asked)))

        each = len(pids) if operation == "verdicts" else 1
        loops = max(1, round(TURN_NS / (run(20) * each)))
        return lambda: run(loops)


def filelock_check(pid: int) -> dict[str, object]:
    """What filelock makes of a marker's owner, and what the marker would say; empty where there is none."""
    try:
        # Private, and the only door to what a waiter pays for each look at a marker.
        from filelock._identity._host import host_name
        from filelock._identity._process import owner_is_stale, process_start_token
    except ImportError:
        return {}
    host, token = host_name(), process_start_token(pid)
    assert not owner_is_stale(pid, host, token)
    return {"owner_is_stale": owner_is_stale, "host": host, "token": token}


def build() -> dict[str, Path]:
    """The Rust side: `floor`, the system calls, and `crowd`, which makes processes."""
    command = [
        "cargo",
        "build",
        "--release",
        "--package",
        "tenure-identity",
        "--example",
        "floor",
        "--example",
        "crowd",
    ]
    built = subprocess.run(
        [*command, "--quiet", "--message-format", "json"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    made = [json.loads(line) for line in built.stdout.splitlines()]
    return {
        one["target"]["name"]: Path(one["filenames"][0])
        for one in made
        if "example" in one.get("target", {"kind": ()})["kind"]
    }


@contextlib.contextmanager
def crowd(program: Path, count: int, threads: int) -> Iterator[tuple[list[int], int]]:
    """Idle processes, and the number of a dead one. They end with the block, and with us."""
    maker = subprocess.Popen(
        [program, str(count), str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert maker.stdout is not None
    try:
        made = json.loads(maker.stdout.readline())
        yield made["pids"], made["dead"]
    finally:
        maker.communicate()


def read_proc_stat(pid: int) -> tuple[bytes, int]:
    """State and start time in plain Python."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        line = file.read()
    # Counted from the last ")": the name may hold spaces and ")". proc_pid_stat(5), field 2.
    fields = line[line.rindex(b")") + 2 :].split()
    return fields[0], int(fields[19])


def ask_pidfd(pid: int) -> tuple[int, bool]:
    """Unique id and end in plain Python: the same four calls."""
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return os.fstat(pidfd).st_ino, bool(poll.poll(0))
    finally:
        os.close(pidfd)


class Table:
    """Rows, from the times of one set of turns after the other."""

    def __init__(self, rounds: int) -> None:
        self.rows: list[Row] = []
        self._rounds = rounds
        self._times: dict[str, list[float]] = {}

    def measure(self, contenders: dict[str, Turn], rounds: int | None = None) -> None:
        """Run them; the rows that follow are about these."""
        self._times = turns(contenders, rounds or self._rounds)

    def add_up(self, name: str, parts: dict[str, int]) -> None:
        """Make a contender out of others: so many times each."""
        rounds = zip(*(self._times[part] for part in parts), strict=True)
        self._times[name] = [sum(n * time for n, time in zip(parts.values(), times, strict=True)) for times in rounds]

    def at_most(self, what: str, against: str, target: float | None = None, *, label: str = "") -> None:
        """*what* may take *target* times as long as *against*."""
        found = ratio(self._times[what], self._times[against])
        goal = "" if target is None else f"≤ {target} x"
        self._add(what, against, found, goal, None if target is None else found <= target, label=label)

    def faster(self, what: str, than: str, target: float | None = None, *, label: str = "") -> None:
        """*what* must be *target* times as fast as *than*."""
        found = ratio(self._times[than], self._times[what])
        goal = "" if target is None else f"≥ {target} times faster"
        self._add(what, than, found, goal, None if target is None else found >= target, label=label)

    def _add(self, what: str, against: str, found: float, goal: str, met: bool | None, *, label: str) -> None:
        times = self._times[what]
        median, other = statistics.median(times), statistics.median(self._times[against])
        self.rows.append(Row(f"{what}{label}", median, p95(times), "ns", against, other, found, goal, met))


def measure_one(rows: Table, floor: Floor, pid: int, threads: int) -> None:
    """One living process, which nobody holds a pidfd to at first: the case of a waiter that looks at a lock."""
    record = ProcessIdentity.of(pid)
    assert judge(record).reason == "same_unique_id"
    names = NAMES | {
        "ask_pidfd": ask_pidfd,
        "read_proc_stat": read_proc_stat,
        "pid": pid,
        "record": record,
        "text": record.to_json(),
    }
    contenders = {
        "four system calls": floor.turn("verdict", pid),
        "judge, cold": python_turn("judge(record)", names),
        "judge of its JSON, cold": python_turn("judge(text)", names),
        "plain Python, pidfd": python_turn("ask_pidfd(pid)", names),
        "plain Python, /proc": python_turn("read_proc_stat(pid)", names),
        "psutil create_time": python_turn("psutil.Process(pid).create_time()", names),
        "psutil.pid_exists": python_turn("psutil.pid_exists(pid)", names),
        "open, read, close PID/stat": floor.turn("stat", pid),
        "judge without pidfs": python_turn("judge(record, without=OLD_KERNEL)", names),
        "judge, /proc alone": python_turn("judge(record, without=ONLY_PROC)", names),
    }
    filelock = filelock_check(pid)
    if filelock:
        contenders["filelock's owner check"] = python_turn("owner_is_stale(pid, host, token)", names | filelock)
    rows.measure(contenders)
    label = "" if threads == 1 else f", {threads} threads"
    many = threads > 1
    rows.at_most("judge, cold", "four system calls", 1.15, label=label)
    rows.at_most("judge of its JSON, cold", "four system calls", label=label)
    rows.faster("judge, cold", "psutil create_time", 8 if many else 6, label=label)
    rows.faster("judge, cold", "plain Python, /proc", 4 if many else 2.5, label=label)
    rows.faster("judge, cold", "plain Python, pidfd", 1.2, label=label)
    rows.faster("judge, cold", "psutil.pid_exists", 3, label=label)
    if filelock:
        rows.faster("judge, cold", "filelock's owner check", label=label)
    rows.at_most("judge without pidfs", "open, read, close PID/stat", label=label)
    rows.at_most("judge, /proc alone", "open, read, close PID/stat", label=label)

    pidfd = os.pidfd_open(pid)
    rows.measure(
        {
            "four system calls": floor.turn("verdict", pid),
            "judge, warm": python_turn("judge(record)", names),
            "plain Python, pidfd": python_turn("ask_pidfd(pid)", names),
        }
    )
    os.close(pidfd)
    rows.at_most("judge, warm", "four system calls", 1.25, label=label)
    rows.faster("judge, warm", "plain Python, pidfd", 1.2, label=label)

    watch = Watch(record)
    poll = select.poll()
    poll.register(watch.fileno(), select.POLLIN)
    names |= {"watch": watch, "poll": poll}
    rows.measure(
        {
            "one poll": floor.turn("poll", pid),
            "Watch.alive": python_turn("watch.alive()", names),
            "a kept select.poll": python_turn("poll.poll(0)", names),
            "psutil create_time": python_turn("psutil.Process(pid).create_time()", names),
        }
    )
    watch.close()
    rows.at_most("Watch.alive", "one poll", 1.5, label=label)
    rows.faster("Watch.alive", "a kept select.poll", label=label)
    rows.faster("Watch.alive", "psutil create_time", 80, label=label)


def measure_dead(rows: Table, floor: Floor, living: int, dead: int) -> None:
    content = json.loads(ProcessIdentity.of(living).to_json())
    record = ProcessIdentity.from_json(json.dumps(content | {"pid": dead}))
    assert judge(record).reason == "no_such_pid"
    names = NAMES | {"dead": dead, "record": record}
    rows.measure(
        {
            "getppid": floor.turn("trivial"),
            "pidfd_open in vain": floor.turn("open_in_vain", dead),
            "a call that asks nobody": python_turn("judge(None)", names),
            "os.getppid": python_turn("getppid()", {"getppid": os.getppid}),
            "judge, dead": python_turn("judge(record)", names),
            "psutil.pid_exists, dead": python_turn("psutil.pid_exists(dead)", names),
        }
    )
    assert judge(record).reason == "no_such_pid", "the number was given out again meanwhile"
    rows.add_up("2 getppid and such a call", {"getppid": 2, "a call that asks nobody": 1})
    rows.at_most("judge, dead", "2 getppid and such a call", 1)
    rows.at_most("judge, dead", "os.getppid", 2)
    rows.at_most("judge, dead", "pidfd_open in vain")
    rows.faster("judge, dead", "psutil.pid_exists, dead", 4)


def measure_many(rows: Table, floor: Floor, pids: list[int], rounds: int) -> None:
    records = [ProcessIdentity.of(pid) for pid in pids]
    assert {judgement.reason for judgement in judge_many(records)} == {"same_unique_id"}
    names = NAMES | {"records": records, "pids": pids}

    def each(turn: Turn) -> Turn:
        return lambda: turn() / len(pids)

    rows.measure(
        {
            "system calls in chunks": floor.turn("verdicts", *pids),
            "judge_many": each(python_turn("judge_many(records)", names)),
            "judge, one by one": each(python_turn("[judge(record) for record in records]", names)),
            "psutil create_time": each(python_turn("[psutil.Process(pid).create_time() for pid in pids]", names)),
        },
        rounds,
    )
    label = f", each of {len(pids):,}"
    rows.at_most("judge_many", "system calls in chunks", 1.05, label=label)
    rows.faster("judge_many", "judge, one by one", label=label)
    rows.faster("judge_many", "psutil create_time", 8, label=label)

    with WatchSet(records, limit=len(records)) as watched:
        assert watched.ended() == []
        names |= {"watched": watched}
        rows.measure(
            {"one epoll_wait": floor.turn("epoll", *pids), "WatchSet idle": python_turn("watched.ended()", names)}
        )
    rows.at_most("WatchSet idle", "one epoll_wait", label=f", all of {len(pids):,}")


def measure_current(rows: Table, floor: Floor) -> None:
    rows.measure(
        {
            "getppid": floor.turn("trivial"),
            "ProcessIdentity.current": python_turn("ProcessIdentity.current()", NAMES),
        }
    )
    rows.at_most("ProcessIdentity.current", "getppid")


OUTBOX = """
import sys
from tenure._core import judge_many
pids, count = sys.argv[2].split(","), int(sys.argv[1])
from tenure._core import ProcessIdentity
writers = [ProcessIdentity.of(int(pid)).to_json() for pid in pids]
print(len(judge_many(writers[at % len(writers)] for at in range(count))))
"""


def count_probes(pids: list[int], entries: int) -> tuple[int | None, str]:
    """How often the kernel is asked for a process while an outbox of that many entries is judged."""
    strace = shutil.which("strace")
    if strace is None:
        return None, "probes were not counted: there is no strace"
    listed = ",".join(map(str, pids))

    def probes(count: int) -> int:
        calls = "trace=pidfd_open,open_by_handle_at,getpgid"
        command = [strace, "-f", "-qq", "-e", calls, sys.executable, "-c", OUTBOX, str(count), listed]
        traced = subprocess.run(command, capture_output=True, text=True, check=True)
        assert traced.stdout.split() == [str(count)]
        return len(
            re.findall(r"^(?:\[pid +\d+\] )?(?:pidfd_open|open_by_handle_at|getpgid)\(", traced.stderr, re.MULTILINE)
        )

    try:
        # Less those that learn about ourselves and describe the writers.
        return probes(entries) - probes(0), ""
    except subprocess.CalledProcessError:
        return None, "probes were not counted: strace may not trace here"


def measure_outbox(rows: Table, pids: list[int], entries: int, notes: list[str]) -> None:
    count, why = count_probes(pids, entries)
    what = f"probes for {entries:,} entries by {len(pids)} writers"
    if count is None:
        notes.append(why)
    else:
        goal = f"≤ {len(pids)} probes"
        rows.rows.append(Row(what, count, count, "", "writers", len(pids), count / len(pids), goal, count <= len(pids)))
    writers = [ProcessIdentity.of(pid) for pid in pids]
    records = [writers[at % len(writers)] for at in range(entries)]
    names = NAMES | {"records": records, "writers": writers}
    rows.measure(
        {
            "judge_many of entries": python_turn("judge_many(records)", names),
            "judge_many of writers": python_turn("judge_many(writers)", names),
        },
        5,
    )
    rows.at_most("judge_many of entries", "judge_many of writers", label=f", {entries:,} by {len(pids)}")


def measure_imports(rows: Table, rounds: int) -> None:
    """Whole interpreters, from start to end. What is held against a target is the difference to one that does nothing."""

    def turn(statement: str) -> Turn:
        command = [sys.executable, "-c", statement]

        def run() -> float:
            started = time.perf_counter_ns()
            subprocess.run(command, check=True)
            return float(time.perf_counter_ns() - started)

        run()
        return run

    times = turns({name: turn(name) for name in ("pass", "import tenure", "import psutil")}, rounds)
    bare = times["pass"]
    ours, theirs = (
        [whole - start for whole, start in zip(times[name], bare, strict=True)]
        for name in ("import tenure", "import psutil")
    )
    median, other = statistics.median(ours) / 1000, statistics.median(theirs) / 1000
    met = median <= other / 3 or median <= 10_000
    goal = "≤ 1/3 x or ≤ 10 ms"
    row = Row("import tenure", median, p95(ours) / 1000, "us", "import psutil", other, median / other, goal, met)
    rows.rows.append(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few turns, few processes; writes no results")
    quick = parser.parse_args().quick
    if not capabilities():
        sys.exit("the core knows nothing about this system, so there is nothing to measure")
    rounds, processes, entries = (3, 100, 1000) if quick else (41, 2000, 100_000)

    programs = build()
    floor, program = Floor(programs["floor"]), programs["crowd"]
    pin_to_one_cpu()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = processes + 256
    if soft < needed:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(hard, needed), hard)
        )
    gc.disable()

    rows, notes = Table(rounds), [f"medians of {rounds} rounds; a ratio is the median of the ratios within each round"]
    if "pidfs" not in capabilities():
        notes.append("this kernel has no pidfs: the judgement goes by start time, and the targets do not apply")
    if not filelock_check(os.getpid()):
        notes.append("filelock is not installed, or has moved its owner check")
    with crowd(program, processes, 1) as (pids, dead):
        for threads in (1, 500):
            with crowd(program, 1, threads) as ([pid], _):
                measure_one(rows, floor, pid, threads)
        measure_dead(rows, floor, pids[0], dead)
        measure_many(rows, floor, pids, max(3, rounds // 3))
        measure_current(rows, floor)
        measure_outbox(rows, pids[:50], entries, notes)
    measure_imports(rows, rounds)
    facts = environment("tenure", "psutil", "filelock")
    report("judge", rows.rows, facts, notes, write=not quick)


if __name__ == "__main__":
    main()
