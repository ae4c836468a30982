"""
A child process that does odd things on request, and judges others from where it stands.

Run as `python -m tests.helpers.agent`; one JSON request a line comes in, one JSON answer a line goes out, and the end of
the input ends it. The core is imported when first needed, so that a test can prepare the surroundings before.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.helpers import acting, asking, dying, holding, libc, writing

REPLIES = os.dup(1) if __name__ == "__main__" else -1


def end_main_thread() -> None:
    threading.Thread(target=serve).start()
    libc.end_this_thread()


def exec_sleep(from_a_thread: bool) -> None:
    _answer(None)
    program = ["sleep", "3600"]
    if from_a_thread:
        threading.Thread(target=os.execvp, args=(program[0], program)).start()
        time.sleep(3600)
    os.execvp(program[0], program)


def _answer(result: Any, error: str | None = None) -> None:
    os.write(REPLIES, json.dumps({"result": result, "error": error}).encode() + b"\n")


def _door(name: str) -> Any:
    for room in (globals(), vars(asking), vars(acting), vars(holding), vars(writing), vars(dying)):
        if name in room:
            return room[name]
    raise LookupError(name)


def serve() -> None:
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            result = _door(request.pop("do"))(**request)
        except Exception as error:  # noqa: BLE001  the asker raises it again
            _answer(None, f"{type(error).__name__}: {error}")
        else:
            _answer(result)
    os._exit(0)


def _enter_time_namespace(offsets: str) -> None:
    """Offsets finer than a second, which unshare(1) cannot set. The child stands in the new namespace."""
    libc.unshare(libc.CLONE_NEWTIME)
    Path("/proc/self/timens_offsets").write_text(offsets, "ascii")
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        os._exit(0)
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _enter_time_namespace(sys.argv[1])
    serve()
