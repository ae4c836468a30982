"""
One of many that race for a lease: `python -m tests.lease.racing STORE OUT UNTIL`.

Whoever wins leaves a dead record behind, by closing the lifeline and never saying "released", and races on. Evidence is
written with O_EXCL, which no two can win: one file for each fence, and one that stands for being inside.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tenure import Hold, WriterBusyError, WriterLease


def race(lease: WriterLease, out: Path, until: int) -> int:
    """Take part until the fence *until* is taken; how often we won."""
    won = 0
    while not (out / str(until)).exists() and not (out / "failed").exists():
        try:
            hold = lease.acquire(timeout=0.1)
        except WriterBusyError:
            continue
        try:
            (out / "inside").touch(exist_ok=False)
            (out / str(hold.fence)).touch(exist_ok=False)
            hold.check()
            (out / "inside").unlink()
        except BaseException:
            # Or the others would wait for us to end.
            (out / "failed").touch()
            raise
        finally:
            die_with(hold)
        won += 1
    return won


def die_with(hold: Hold) -> None:
    """What the kernel does when a holder is killed, without an end of this process."""
    fd = hold.lifeline_fileno()
    assert fd is not None
    hold._tenancy._pulse.stop(release=False)
    hold._tenancy.withdraw()
    os.close(fd)


if __name__ == "__main__":
    print(race(WriterLease(sys.argv[1], ttl=3600.0), Path(sys.argv[2]), int(sys.argv[3])))
