"""
A child process that runs a few lines of Python and talks in lines: for what an `Agent` has no word for.

What the script prints is what it says; the lines it is told arrive on its standard input. Holds that it takes end with it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from typing import IO

from tests.helpers.processes import PATIENCE, ROOT

# Flushed line by line, so that a line is said when it is printed.
_PROLOGUE = """
import functools, os, sys
print = functools.partial(print, flush=True)
"""


class Script:
    """The child; *arguments* are its `sys.argv[1:]`."""

    def __init__(self, code: str, *arguments: object, prefix: Sequence[str] = (), **environment: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        program = _PROLOGUE + textwrap.dedent(code)
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            # Remembering would tie one test to the next.
            env=inherited | {"TENURE_CACHE": ""} | environment,
            bufsize=0,
        )
        self.pid = self.process.pid

    def says(self) -> str:
        """The next line; empty when it has ended instead."""
        assert self.process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            assert _is_ready(self.process.stdout), "the script says nothing"
            part = self.process.stdout.readline()
            if not part:
                break
            line += part
        return line.decode().rstrip("\r\n")

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    def ask(self, line: str) -> str:
        """Tell it *line*, and hear what it says to that."""
        self.tell(line)
        return self.says()

    def ends(self) -> tuple[int, str, str]:
        """Wait for its end: return code, what it still said, and what it complained of."""
        out, complaints = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out.decode(), complaints.decode()

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def ran(code: str, *arguments: object, **environment: str) -> str:
    """What a script said, which ended well and complained of nothing."""
    with Script(code, *arguments, **environment) as script:
        returncode, said, complaints = script.ends()
    assert (returncode, complaints) == (0, ""), complaints
    return said.strip()


def _is_ready(pipe: IO[bytes]) -> bool:
    try:
        return bool(select.select([pipe], [], [], PATIENCE)[0])
    except OSError:
        # Windows selects among sockets alone. The time limit of every test bounds the wait.
        return True
