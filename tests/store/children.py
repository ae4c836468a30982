"""
A child process that works on a store, one request at a time, so that it can be traced, killed or put elsewhere.

Run as `python -m tests.store.children ROOT WITHOUT...` for a file store, or with a URL; JSON lines in, JSON lines out.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tests.helpers import libc, processes, tracing

if TYPE_CHECKING:
    from tenure._store._file import FileStore

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


class Child:
    """The child, behind *prefix*, a command that prepares its surroundings and ends in exec."""

    def __init__(self, root: Path | str, *, prefix: Sequence[str] = (), without: Sequence[str] = ()) -> None:
        libc.needed()
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.store.children", str(root), *without],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            bufsize=0,
        )
        self.pid = self.process.pid
        assert self.ask("hello") == {"result": "hello"}

    def ask(self, do: str, *arguments: Any) -> dict[str, Any]:
        self.tell(do, *arguments)
        return self.answer()

    def tell(self, do: str, *arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([do, *arguments]).encode() + b"\n")

    def answer(self) -> dict[str, Any]:
        """What it said; empty when it died instead."""
        assert self.process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
            assert ready, "no answer"
            part = self.process.stdout.readline()
            if not part:
                return {}
            line += part
        return cast("dict[str, Any]", json.loads(line))

    def killed_at(self, call: str, nth: int, do: str, *arguments: Any) -> None:
        """Have a twin do something and die at the *nth* system call of that name."""
        parent, self.pid = self.pid, self.ask("fork")["result"]
        processes.until_state(self.pid, "S")
        with traced(self, "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={nth}"):
            self.tell(do, *arguments)
            processes.until(lambda: not Path(f"/proc/{self.pid}").exists(), f"it lives on after {call} {nth}")
        self.pid = parent
        ended = self.ask("how_it_ended")
        assert ended == {"result": signal.SIGKILL}, (call, nth, ended)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def child(root: Path | str, *, prefix: Sequence[str] = (), without: Sequence[str] = ()) -> Iterator[Child]:
    one = Child(root, prefix=prefix, without=without)
    try:
        yield one
    finally:
        one.close()


@contextmanager
def children(count: int, root: Path | str, *, without: Sequence[str] = ()) -> Iterator[list[Child]]:
    started: list[Child] = []
    try:
        started.extend(Child(root, without=without) for _ in range(count))
        yield started
    finally:
        for one in started:
            one.close()


def traced(one: Child, *options: str) -> AbstractContextManager[tracing.Trace]:
    """`strace` around what *one* is asked in the meantime. Warm it up first: imports open files, too."""
    return tracing.traced(cast("processes.Agent", one), *options)


def with_tmpfs(where: Path, options: str) -> tuple[str, ...]:
    """A tmpfs over *where*, for the child alone."""
    return ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {options} tmpfs "{where}" && exec "$@"', "sh")


def read_only(where: Path) -> tuple[str, ...]:
    """*where* mounted read-only, for the child alone."""
    script = f'mount --bind "{where}" "{where}" && mount -o remount,ro,bind "{where}" && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", script, "sh")


# What the child does.


def hello(store: FileStore) -> str:
    return "hello"


def warm_up(store: FileStore, key: str) -> None:
    """Everything once, so that nothing is imported or made later."""
    store.create(key, b"warm")
    store.create(key, b"lost")
    found = store.read(key, durable=True)
    assert found is not None
    store.replace(key, b"warmer", found.version)
    list(store.list())
    store.delete(key)


def create(store: FileStore, key: str, text: str) -> dict[str, Any]:
    created = store.create(key, text.encode())
    return {"won": created.won, "text": created.data.decode()}


def read(store: FileStore, key: str, durable: bool = False) -> str | None:
    found = store.read(key, durable=durable)
    return None if found is None else found.data.decode()


def replace(store: FileStore, key: str, text: str) -> bool:
    found = store.read(key)
    assert found is not None
    return store.replace(key, text.encode(), found.version) is not None


def keys(store: FileStore, prefix: str = "") -> list[str]:
    return list(store.list(prefix))


def delete(store: FileStore, key: str) -> None:
    store.delete(key)


def race(store: FileStore, number_of_racers: int, me: int, rounds: int, barrier: str) -> list[tuple[bool, str]]:
    """Try to create the same keys as everybody else, each at the same moment; *barrier* is a file that all share."""
    outcomes = []
    name = f"racer {me}"
    with open(barrier, "r+b") as file, mmap.mmap(file.fileno(), 8 * number_of_racers) as shared:
        with memoryview(shared) as whole, whole.cast("Q") as slots:
            for number in range(rounds):
                slots[me] = number + 1
                while min(slots) <= number:
                    time.sleep(0.0001)
                created = store.create(f"lease/{number:020}", name.encode())
                outcomes.append((created.won, created.data.decode()))
    return outcomes


def increment(store: FileStore, key: str, times: int) -> int:
    """Count up by compare-and-swap; how many attempts were lost to others."""
    lost = 0
    for _ in range(times):
        while True:
            found = store.read(key)
            assert found is not None
            if store.replace(key, str(int(found.data) + 1).encode(), found.version) is not None:
                break
            lost += 1
    return lost


def fill(store: FileStore) -> None:
    """Use up the file system's last byte, by a file that is none of the store's."""
    with open(store.path_of("x").parent / ".fill", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def names(store: FileStore) -> list[str]:
    """Every file below the root, temporary ones too."""
    root = store.path_of("x").parent
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def fork_while_locked(store: FileStore) -> None:
    """Leave a child behind that has copies of all descriptors and lives as long as we do."""
    with store._locked():
        if os.fork() == 0:
            libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.pause()


def serve(store: FileStore) -> None:
    from tenure.errors import StoreError

    ended = 0
    # Waiting in select: a read that strace interrupts would count as two, and tests say "the third read".
    while select.select([0], [], [])[0] and (line := sys.stdin.buffer.readline()):
        do, *arguments = json.loads(line)
        if do == "fork":
            # A twin that is warm already answers from now on; when it is dead, we do again.
            if pid := os.fork():
                os.write(1, json.dumps({"result": pid}).encode() + b"\n")
                ended = os.waitpid(pid, 0)[1]
            continue
        if do == "how_it_ended":
            os.write(1, json.dumps({"result": ended}).encode() + b"\n")
            continue
        try:
            reply = {"result": globals()[do](store, *arguments)}
        except StoreError as error:
            reply = {
                "error": type(error).__name__,
                "errno": error.errno,
                "filename": error.filename,
                "message": str(error),
                "hint": error.hint,
                "applied": error.applied,
                "cause": type(error.__cause__).__name__,
            }
        os.write(1, json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    if ":" in sys.argv[1]:
        from tenure.stores import open_store

        serve(cast("Any", open_store(sys.argv[1])))
    else:
        from tenure._store._file import FileStore

        serve(FileStore(sys.argv[1], without=cast("Any", sys.argv[2:])))
