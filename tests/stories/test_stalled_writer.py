"""
A writer that was only slow was called gone, and its file was reverted under its hands.

It ran synchronous code for longer than its ttl, so its renewals stopped. A reader in the same checkout saw a lease that
was 35 s old with a ttl of 30 s, took the writer for gone by age alone, and put the last committed content back over the
file that the writer was changing. The writer then committed the reverted bytes, and every replica followed. In the same
minute another process that asked for the lease was told, rightly, that it is held: two rules for one question.

A process that is provably there keeps its lease, whatever any age says; and all who ask are told the same.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tenure import WriterBusyError, WriterLease
from tenure.testing import ManualClock
from tests.helpers import holders
from tests.helpers.capabilities import NEEDS_LINUX_PROC

pytestmark = NEEDS_LINUX_PROC


def test_a_writer_that_stalls_for_many_ttls_is_alive_to_whoever_asks(tmp_path: Path) -> None:
    """Fails where age comes before life, or where looking and taking judge by two rules."""
    datastore = tmp_path / "datastore"
    clock = ManualClock()
    reader, taker = WriterLease(datastore, clock=clock), WriterLease(datastore, clock=clock)
    with holders.stopped(datastore, ttl=1.0, skew=0.5) as writer:
        for _ in range(100):
            clock.advance(0.2)
            seen = reader.inspect()
            with pytest.raises(WriterBusyError) as busy:
                taker.acquire()
            assert seen.judgement == busy.value.judgement
            assert (seen.state, seen.retry_after_s) == ("held", None)

        os.kill(writer.pid, signal.SIGCONT)
        assert writer.ask("check_hold") == "ok", "it goes on where it stalled, under the same fence"
