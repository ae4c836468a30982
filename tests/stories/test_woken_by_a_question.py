"""
Somebody pressed Ctrl-Z on a long write, asked for the lock's status, and the write went on.

The probe behind `status` sent SIGCONT to find out whether the holder was dead. A stopped process is resumed by that. So
each look, and each read that looked first, woke a writer that its owner had stopped on purpose.

Here nobody is sent a signal, not even 0: the kernel is asked about the process instead.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tenure import WriterBusyError, WriterLease
from tests.helpers import holders, independent, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC

pytestmark = NEEDS_LINUX_PROC


@pytest.mark.parametrize("lifeline", [True, False], ids=["by lifeline", "by identity"])
def test_a_stopped_writer_stays_stopped_whoever_asks(tmp_path: Path, lifeline: bool) -> None:
    """Fails where a process is probed with a signal that stopped processes react to."""
    datastore = tmp_path / "datastore"
    with holders.stopped(datastore) as writer:
        if not lifeline:
            for file in (datastore / "lease" / "lifeline").iterdir():
                file.unlink()
        lease = WriterLease(datastore)
        assert lease.inspect().state == "held"
        for timeout in (0, 0.3):
            with pytest.raises(WriterBusyError):
                lease.acquire(timeout=timeout)
        subprocess.run(
            [sys.executable, "-m", "tenure", "status", str(datastore)],
            check=True,
            capture_output=True,
            cwd=processes.ROOT,
        )

        assert independent.state(writer.pid) == "T"
