"""The torture from the command line: `python -m tests.torture --help`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.torture.driver import Driver, Plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None, help="as a failed run printed it")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--ttl", type=float, default=0.3)
    parser.add_argument("--skew", type=float, default=0.1)
    parser.add_argument("--variant", choices=["real", "strangers", "by pid", "by time"], default="real")
    parser.add_argument("--blind", action="store_true", help="check, then write: must be caught")
    parser.add_argument("--bound", type=float, default=1.0, help="seconds that a wait may take")
    parser.add_argument("--no-namespaces", action="store_true")
    parser.add_argument("--directory", type=Path, help="where to make the store; on another file system, say")
    chosen = parser.parse_args()
    plan = Plan(
        seconds=chosen.seconds,
        seed=random.SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed,
        workers=chosen.workers,
        ttl=chosen.ttl,
        skew=chosen.skew,
        variant=chosen.variant,
        blind=chosen.blind,
        namespaces=not chosen.no_namespaces,
        bound_s=chosen.bound,
    )
    print(plan, flush=True)
    directory = Path(tempfile.mkdtemp(prefix="tenure-torture-", dir=chosen.directory))
    report = Driver(plan, directory).run()
    print(report)
    if report.problems:
        print(f"the histories and the store are in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
