"""
The writers of the demo: each takes the lease of a URL, says "holding", and meets its fate.

They end when their input ends, which it does when the demo ends, however that comes about.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tenure import Datastore, WriterLease

# The exit code for "not possible on this machine".
CANNOT = 77
# exit(2) by number, which ends one thread: asm/unistd.h.
EXIT = {"x86_64": 60, "aarch64": 93, "riscv64": 93}


def holds(url: str, ttl: str = "30") -> None:
    """Hold on."""
    with WriterLease(url, ttl=float(ttl), skew=0.0, label="the demo's writer").acquire():
        print("holding", flush=True)
        sys.stdin.read()


def main_thread_exits(url: str) -> None:
    """End the main thread and hold on in the others. Python knows no way to do that; the kernel does: exit(2), notes."""
    hold = WriterLease(url, label="the demo's writer").acquire()

    def live_on() -> None:
        print("holding", flush=True)
        sys.stdin.read()
        hold.release()
        os._exit(0)

    threading.Thread(target=live_on).start()
    ctypes.CDLL(None).syscall(EXIT[platform.machine()], 0)


def prepares(url: str, checkout: str) -> None:
    """Commit a file, and get as far as a fail point lets us."""
    with Datastore.create(url).checkout(checkout) as opened, opened.writer() as writer:
        print("holding", flush=True)
        writer.put("plan.txt", b"prepared")
        writer.commit("a plan")


def pid_reused(url: str, *asking: str) -> None:
    """
    Give a dead writer's number to another process, and run *asking* meanwhile. In a pid namespace of its own only.

    Source: /proc/sys/kernel/ns_last_pid, pid_namespaces(7); the next fork takes the next number.
    """
    for _ in range(50):
        choose_next_pid(4321)
        with subprocess.Popen(
            [sys.executable, __file__, "holds", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as first:
            assert first.stdout is not None
            first.stdout.readline()
            first.kill()
        # As a cleaner of temporary files does: by its lifeline the hold would be known to be gone without the number.
        for lifeline in Path(url, "lease/lifeline").iterdir():
            lifeline.unlink()
        choose_next_pid(4321)
        with subprocess.Popen(["sleep", "60"]) as second:
            reused = first.pid == second.pid
            if reused:
                subprocess.run(asking, check=True)
            second.kill()
        if reused:
            return
    sys.exit(CANNOT)


def choose_next_pid(number: int) -> None:
    """Or leave, if that is not for us to choose."""
    try:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1), "ascii")
    except OSError:
        sys.exit(CANNOT)


FATES: dict[str, Callable[..., None]] = {
    "holds": holds,
    "main-thread-exits": main_thread_exits,
    "pid-reused": pid_reused,
    "prepares": prepares,
}

if __name__ == "__main__":
    FATES[sys.argv[1]](*sys.argv[2:])
