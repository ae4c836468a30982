"""
strace around an agent: which system calls a judgement makes, and what it does when one fails.

Attached to a running agent, so that start-up is not in the picture. Source: strace(1), "Tampering".
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.helpers.processes import Agent
    from tests.helpers.scripts import Script

_CALL = re.compile(r"^(?:\d+ +)?(\w+)\(")


@dataclass
class Trace:
    """The lines of strace; complete after the `with` block."""

    lines: list[str] = field(default_factory=list)

    @property
    def calls(self) -> Counter[str]:
        return Counter(match[1] for line in self.lines if (match := _CALL.match(line)))


@contextlib.contextmanager
def traced(agent: Agent | Script, *options: str) -> Iterator[Trace]:
    """
    Trace *agent* during the `with` block. A "?" before the name of a call: architectures that lack it are fine.
    """
    trace = Trace()
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "log")
        command = ["strace", "-f", "-o", str(log), *options, "-p", str(agent.pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            first = strace.stderr.readline()
            assert "attached" in first, first
            try:
                yield trace
            finally:
                strace.terminate()
                strace.wait(30)
        trace.lines = log.read_text("utf-8", "replace").splitlines()


def failing(agent: Agent, calls: str, error: str) -> contextlib.AbstractContextManager[Trace]:
    """Every call of *calls* (comma-separated) that *agent* makes during the `with` block fails with *error*."""
    return traced(agent, "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}")
