"""
Who a process is, read without the core: plain files, the C library through cffi, and a shell.

Wherever a test compares the core with something, it is this. Sources: proc_pid_stat(5), pidfd_open(2), namespaces(7).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.helpers import libc

# Any process name, "(" and ")" and blanks included, may stand in the second field.
_SHELL = r"""
cat /proc/sys/kernel/random/boot_id
readlink /proc/$1/ns/pid | tr -dc 0-9; echo
sed -z 's/.*) //' /proc/$1/stat | awk '{ print $20 }'
"""


@dataclass(frozen=True)
class Seen:
    """The fields of a record that the kernel answers for; None where it has none to give."""

    boot: str
    ns: str
    ns_id: int | None
    pid: int
    start: int
    uniq: int | None

    @classmethod
    def of(cls, pid: int) -> Seen:
        return cls(boot_id(), namespace_inode(pid), namespace_id(pid), pid, start_time(pid), pidfs_inode(pid))

    def as_json(self, **fields: object) -> str:
        """The record this process would write by hand, with *fields* added."""
        large = {"start": str(self.start), "ns_id": _decimal(self.ns_id), "uniq": _decimal(self.uniq)}
        known = {"v": 1, "os": "linux", "boot": self.boot, "ns": self.ns, "pid": self.pid, **large, **fields}
        return json.dumps({name: value for name, value in known.items() if value is not None})


def _decimal(number: int | None) -> str | None:
    return None if number is None else str(number)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def namespace_inode(pid: int | str = "self") -> str:
    return str(os.stat(f"/proc/{pid}/ns/pid").st_ino)


def namespace_id(pid: int | str = "self") -> int | None:
    fd = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
    try:
        return libc.namespace_id(fd)
    except OSError:
        return None
    finally:
        os.close(fd)


def stat_fields(path: str) -> list[str]:
    """The fields of a stat file from the third on; the second may hold anything and ends at the last ")"."""
    return Path(path).read_text("utf-8", "surrogateescape").rpartition(")")[2].split()


def state(pid: int) -> str:
    """The state letter of a process: R, S, D, Z, T, t, X."""
    return stat_fields(f"/proc/{pid}/stat")[0]


def thread_count(pid: int) -> int:
    return int(stat_fields(f"/proc/{pid}/stat")[17])


def start_time(pid: int) -> int:
    """Field 22, in 1/100 s whatever the kernel's clock tick."""
    return int(stat_fields(f"/proc/{pid}/stat")[19]) * 100 // os.sysconf("SC_CLK_TCK")


def pidfs_inode(pid: int) -> int | None:
    """The inode of a pidfd where it has one of its own: before Linux 6.9 all of them share one anonymous inode."""
    try:
        fd = libc.pidfd_open(pid)
    except OSError:
        return None
    try:
        return os.fstat(fd).st_ino if libc.filesystem_magic(fd) == libc.PIDFS_MAGIC else None
    finally:
        os.close(fd)


def has_exited(pid: int) -> bool:
    """Whether no thread of it runs: what a pidfd says, which a state letter cannot."""
    fd = libc.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(0))
    finally:
        os.close(fd)


def told_by_the_shell(pid: int) -> tuple[str, str, int]:
    """Boot id, namespace inode and start ticks of *pid*, as cat, readlink and awk tell them."""
    command = ["sh", "-c", _SHELL, "sh", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    boot, namespace, start = answer.stdout.split()
    return boot, namespace, int(start)
