"""
Files that are changed in place, and who was at it when it died: run it, kill it, run it again.

    python examples/crash_marker.py DIRECTORY
"""

import shutil
import sys
from pathlib import Path

from tenure import CrashMarker, Standings, WriterLease

directory = Path(sys.argv[1])
directory.mkdir(exist_ok=True)
index, saved = directory / "index.txt", directory / "index.saved"
lease = WriterLease(directory / "lease", label="indexing")
marker = CrashMarker(directory / "control")

with lease.acquire(timeout=60) as hold, marker.begin(hold, label="indexing", paths=[index]):
    for run in marker.runs(Standings(lease, fence=hold.fence)):
        if run.state != "interrupted":
            continue
        print(f"{run.label} of {run.since} was interrupted ({run.judgement.reason}); putting back the saved index")
        if saved.exists():
            shutil.copy(saved, index)
        marker.clear(run, hold)

    if index.exists():
        shutil.copy(index, saved)
    with index.open("a", encoding="utf-8") as file:
        file.write("begun, ")
        file.flush()
        print("half of it is written; press Enter to write the rest", flush=True)
        sys.stdin.readline()
        file.write("and ended\n")
print("done")
