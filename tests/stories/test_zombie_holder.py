"""
A killed writer kept its lease for 38 s, because nobody had reaped it.

Its parent was PID 1 of a container, a program that does not reap. The kernel keeps the entry of such a process, state Z,
and answers a signal 0 to it with success. Two probes took that for life, so the next writer waited for ttl + skew where
half a second would have done.

A zombie whose threads have all ended writes nothing any more; and the kernel dropped its lifeline when it died.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure import WriterBusyError, WriterLease
from tests.helpers import holders, independent
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.lease.stores import LONG

pytestmark = NEEDS_LINUX_PROC


@pytest.mark.parametrize("lifeline", [True, False], ids=["by lifeline", "by identity"])
def test_an_unreaped_writer_is_replaced_at_once(tmp_path: Path, lifeline: bool) -> None:
    """Fails where whatever has an entry in the process table is alive."""
    datastore = tmp_path / "datastore"
    with holders.zombie(datastore, ttl=600.0) as writer:
        if not lifeline:
            for file in (datastore / "lease" / "lifeline").iterdir():
                file.unlink()

        assert WriterLease(datastore, ttl=LONG).acquire().fence == 2
        assert independent.state(writer.pid) == "Z", "and it still has not been reaped"


@pytest.mark.parametrize("lifeline", [True, False], ids=["by lifeline", "by identity"])
def test_a_writer_that_only_looks_like_a_zombie_keeps_its_lease(tmp_path: Path, lifeline: bool) -> None:
    """Fails where state Z alone counts as death: here the main thread has ended, and another one writes on."""
    datastore = tmp_path / "datastore"
    with holders.leader_exited(datastore) as writer:
        if not lifeline:
            for file in (datastore / "lease" / "lifeline").iterdir():
                file.unlink()

        with pytest.raises(WriterBusyError):
            WriterLease(datastore).acquire()
        assert independent.state(writer.pid) == "Z"
