"""
Odd real processes. Each maker is a context manager that waits until the oddity is there, and always cleans up.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.helpers import independent, libc

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0


@dataclass(frozen=True)
class Subject:
    """A process to be judged: its number as seen from here, and the record that it wrote about itself."""

    pid: int
    record: str


class AgentError(Exception):
    """The agent answered with an error."""


class Agent:
    """A child that runs `tests.helpers.agent`, behind *prefix*, the command that prepares its surroundings."""

    def __init__(self, prefix: Sequence[str] = (), *, arguments: Sequence[str] = (), **environment: str) -> None:
        libc.needed()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.helpers.agent", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=inherited | environment,
            bufsize=0,
        )
        try:
            self.pid_inside, self.uid = self.ask("where")
            self.pid = _last_descendant(self.process.pid)
        except BaseException:
            self.close()
            raise

    def ask(self, do: str, **arguments: Any) -> Any:
        """Have the agent do something; what it answers."""
        self.tell(do, **arguments)
        return self.answer(do)

    def tell(self, do: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")

    def answer(self, do: str = "?") -> Any:
        assert self.process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
            part = self.process.stdout.readline() if ready else b""
            if not part:
                raise AgentError(f"no answer to {do}; returncode {self.process.poll()}")
            line += part
        reply = json.loads(line)
        if reply["error"] is not None:
            raise AgentError(f"{do}: {reply['error']}")
        return reply["result"]

    @cached_property
    def record(self) -> str:
        return str(self.ask("current_record"))

    def judge(self, record: Any, **options: Any) -> tuple[str, str]:
        """Verdict and reason, as judged from where the agent stands."""
        verdict, reason, *_ = self.ask("judge", record=record, **options)
        return verdict, reason

    def spawn(self, **arguments: Any) -> Subject:
        """A sleeping child of the agent; its number as the agent sees it."""
        child = self.ask("spawn", **arguments)
        return Subject(child["pid"], child["record"])

    def kill(self) -> None:
        """SIGKILL, without reaping."""
        os.kill(self.pid, signal.SIGKILL)

    def leave(self) -> None:
        """Let it end by itself, so that whoever is between us and it reaps it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE)

    def close(self) -> None:
        # A stopped process dies of SIGKILL only; the end of its input tells the others.
        if self.process.returncode is None:
            with contextlib.suppress(OSError):
                self.process.kill()
            self.process.wait(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _last_descendant(pid: int) -> int:
    """The agent behind wrappers such as `unshare --fork`, each of which has one child."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
        pid = int(children[0])
    return pid


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for what the kernel or a child will do soon."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.001)


def until_state(pid: int, letters: str) -> None:
    until(lambda: independent.state(pid) in letters, f"process {pid} is not in one of the states {letters}")


@contextlib.contextmanager
def sleeping() -> Iterator[Subject]:
    with Agent() as agent:
        record = agent.record
        until_state(agent.pid, "S")
        yield Subject(agent.pid, record)


@contextlib.contextmanager
def stopped() -> Iterator[Subject]:
    with Agent() as agent:
        record = agent.record
        os.kill(agent.pid, signal.SIGSTOP)
        until_state(agent.pid, "T")
        yield Subject(agent.pid, record)


@contextlib.contextmanager
def zombie(comm: str | None = None) -> Iterator[Subject]:
    with Agent() as agent:
        record = agent.record
        if comm is not None:
            agent.ask("set_comm", name=comm)
        agent.kill()
        os.waitid(os.P_PID, agent.pid, os.WEXITED | os.WNOWAIT)
        until_state(agent.pid, "Z")
        yield Subject(agent.pid, record)


@contextlib.contextmanager
def reaped() -> Iterator[Subject]:
    with Agent() as agent:
        record = agent.record
        agent.kill()
        agent.process.wait(PATIENCE)
    yield Subject(agent.pid, record)


@contextlib.contextmanager
def leader_exited() -> Iterator[Subject]:
    """The main thread has ended and shows Z; another thread runs and still answers."""
    with Agent() as agent:
        record = agent.record
        agent.tell("end_main_thread")
        until_state(agent.pid, "Z")
        assert agent.ask("where") == [agent.pid, agent.uid]
        assert not independent.has_exited(agent.pid)
        yield Subject(agent.pid, record)


@contextlib.contextmanager
def leader_exited_then_all() -> Iterator[Subject]:
    """As `leader_exited`, and then the last thread ended too; not reaped."""
    with Agent() as agent:
        record = agent.record
        agent.tell("end_main_thread")
        until_state(agent.pid, "Z")
        agent.kill()
        until(lambda: independent.has_exited(agent.pid), "the last thread runs on")
        yield Subject(agent.pid, record)


@contextlib.contextmanager
def many_threads(count: int = 500) -> Iterator[Subject]:
    with Agent() as agent:
        record = agent.record
        agent.ask("start_threads", count=count)
        assert independent.thread_count(agent.pid) == count + 1
        yield Subject(agent.pid, record)


@contextlib.contextmanager
def named(comm: str) -> Iterator[Subject]:
    """A sleeping process with any name of up to 15 bytes."""
    with Agent() as agent:
        agent.ask("set_comm", name=comm)
        record = agent.record
        until_state(agent.pid, "S")
        yield Subject(agent.pid, record)


@contextlib.contextmanager
def of_another_user(uid: int = 65534) -> Iterator[Subject]:
    with Agent() as agent:
        agent.ask("set_uid", uid=uid)
        yield Subject(agent.pid, agent.record)


@contextlib.contextmanager
def thread_number_taken() -> Iterator[Subject]:
    """The record of a process that ended, whose number is now (forged) the number of a thread of somebody else."""
    with Agent() as ended:
        record = json.loads(ended.record)
    with Agent() as agent:
        (thread,) = agent.ask("start_threads", count=1)
        until(lambda: Path(f"/proc/{agent.pid}/task/{thread}").exists(), "the thread has not started")
        yield Subject(thread, json.dumps(record | {"pid": thread}))


@contextlib.contextmanager
def vfork_parent() -> Iterator[Subject]:
    """In uninterruptible sleep, state D, as behind a hung disk."""
    with tempfile.TemporaryDirectory() as directory, Agent() as agent:
        record = agent.record
        fifo = os.path.join(directory, "fifo")
        os.mkfifo(fifo)
        agent.tell("wait_in_vfork", fifo=fifo)
        try:
            until_state(agent.pid, "D")
            yield Subject(agent.pid, record)
        finally:
            os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))
            agent.kill()


@contextlib.contextmanager
def traced() -> Iterator[Subject]:
    with Agent() as agent:
        child = agent.ask("traced")
        until_state(child["pid"], "t")
        yield Subject(child["pid"], child["record"])


@contextlib.contextmanager
def zombie_thread_held_by_a_tracer() -> Iterator[Subject]:
    """All threads are dead, and one of them cannot be forgotten while its tracer does not wait for it."""
    with Agent() as agent, Agent() as tracer:
        record = agent.record
        (thread,) = agent.ask("start_threads", count=1)
        tracer.ask("seize", thread=thread)
        agent.kill()
        until_state(agent.pid, "Z")
        task = f"/proc/{agent.pid}/task/{thread}/stat"
        until(lambda: independent.stat_fields(task)[0] == "Z", "the thread does not die")
        assert independent.thread_count(agent.pid) == 2
        yield Subject(agent.pid, record)


@contextlib.contextmanager
def executed(from_a_thread: bool = False) -> Iterator[Subject]:
    """A process that has become another program since it wrote its record."""
    with Agent() as agent:
        record = agent.record
        agent.ask("exec_sleep", from_a_thread=from_a_thread)
        comm = Path(f"/proc/{agent.pid}/comm")
        until(lambda: comm.read_text() == "sleep\n", "no exec happened")
        yield Subject(agent.pid, record)
