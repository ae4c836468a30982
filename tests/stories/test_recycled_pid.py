"""
A dead writer looked alive, because its number had been given to somebody else.

After a container restart the numbers are low and the same ones come again. A record that holds no more than host and pid
then names whoever has that number now. The dead writer's lock was kept "until it ends", which the stranger never did;
its prepared work was skipped as somebody's own, and later dropped as overtaken.

A pid together with the start time, or with the kernel's number for the process that is never used twice, names one
process for good.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers import holders, independent
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE, NEEDS_SET_TID
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.processes import Agent

pytestmark = [NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE, NEEDS_SET_TID]


def test_a_writer_whose_number_is_now_a_strangers_is_gone(tmp_path: Path) -> None:
    """Fails where a record is judged by its pid alone, and where a stranger under that pid is signalled."""
    with Agent(OWN_PROC) as container:
        reused = container.ask("reuse", pid=300, same_tick=False)
        holders.plant(tmp_path, holders.claim(holder=json.loads(reused["record"]), ttl=600.0))

        granted = container.ask("take", store=str(tmp_path))

        assert granted["fence"] == 2
        assert container.judge(reused["record_of_the_second"])[0] == "alive", "the stranger sleeps on"


def test_the_stranger_itself_would_have_kept_the_lease(tmp_path: Path) -> None:
    """Fails where whoever has a recycled number counts as gone: the other half of telling two processes apart."""
    with Agent(OWN_PROC) as container:
        reused = container.ask("reuse", pid=300, same_tick=False)
        holders.plant(tmp_path, holders.claim(holder=json.loads(reused["record_of_the_second"])))

        refused = container.ask("take", store=str(tmp_path))

        assert (refused["kind"], refused["verdict"]) == ("writer_busy", "alive")
        assert independent.state(container.pid) in "SR"
