"""
Processes that hold a lease, and became odd afterwards; and claims written by hand.

Each maker is a context manager that waits until the oddity is there, and cleans up.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tenure._lease import _keys
from tests.helpers import processes
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.processes import Agent

NONCE = "0123456789abcdef" * 2


@contextlib.contextmanager
def holding(store: Path | str, *, prefix: Sequence[str] = (), **options: Any) -> Iterator[Agent]:
    """A process that holds the lease of *store*, and renews it."""
    with Agent(prefix) as agent:
        granted = agent.ask("take", store=str(store), **options)
        assert "kind" not in granted, granted
        yield agent


def in_own_pid_namespace(store: Path | str, **options: Any) -> contextlib.AbstractContextManager[Agent]:
    """As a container with the host's name: pid 1 of its own namespace, `/proc` of its own, same host name."""
    return holding(store, prefix=OWN_PROC, **options)


@contextlib.contextmanager
def stopped(store: Path | str, **options: Any) -> Iterator[Agent]:
    with holding(store, **options) as agent:
        os.kill(agent.pid, signal.SIGSTOP)
        processes.until_state(agent.pid, "T")
        yield agent


@contextlib.contextmanager
def reaped(store: Path | str, **options: Any) -> Iterator[Agent]:
    with holding(store, **options) as agent:
        agent.kill()
        agent.process.wait(processes.PATIENCE)
        yield agent


@contextlib.contextmanager
def zombie(store: Path | str, **options: Any) -> Iterator[Agent]:
    with holding(store, **options) as agent:
        agent.kill()
        os.waitid(os.P_PID, agent.pid, os.WEXITED | os.WNOWAIT)
        processes.until_state(agent.pid, "Z")
        yield agent


@contextlib.contextmanager
def leader_exited(store: Path | str, **options: Any) -> Iterator[Agent]:
    """The main thread has ended and shows Z; the process runs on."""
    with holding(store, **options) as agent:
        agent.tell("end_main_thread")
        processes.until_state(agent.pid, "Z")
        assert agent.ask("where")[0] == agent.pid
        yield agent


@contextlib.contextmanager
def executed(store: Path | str, **options: Any) -> Iterator[Agent]:
    """The process lives on as another program, and cannot know that it held anything."""
    with holding(store, **options) as agent:
        agent.ask("exec_sleep", from_a_thread=False)
        comm = Path(f"/proc/{agent.pid}/comm")
        processes.until(lambda: comm.read_text() == "sleep\n", "no exec happened")
        # Close-on-exec ends a lock when the exec returns to the new program, a moment after its name is there.
        processes.until_state(agent.pid, "S")
        yield agent


@contextlib.contextmanager
def ended_with(pid: int) -> Iterator[int]:
    """End the process *pid*, a grandchild of ours, at the latest when the block ends."""
    try:
        yield pid
    finally:
        end(pid)


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    status = Path(f"/proc/{pid}/stat")
    # Reaped by whoever adopts orphans here, which may be nobody: Z will do.
    processes.until(
        lambda: not status.exists() or status.read_text().rpartition(")")[2].split()[0] in "ZX", "it runs on"
    )


def claim(fence: int = 1, **changes: Any) -> bytes:
    """A claim as it may lie in a store; a change to `...` leaves the field out."""
    fields: dict[str, Any] = {
        "v": 1,
        "fence": str(fence),
        "nonce": NONCE,
        "holder": None,
        "ttl": 30.0,
        "skew": 10.0,
        "label": None,
        "host_name": "elsewhere",
        "acquired_at": "2026-10-16T08:00:00+00:00",
        "lifeline": None,
    }
    fields |= changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def beat(number: int, *, nonce: str = NONCE, state: str = "held") -> bytes:
    return json.dumps({"v": 1, "nonce": nonce, "beat": f"{number:020d}", "state": state}).encode()


def plant(store: Path, data: bytes, *, key: str = _keys.claim(1)) -> Path:
    """Write *data* by hand under *key* in the directory *store*."""
    path = store / key
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def everything_below(directory: Path) -> dict[str, tuple[Any, ...]]:
    """Each name below *directory* with what a write would change: inode, size, times of content and of status, bytes."""
    seen: dict[str, tuple[Any, ...]] = {}
    for path in [directory, *sorted(directory.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        seen[str(path)] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, content)
    return seen
