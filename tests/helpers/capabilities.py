"""
What a machine may lack, each found out by trying it once.

A test that needs one carries its mark (`@NEEDS_PID_NAMESPACE`). A skip names the capability and never a platform, and
the run ends by counting skips per capability (conftest.py), so a machine that can show little says so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest


def _runs(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _mark(name: str, probe: Callable[[], bool]) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not probe(), reason=f"needs {name}")


NEEDS_LINUX_PROC = _mark("linux-proc", lambda: sys.platform == "linux" and _runs("test", "-r", "/proc/self/stat"))
NEEDS_PID_NAMESPACE = _mark("pid-namespace", lambda: _runs("unshare", "--pid", "--fork", "--mount-proc", "true"))
NEEDS_TIME_NAMESPACE = _mark("time-namespace", lambda: _runs("unshare", "--time", "--boottime", "1", "--fork", "true"))
NEEDS_MOUNT = _mark("mount", lambda: _runs("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"))
NEEDS_STRACE = _mark("strace", lambda: shutil.which("strace") is not None and _runs("strace", "-o", "/dev/null", "true"))
