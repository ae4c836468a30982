"""
Room 1: who a process is, and what the kernel says about it.

The Rust core does the work; this room gives its names to the rest of the house, and is the one place that asks what this
machine is called.
"""

from __future__ import annotations

import os
import sys

from tenure._core import Judgement, ProcessIdentity, Watch, WatchSet, capabilities, judge, judge_many
from tenure._verdict import Verdict

__all__ = [
    "Judgement",
    "ProcessIdentity",
    "Verdict",
    "Watch",
    "WatchSet",
    "capabilities",
    "host_name",
    "judge",
    "judge_many",
]


def host_name() -> str:
    """
    What this machine calls itself, for people to read. It proves nothing and is compared with nothing.

    Two machines, or two containers, may share one name; see `ProcessIdentity.host` for what is evidence.
    """
    if sys.platform == "win32":
        return os.environ.get("COMPUTERNAME", "")
    return os.uname().nodename
