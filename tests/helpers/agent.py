"""
A child process that does odd things on request, and judges others from where it stands.

Run as `python -m tests.helpers.agent`; one JSON request a line comes in, one JSON answer a line goes out, and the end of
the input ends it. The core is imported when first needed, so that a test can prepare the surroundings before.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

REPLIES = os.dup(1) if __name__ == "__main__" else -1


def current_record(host_id: str | None = None) -> str:
    from tenure import _core

    return _core.ProcessIdentity.current(host_id=host_id).to_json()


def judge(record: Any, **options: Any) -> list[str]:
    from tenure import _core

    judgement = _core.judge(record, **options)
    return [judgement.verdict.value, judgement.reason, judgement.evidence, judgement.detail]


def judge_many(records: list[Any], **options: Any) -> list[list[str]]:
    from tenure import _core

    judgements = _core.judge_many(records, **options)
    return [[one.verdict.value, one.reason, one.evidence, one.detail] for one in judgements]


def watch(record: Any, seconds: float, **options: Any) -> list[bool]:
    """Whether it was alive at first, and whether it had ended *seconds* later at the latest."""
    from tenure import _core

    with _core.Watch(record, **options) as watching:
        return [watching.alive(), watching.wait(seconds)]


def is_current(record: str) -> bool:
    from tenure import _core

    return _core.ProcessIdentity.from_json(record).is_current()


def of(pid: int) -> str:
    from tenure import _core

    return _core.ProcessIdentity.of(pid).to_json()


def capabilities() -> list[str]:
    from tenure import _core

    return sorted(_core.capabilities())


def spawn(comm: str | None = None) -> dict[str, Any]:
    """A forked child that writes its own record and sleeps."""
    return _told_by_a_fork(os.fork, comm)


def spawn_by_raw_clone() -> dict[str, Any]:
    from tests.helpers import libc

    return _told_by_a_fork(libc.clone_without_hooks, None)


def _told_by_a_fork(fork: Any, comm: str | None) -> dict[str, Any]:
    reading, writing = os.pipe()
    inherited = current_record()
    pid = fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            if comm is not None:
                set_comm(comm)
            still_the_parent = is_current(inherited)
            os.write(writing, json.dumps([current_record(), still_the_parent]).encode())
            os.close(writing)
            _sleep_for_ever()
        os._exit(1)
    os.close(writing)
    with open(reading, encoding="utf-8") as told:
        record, still_the_parent = json.loads(told.read())
    return {"pid": pid, "record": record, "parent_record_is_current_in_the_child": still_the_parent}


def _sleep_for_ever() -> None:
    # A child must not outlive the agent, which may be killed.
    from tests.helpers import libc

    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    while True:
        time.sleep(3600)


def traced() -> dict[str, Any]:
    """A child in a tracing stop, state t."""
    from tests.helpers import libc

    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.write(writing, current_record().encode())
        os.close(writing)
        libc.allow_tracing_by_the_parent()
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, os.WUNTRACED)
    with open(reading, encoding="utf-8") as told:
        return {"pid": pid, "record": told.read()}


def seize(thread: int) -> None:
    from tests.helpers import libc

    libc.seize(thread)


def end(pid: int, reap: bool = True) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | (0 if reap else os.WNOWAIT))


def reuse(pid: int, same_tick: bool) -> dict[str, Any]:
    """
    Two processes with one number, the first reaped, the second asleep; with *same_tick* born within one 10 ms tick.

    Source: /proc/sys/kernel/ns_last_pid, pid_namespaces(7); the next fork takes the next number.
    """
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1), "ascii")
        first = spawn()
        first_start = int(json.loads(first["record"])["start"])
        end(first["pid"])
        while not same_tick and time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10_000_000 <= first_start + 1:
            time.sleep(0.005)
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1), "ascii")
        second = spawn()
        second_start = int(json.loads(second["record"])["start"])
        if first["pid"] == second["pid"] == pid and (first_start == second_start) is same_tick:
            return {"pid": pid, "record": first["record"], "record_of_the_second": second["record"]}
        end(second["pid"])
    raise RuntimeError("the number was not given out twice as wanted")


def set_comm(name: str) -> None:
    Path("/proc/self/comm").write_bytes(name.encode())


def set_uid(uid: int) -> None:
    from tests.helpers import libc

    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Without this the files of /proc/self would belong to root, which no process started by that user ever sees.
    libc.prctl(libc.PR_SET_DUMPABLE, 1)


def start_threads(count: int) -> list[int]:
    threads = [threading.Thread(target=time.sleep, args=(3600,), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return [thread.native_id or 0 for thread in threads]


def end_main_thread() -> None:
    from tests.helpers import libc

    threading.Thread(target=serve).start()
    libc.end_this_thread()


def wait_in_vfork(fifo: str) -> None:
    """
    Stand in vfork, state D, until somebody opens *fifo*: posix_spawn(3) waits for a child that shares its memory.
    """
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])


def leave_time_namespace() -> None:
    """After this, /proc/self/timens_offsets tells of the children and not of this process. Source: time_namespaces(7)."""
    from tests.helpers import libc

    libc.unshare(libc.CLONE_NEWTIME)


def exec_sleep(from_a_thread: bool) -> None:
    _answer(None)
    program = ["sleep", "3600"]
    if from_a_thread:
        threading.Thread(target=os.execvp, args=(program[0], program)).start()
        time.sleep(3600)
    os.execvp(program[0], program)


def use_up_descriptors(spare: int) -> None:
    """Leave *spare* descriptors to be had."""
    limit = 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    for fd in taken[:spare]:
        os.close(fd)


def where() -> list[int]:
    return [os.getpid(), os.getuid()]


def _answer(result: Any, error: str | None = None) -> None:
    os.write(REPLIES, json.dumps({"result": result, "error": error}).encode() + b"\n")


def serve() -> None:
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            result = globals()[request.pop("do")](**request)
        except Exception as error:  # noqa: BLE001  the asker raises it again
            _answer(None, f"{type(error).__name__}: {error}")
        else:
            _answer(result)
    os._exit(0)


def _enter_time_namespace(offsets: str) -> None:
    """Offsets finer than a second, which unshare(1) cannot set. The child stands in the new namespace."""
    from tests.helpers import libc

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
