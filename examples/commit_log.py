"""
A counter that is never wrong, whoever counts and whoever is killed: run it, run it twice at once, kill it, run it again.

    python examples/commit_log.py DIRECTORY [NAME AMOUNT [ID]]
"""

import sys
from collections import Counter
from typing import Any

from tenure import CommitLog, CommitUnknownError, WriterLease

log = CommitLog(sys.argv[1])


def counted() -> Counter[str]:
    """What the log says."""
    counts: Counter[str] = Counter()
    for entry in log.read():
        body: Any = entry.body
        if entry.kind == "snapshot":
            counts = Counter(body)  # it replaces all before it
        elif entry.kind == "commit":
            counts[body["name"]] += body["amount"]
    return counts


if len(sys.argv) > 3:
    commit_id = sys.argv[4] if len(sys.argv) > 4 else None
    with WriterLease(log.store, label="counting").acquire(timeout=60) as hold:
        writer = log.open(hold)  # no earlier writer lands anything from here on
        try:
            done = writer.commit({"name": sys.argv[2], "amount": int(sys.argv[3])}, id=commit_id)
        except CommitUnknownError as error:
            sys.exit(f"{error}\n{log.resolve(error.attempt)}; with the same ID it can be run again, and counts once")
        if writer.head - log.newest_snapshot() >= 100:
            writer.collect(writer.snapshot(counted()).slot, undecided=None)
        print(f"in slot {done.slot}")
print(dict(counted()))
