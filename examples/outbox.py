"""
A payment that was prepared is paid once, whoever dies: run it, kill it anywhere, run it again.

    python examples/outbox.py DIRECTORY [ORDER AMOUNT]
"""

import sys
from pathlib import Path
from typing import Literal

from tenure import Outbox, OutboxEntry, Standings, WriterLease

directory = Path(sys.argv[1])
directory.mkdir(exist_ok=True)
ledger = directory / "ledger.txt"
lease = WriterLease(directory / "lease", label="payments")


def pay(order: str, amount: str) -> None:
    """Write it into the ledger, unless it is there already: a writer may have died right after it did."""
    if not (ledger.exists() and f"{order} " in ledger.read_text("utf-8")):
        with ledger.open("a", encoding="utf-8") as file:
            file.write(f"{order} {amount}\n")


def land(entry: OutboxEntry) -> Literal["landed"]:
    """What the next writer does with what an earlier one has prepared."""
    pay(entry.commit_id, entry.data.decode())
    return "landed"


with Outbox(directory / "outbox.db") as outbox, lease.acquire(timeout=60) as hold:
    report = outbox.recover(hold, land, standings=Standings(lease, fence=hold.fence))
    print(f"recovered: {report.landed} landed, {report.skipped} of living writers, {report.conflicted} conflicted")
    for order, amount in [sys.argv[2:]] if len(sys.argv) == 4 else []:
        if outbox.prepare(order, amount.encode(), author=hold) == "prepared":
            hold.check()
            pay(order, amount)
            outbox.landed(order)
        print(f"{order} is paid")
