"""
What a machine may lack, each found out by trying it once.

A test that needs one carries its mark (`@NEEDS_PID_NAMESPACE`). A skip names the capability and never a platform, and
the run ends by counting skips per capability (conftest.py), so a machine that can show little says so.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure import ProcessIdentity
from tests.helpers import independent, libc, servers


def _runs(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _mark(name: str, probe: Callable[[], bool]) -> pytest.MarkDecorator:
    try:
        there = probe()
    except OSError:
        there = False
    return pytest.mark.skipif(not there, reason=f"needs {name}")


# What a system's own modules have, or have not: `os.fork`, `signal.SIGSTOP`, `resource`.
_OF_THE_SYSTEM = {"fcntl", "grp", "os", "pty", "pwd", "resource", "select", "signal", "socket", "termios", "time"}


def missing_from_the_system(error: BaseException) -> str | None:
    """
    The name of what a *test* reached for and this system has not; None for every other error.

    Not if it was the product that reached: what it does without is its own business.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not Path(frames[-1].filename).is_relative_to(Path(__file__).parents[1]):
        return None
    if isinstance(error, ModuleNotFoundError) and error.name in _OF_THE_SYSTEM:
        return error.name
    if isinstance(error, AttributeError):
        module = getattr(error.obj, "__name__", "")
        return f"{module}.{error.name}" if module in _OF_THE_SYSTEM else None
    return None


def _makes_symlinks() -> bool:
    with tempfile.TemporaryDirectory() as directory:
        link = Path(directory, "link")
        link.symlink_to("nowhere")
        return link.is_symlink()


def _keeps_modes() -> bool:
    with tempfile.TemporaryDirectory() as directory:
        return os.stat(directory).st_mode & 0o777 == 0o700


NEEDS_LINUX_PROC = _mark("linux-proc", lambda: sys.platform == "linux" and _runs("test", "-r", "/proc/self/stat"))
# Whether processes can be judged here at all: without a boot id every judgement is unknown.
NEEDS_IDENTITY = _mark("identity", lambda: ProcessIdentity.current().boot is not None)
NEEDS_SYMLINKS = _mark("symlinks", _makes_symlinks)
NEEDS_MODES = _mark("file-modes", _keeps_modes)
NEEDS_SHELL = _mark("shell", lambda: shutil.which("sh") is not None)
NEEDS_POSIX_PATHS = _mark("posix-paths", lambda: Path("/srv").is_absolute())
NEEDS_PID_NAMESPACE = _mark("pid-namespace", lambda: _runs("unshare", "--pid", "--fork", "--mount-proc", "true"))
NEEDS_NETWORK_NAMESPACE = _mark("network-namespace", lambda: _runs("unshare", "--net", "sh", "-c", "ip link set lo up"))
NEEDS_CABLES = _mark(
    "veth", lambda: _runs("unshare", "--net", "ip", "link", "add", "near", "type", "veth", "peer", "name", "far")
)
NEEDS_BUCKET = _mark("real-bucket", lambda: "TENURE_TEST_BUCKET" in os.environ)
NEEDS_MOTO = _mark("moto", lambda: importlib.util.find_spec("moto") is not None)
NEEDS_TIME_NAMESPACE = _mark("time-namespace", lambda: _runs("unshare", "--time", "--boottime", "1", "--fork", "true"))
NEEDS_MOUNT = _mark("mount", lambda: _runs("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"))
NEEDS_STRACE = _mark(
    "strace", lambda: shutil.which("strace") is not None and _runs("strace", "-o", "/dev/null", "true")
)


def _has_pidfds() -> bool:
    try:
        os.close(libc.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _has_pidfs_handles() -> bool:
    with_own_inode = independent.pidfs_inode(os.getpid())
    if with_own_inode is None:
        return False
    pidfd = libc.pidfd_open(os.getpid())
    try:
        again = libc.opened_again_by_handle(pidfd)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    inode = os.fstat(again).st_ino
    os.close(again)
    return inode == with_own_inode


_IN_A_NEW_PID_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c")
_IN_A_NEW_MOUNT_NAMESPACE = ("unshare", "--mount", "sh", "-c")

# Root in a container may lack what makes it root: tried, not looked up.
NEEDS_ROOT = _mark("root", lambda: _runs("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "true"))
NEEDS_PIDFD = _mark("pidfd", _has_pidfds)
NEEDS_PIDFS = _mark("pidfs", lambda: independent.pidfs_inode(os.getpid()) is not None)
NEEDS_HANDLES = _mark("pidfs-handles", _has_pidfs_handles)
NEEDS_NS_ID = _mark("namespace-id", lambda: independent.namespace_id() is not None)
# Source: linux/proc_ns.h, PROC_PID_INIT_INO.
NEEDS_INITIAL_PID_NAMESPACE = _mark("initial-pid-namespace", lambda: independent.namespace_inode() == "4026531836")
NEEDS_SET_TID = _mark(
    "choice-of-pids", lambda: _runs(*_IN_A_NEW_PID_NAMESPACE, "echo 1000 > /proc/sys/kernel/ns_last_pid")
)
NEEDS_HIDEPID = _mark("hidepid", lambda: _runs(*_IN_A_NEW_MOUNT_NAMESPACE, "mount -t proc -o hidepid=2 proc /proc"))
NEEDS_SUBSET_PID = _mark(
    "subset-pid", lambda: _runs(*_IN_A_NEW_MOUNT_NAMESPACE, "mount -t proc -o subset=pid proc /proc")
)
NEEDS_MACHINE_ID = _mark("machine-id", lambda: len(Path("/etc/machine-id").read_text("ascii").strip()) == 32)
# Source: proc(5), /proc/sys/kernel/yama/ptrace_scope; 2 and above forbid what a child asks for itself.
NEEDS_PTRACE = _mark("ptrace", lambda: _runs("sh", "-c", "! grep -q [23] /proc/sys/kernel/yama/ptrace_scope"))


def _serves(*programs: str) -> bool:
    """Whether *programs* run as whoever is to run them. That they also serve is not tried here: it would be a finding."""
    return all(
        (path := servers.program(name)) is not None and _runs(*servers.AS_NOBODY, path, "--version")
        for name in programs
    )


NEEDS_POSTGRESQL = _mark("postgresql", lambda: _serves("initdb", "postgres"))
NEEDS_PGBOUNCER = _mark("pgbouncer", lambda: _serves("initdb", "postgres", "pgbouncer"))
NEEDS_MARIADB = _mark("mariadb", lambda: _serves("mariadbd"))
