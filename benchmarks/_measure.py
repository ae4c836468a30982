"""
What the benchmarks share: short turns, one table, and the facts about where they ran.

A claim is the median of the ratios *within* each round, so that a machine that gets slower or is shared for a while slows
both sides of a ratio alike. The times beside it are for orientation only.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import timeit
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TURN_NS = 10_000_000
"""How long a contender is timed in each turn: short against whatever else the machine does."""

Turn = Callable[[], float]
"""One turn of a contender; returns nanoseconds per operation."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: something, what it is held against, and what was promised."""

    what: str
    median: float
    p95: float
    unit: str
    against: str
    against_median: float
    ratio: float
    target: str
    met: bool | None


def python_turn(statement: str, names: Mapping[str, object]) -> Turn:
    """Time a statement. The loop around it belongs to the statement's time: 10 to 20 ns. `timeit` keeps the GC off."""
    timer = timeit.Timer(statement, globals=dict(names))
    loops = max(1, round(TURN_NS / (timer.timeit(20) / 20 * 1e9)))
    return lambda: timer.timeit(loops) / loops * 1e9


def take_turns(contenders: Mapping[str, Turn], rounds: int) -> dict[str, list[float]]:
    """
    Let each have its turn, round after round.

    A turn is played twice and counts the second time. The kernel frees what was closed some milliseconds later, in the
    time of whoever runs then, which must be the one who closed it.
    """
    order = list(contenders)
    times: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(rounds):
        for name in order:
            contenders[name]()
            times[name].append(contenders[name]())
        # Whoever comes after an expensive neighbour starts with cold caches: nobody shall always be that one.
        order.reverse()
    return times


def p95(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, round(0.95 * len(times)))]


def ratio(times: list[float], against: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(times, against, strict=True))


def pin_to_one_cpu() -> None:
    """Stay on one CPU, with every process started from here: another may have another speed and other caches."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def environment(*packages: str) -> dict[str, str]:
    """Where this ran. No host name and no path: results are published."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    versions = []
    for package in packages:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} absent")
    compiler = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False).stdout.split()
    return {
        "machine": f"{platform.machine()}, {model}, {os.cpu_count()} CPUs, pinned to one",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "rust": compiler[1] if len(compiler) > 1 else "unknown",
        "packages": ", ".join(versions),
    }


def table(rows: list[Row]) -> str:
    """Markdown that can also be read as it is."""
    cells = [("what", "median", "p95", "against", "its median", "ratio", "target", "")]
    words = {True: "met", False: "NOT MET", None: ""}
    cells += [
        (
            row.what,
            f"{row.median:,.0f} {row.unit}",
            f"{row.p95:,.0f}",
            row.against,
            f"{row.against_median:,.0f}",
            f"{row.ratio:,.2f}",
            row.target,
            words[row.met],
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    # Numbers to the right.
    right = {1, 2, 4, 5}
    lines = [
        "| "
        + " | ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in cells
    ]
    rule = "|" + "|".join("-" * (w + 1) + (":" if c in right else "-") for c, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def report(name: str, rows: list[Row], facts: dict[str, str], notes: list[str], *, write: bool) -> None:
    """Print it all; with *write* also leave it in benchmarks/results/."""
    text = "\n".join(
        [
            *(f"- {key}: {value}" for key, value in facts.items()),
            "",
            table(rows),
            "",
            *(f"- {note}" for note in notes),
        ]
    )
    print(text)
    if write:
        results = ROOT / "benchmarks" / "results"
        results.mkdir(exist_ok=True)
        (results / f"{name}.md").write_text(f"# {name}\n\nMade by `benchmarks/bench_{name}.py`.\n\n{text}\n")
        content = {"environment": facts, "rows": [dataclasses.asdict(row) for row in rows], "notes": notes}
        (results / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    else:
        print("\nnothing was written: this was a quick run", file=sys.stderr)
