"""
A cron job could not tell "somebody else is writing" from "it is broken", and did the wrong thing for both.

The manual promised exit code 75 for contention: temporary, try again. The error for a busy lease wrapped the one that had
that code, and came out as 1. A retry loop gave up at the first busy lease. The opposite is worse: a writer that has been
replaced must not come out as 75, since repeating blindly what it did half of is how two writers write.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_IDENTITY

pytestmark = NEEDS_IDENTITY

# What a program does that lets its errors decide how it ends.
PROGRAM = """
import sys, tenure
from pathlib import Path
try:
    with tenure.WriterLease(sys.argv[1], ttl=3600).acquire() as hold:
        if len(sys.argv) > 2:
            tenure.open_store(sys.argv[1]).create(f"lease/{2:020d}", Path(sys.argv[2]).read_bytes())
        hold.check()
except tenure.Error as error:
    sys.exit(error.exit_code)
"""


def exit_code(*words: str) -> int:
    return subprocess.run([sys.executable, *words], check=False, capture_output=True, cwd=processes.ROOT).returncode


def test_a_busy_lease_is_75_by_the_library_and_by_the_command(tmp_path: Path) -> None:
    """Fails where an error loses its code on the way out (B105)."""
    datastore = tmp_path / "datastore"
    with holders.holding(datastore):
        assert exit_code("-c", PROGRAM, str(datastore)) == 75
        assert exit_code("-m", "tenure", "run", str(datastore), "--", "true") == 75

    assert exit_code("-c", PROGRAM, str(datastore)) == 0


def test_a_replaced_writer_is_1_and_never_75(tmp_path: Path) -> None:
    """Fails where every trouble with the lease is called temporary (B105)."""
    claim = tmp_path / "claim"
    claim.write_bytes(holders.claim(2))

    assert exit_code("-c", PROGRAM, str(tmp_path / "datastore"), str(claim)) == 1
