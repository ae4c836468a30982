"""
A live writer was robbed in 5 ms, because its container and the taker's had the same host name.

Two containers ran with the host's name (`--network host`, or `--hostname`), each with processes of its own, over one
bind-mounted datastore. The taker read "host X, pid 1" in the lease, was itself on host X, looked for that process, found
none (or its own pid 1), and concluded that the writer was gone. It took the lease of a writer that was renewing.

A host name says nothing about whose pids can be seen. What speaks across pid namespaces is the lifeline; without it the
holder is unknowable, and only ttl + skew of watched silence ends its hold.
"""

from __future__ import annotations

from pathlib import Path

from tenure import WriterLease
from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.processes import Agent
from tests.lease.stores import LONG

pytestmark = [NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE]


def test_a_writer_in_another_container_with_our_host_name_keeps_its_lease(tmp_path: Path) -> None:
    """Fails where "same host name, pid not found here" counts as gone."""
    datastore = tmp_path / "datastore"
    with holders.in_own_pid_namespace(datastore) as writer, Agent(OWN_PROC) as taker:
        assert writer.ask("where")[0] == taker.ask("where")[0] == 1

        tries = taker.ask("try_often", store=str(datastore), times=20)

        assert [kind for kind, _, _ in tries] == ["writer_busy"] * 20
        assert writer.ask("check_hold") == "ok"


def test_neither_is_it_robbed_when_only_its_record_is_left_to_judge_by(tmp_path: Path) -> None:
    """Fails where a pid that is absent in *our* namespace counts as gone. A cleaner has removed the lifeline's file."""
    datastore = tmp_path / "datastore"
    with holders.in_own_pid_namespace(datastore) as writer, Agent(OWN_PROC) as taker:
        for lifeline in (datastore / "lease" / "lifeline").iterdir():
            lifeline.unlink()

        tries = taker.ask("try_often", store=str(datastore), times=20)

        assert [kind for kind, _, _ in tries] == ["writer_busy"] * 20
        assert "gone" not in {verdict for _, verdict, _ in tries}
        assert writer.ask("check_hold") == "ok"


def test_the_same_writer_killed_is_replaced_at_once(tmp_path: Path) -> None:
    """Fails where caution about other namespaces costs everybody ttl + skew."""
    datastore = tmp_path / "datastore"
    with holders.in_own_pid_namespace(datastore, ttl=600.0) as writer:
        writer.kill()
        writer.process.wait(processes.PATIENCE)

        assert WriterLease(datastore, ttl=LONG).acquire().fence == 2
