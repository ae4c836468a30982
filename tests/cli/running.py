"""The command as a child, and what surrounds it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tenure import LeaseStatus, Verdict, WriterLease, open_store
from tests.helpers.processes import PATIENCE, ROOT, until

TENURE = (sys.executable, "-m", "tenure")
# Says that it runs, in a file, and then what signals it gets, until TERM. Not a shell script: its helpers would be hit too.
TELLER = (
    sys.executable,
    "-c",
    """
import os, signal, sys

log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def tell(number, frame):
    os.write(log, signal.Signals(number).name.removeprefix("SIG").encode() + b"\\n")
    if number == signal.SIGTERM:
        os._exit(7)

for name in ("HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "CONT", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), tell)
os.write(log, b"started\\n")
while True:
    signal.pause()
""",
)


def environment(**changes: str) -> dict[str, str]:
    """Ours, without what an operator may have set, plain, and buffered as usual."""
    unwanted = ("TENURE_", "FORCE_COLOR", "PYTHONUNBUFFERED")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return inherited | changes


def tenure(*words: str, prefix: Sequence[str] = (), **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    how: dict[str, Any] = {"cwd": ROOT, "env": environment(), "capture_output": True}
    return subprocess.run(
        [*prefix, *TENURE, *words],
        text=True,
        timeout=PATIENCE,
        check=False,
        **(how | options),
    )


@contextlib.contextmanager
def started(*words: str, prefix: Sequence[str] = (), **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The command in the background; killed, with whatever it left, when the block ends."""
    process = subprocess.Popen(
        [*prefix, *TENURE, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        **({"env": environment()} | options),
    )
    try:
        yield process
    finally:
        # Its command carries the lifeline on, and reading a pipe to its end would wait for that one too.
        for child in descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, 9)
        process.kill()
        process.wait(PATIENCE)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def children(pid: int) -> list[int]:
    """The direct children of *pid*; none if it has ended."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """All below *pid*."""
    return [one for child in children(pid) for one in (child, *descendants(child))]


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr."""
    _, stderr = process.communicate(timeout=PATIENCE)
    return process.returncode, stderr


def told(log: Path) -> list[str]:
    """What the teller has written so far."""
    return log.read_text("ascii").split() if log.exists() else []


def until_told(log: Path, *words: str) -> None:
    until(lambda: set(words) <= set(told(log)), f"the command has not said {words}: {told(log)}")


def until_waiting(pid: int) -> None:
    """Until the `tenure run` of *pid* waits for the lease: it has blocked SIGTERM, and had time for a few looks."""

    def blocked() -> bool:
        for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
            if line.startswith("SigBlk:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
        return False

    until(blocked, f"{pid} does not wait")
    time.sleep(0.3)


def look(url: object) -> LeaseStatus:
    return WriterLease(str(url)).inspect()


def verdict(url: object) -> tuple[Verdict, str]:
    judgement = look(url).judgement
    assert judgement is not None
    return judgement.verdict, judgement.reason


def take_over(url: object) -> None:
    """Create the next claim, as a successor does who has watched long enough: a holder that looks finds itself replaced."""
    store = open_store(str(url))
    current = look(url)
    record = store.read(f"lease/{current.fence:020}")
    assert record is not None
    claim = json.loads(record.data) | {"fence": str(current.fence + 1), "nonce": "0" * 32}
    assert store.create(f"lease/{current.fence + 1:020}", json.dumps(claim).encode()).won


@contextlib.contextmanager
def held(url: object, **options: Any) -> Iterator[int]:
    """The lease of *url*, held by this process; its fence."""
    with WriterLease(str(url), **options).acquire() as hold:
        yield hold.fence


def only_the_error(stderr: str) -> tuple[str, str | None]:
    """Message and hint, if that is all that was said, plainly."""
    assert "\x1b" not in stderr
    first, *rest = stderr.splitlines()
    assert first.startswith("tenure: "), stderr
    if not rest:
        return first.removeprefix("tenure: "), None
    (hint,) = rest
    assert hint.startswith("hint: "), stderr
    return first.removeprefix("tenure: "), hint.removeprefix("hint: ")
