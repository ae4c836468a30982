"""What outbox and marker ask of the disk, by the kernel's own account."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_STRACE
from tests.helpers.scripts import Script
from tests.helpers.tracing import Trace, traced

pytestmark = [NEEDS_LINUX_PROC, NEEDS_STRACE]

SYNCS = ("fsync", "fdatasync")
PREPARES = 'outbox.prepare("one", b"data", author=hold)'
SERVES = """
from tenure import CrashMarker, Outbox, WriterLease
outbox = Outbox(sys.argv[1] + "/outbox.db")
marker = CrashMarker(sys.argv[1] + "/control")
lease = WriterLease("memory:costs")
marker.begin().finish()
with lease.acquire() as before:
    for number in range(int(sys.argv[2])):
        outbox.prepare(f"old-{number}", b"data", author=before)
hold = lease.acquire()
print("ready")
for line in sys.stdin:
    exec(line)
    os.write(1, b"done\\n")
"""


def during(directory: Path, line: str, *, entries: int = 1) -> Trace:
    """The syncs, writes and removals of a process while it does *line*."""
    with Script(SERVES, directory, entries) as script:
        assert script.says() == "ready"
        calls = "trace=fsync,fdatasync,write,pwrite64,ftruncate,linkat,unlinkat"
        with traced(script, "-e", calls) as trace:
            script.tell(line)
            assert script.says() == "done"
    return trace


def syncs(trace: Trace) -> int:
    return sum(trace.calls[name] for name in SYNCS)


def order(trace: Trace) -> list[str]:
    """The names of the calls; `said` for the answer."""
    return [
        "said" if '"done' in line else match[1]
        for line in trace.lines
        if (match := re.match(r"^(?:\d+ +)?(\w+)\(", line))
    ]


def test_what_is_prepared_is_synced_before_anybody_hears_of_it(tmp_path: Path) -> None:
    calls = order(during(tmp_path, PREPARES))
    assert calls[-1] == "said"
    # Once the journal is truncated and synced there is nothing left that could roll it back.
    assert calls[-3:-1] == ["ftruncate", "fdatasync"]


@pytest.mark.parametrize("entries", [1, 300])
def test_a_recovery_makes_two_transactions_however_many_entries_it_lands(tmp_path: Path, entries: int) -> None:
    """As many syncs as SQLite makes for one is SQLite's affair."""
    for name in ("one", "many"):
        (tmp_path / name).mkdir()
    once = during(tmp_path / "one", PREPARES)
    trace = during(tmp_path / "many", 'assert outbox.recover(hold, lambda entry: "landed").landed', entries=entries)
    assert syncs(trace) == 2 * syncs(once) > 0


def test_a_mark_is_synced_with_its_name_before_a_file_is_changed_and_its_end_before_anybody_hears_of_it(
    tmp_path: Path,
) -> None:
    begun = order(during(tmp_path, "marker.begin(hold)"))
    assert begun[-4:] == ["linkat", "fsync", "unlinkat", "said"]
    assert begun.index("fsync") < begun.index("linkat")
    ended = order(during(tmp_path, "mark = marker.begin(); mark.finish()"))
    assert ended[-3:] == ["unlinkat", "fsync", "said"]
