"""
Surroundings in which a process is hard to judge: other pid namespaces, a foreign or hidden /proc, shifted clocks.

Each is a command in front of an `Agent`. The host name stays the same in all of them. Sources: pid_namespaces(7),
time_namespaces(7), proc(5) on hidepid and subset.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.processes import Agent, Subject

OWN_PROC = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
FOREIGN_PROC = ("unshare", "--pid", "--fork", "--kill-child")
NOBODY = 65534


def with_proc_options(options: str) -> tuple[str, ...]:
    """A /proc of the same pid namespace, mounted anew with *options*, in a mount namespace of its own."""
    return ("unshare", "--mount", "sh", "-c", f'mount -t proc -o {options} proc /proc && exec "$@"', "sh")


def with_file_over(target: str, source: str) -> tuple[str, ...]:
    """*source* bind-mounted over *target*, which must exist."""
    return ("unshare", "--mount", "sh", "-c", f'mount --bind "{source}" "{target}" && exec "$@"', "sh")


def with_boottime_offset(seconds: int) -> tuple[str, ...]:
    return ("unshare", "--time", "--boottime", str(seconds), "--fork", "--kill-child")


@contextlib.contextmanager
def with_text_over(target: str, text: str) -> Iterator[tuple[str, ...]]:
    """The prefix of an agent that reads *text* where others read *target*."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "text")
        source.write_text(text, "utf-8")
        Path(directory).chmod(0o755)
        yield with_file_over(target, str(source))


@contextlib.contextmanager
def without_machine_id() -> Iterator[Agent]:
    """Every place where a machine id may be read is empty, as in many containers. Source: machine-id(5)."""
    places = [place for place in ("/etc/machine-id", "/var/lib/dbus/machine-id") if Path(place).exists()]
    mounts = " && ".join(f"mount --bind /dev/null {place}" for place in places) or "true"
    with Agent(("unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh")) as agent:
        yield agent


@contextlib.contextmanager
def unprivileged(*, proc: str | None = None) -> Iterator[Agent]:
    """A prober that is nobody, behind a /proc with the mount options *proc*."""
    with Agent(with_proc_options(proc) if proc else ()) as agent:
        agent.ask("set_uid", uid=NOBODY)
        yield agent


@contextlib.contextmanager
def in_child_namespace() -> Iterator[Subject]:
    """A process of a pid namespace below ours; `pid` is its number here and not the one in its record."""
    with Agent(OWN_PROC) as agent:
        yield Subject(agent.pid, agent.record)


@contextlib.contextmanager
def zombie_in_child_namespace() -> Iterator[Subject]:
    with Agent(OWN_PROC) as agent:
        child = agent.spawn()
        agent.ask("end", pid=child.pid, reap=False)
        yield child


@contextlib.contextmanager
def gone_from_child_namespace() -> Iterator[Subject]:
    """The namespace lives on, the process does not."""
    with Agent(OWN_PROC) as agent:
        child = agent.spawn()
        agent.ask("end", pid=child.pid)
        yield child


@contextlib.contextmanager
def gone_with_its_namespace() -> Iterator[Subject]:
    with Agent(OWN_PROC) as agent:
        record = agent.record
        agent.leave()
    yield Subject(agent.pid, record)
