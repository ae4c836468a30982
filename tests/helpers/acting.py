"""What an agent does to become odd, or to have odd children."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers import libc
from tests.helpers.asking import current_record, is_current, judge

_TAKEN: list[int] = []


def spawn(comm: str | None = None) -> dict[str, Any]:
    """A forked child that writes its own record and sleeps."""
    return _told_by_a_fork(os.fork, comm)


def spawn_by_raw_clone() -> dict[str, Any]:
    return _told_by_a_fork(libc.clone_without_hooks, None)


def judged_in_a_fork(record: str, raw: bool) -> list[str]:
    """How a child judges *record*."""
    return list(_asked_of_a_fork(raw, lambda: judge(record)))


def record_in_a_new_pid_namespace(raw: bool) -> dict[str, Any]:
    """The child stands in a pid namespace of its own, under the parent's /proc."""
    parent = current_record()
    libc.unshare(libc.CLONE_NEWPID)

    def tell() -> dict[str, Any]:
        record = current_record()
        bare = json.loads(record) | {"nonce": "0" * 32, "start": "1"}
        return {"record": record, "judged": judge(json.dumps(bare), without=["handle", "pidfs"])}

    return {"parent": parent, **_asked_of_a_fork(raw, tell)}


def _asked_of_a_fork(raw: bool, question: Callable[[], Any]) -> Any:
    reading, writing = os.pipe()
    pid = libc.clone_without_hooks() if raw else os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.write(writing, json.dumps(question()).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as told:
        answer = told.read()
    os.waitpid(pid, 0)
    return json.loads(answer)


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
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    while True:
        time.sleep(3600)


def traced() -> dict[str, Any]:
    """A child in a tracing stop, state t."""
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


def watch_through_reuse(pid: int, without: list[Any]) -> list[bool]:
    """A watch on *pid*: at first, after its end, with the number given to another; and whether that was so."""
    from tenure import _core

    last = Path("/proc/sys/kernel/ns_last_pid")
    last.write_text(str(pid - 1), "ascii")
    first = spawn()
    with _core.Watch(first["record"], without=without) as watching:
        before = watching.alive()
        end(first["pid"])
        after = watching.alive()
        last.write_text(str(pid - 1), "ascii")
        second = spawn()
        return [before, after, watching.alive(), first["pid"] == second["pid"]]


def watch_across_fork(record: str) -> list[bool]:
    """What a watch made before a fork says in the child, and then in the parent."""
    from tenure import _core

    with _core.Watch(record) as watching:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if watching.alive() and not watching.wait(0) else 1)
        _, status = os.waitpid(pid, 0)
        return [status == 0, watching.alive()]


def set_comm(name: str) -> None:
    Path("/proc/self/comm").write_bytes(name.encode())


def set_uid(uid: int) -> None:
    # The new user may not be allowed to read where the core is installed.
    importlib.import_module("tenure._core")
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


def wait_in_vfork(fifo: str) -> None:
    """
    Stand in vfork, state D, until somebody opens *fifo*: posix_spawn(3) waits for a child that shares its memory.
    """
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])


def enter_time_namespace_of(pid: int) -> None:
    fd = os.open(f"/proc/{pid}/ns/time", os.O_RDONLY)
    libc.setns(fd, libc.CLONE_NEWTIME)
    os.close(fd)


def leave_time_namespace() -> None:
    """After this, /proc/self/timens_offsets tells of the children and not of this process. Source: time_namespaces(7)."""
    libc.unshare(libc.CLONE_NEWTIME)


def use_up_descriptors(spare: int) -> None:
    """Leave *spare* descriptors to be had."""
    importlib.import_module("tenure._core")
    limit = 64
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with contextlib.suppress(OSError):
        while True:
            _TAKEN.append(os.open("/dev/null", os.O_RDONLY))
    give_back_descriptors(spare)


def give_back_descriptors(count: int) -> None:
    for fd in _TAKEN[:count]:
        os.close(fd)
    del _TAKEN[:count]


def set_environment(name: str, value: str) -> None:
    os.environ[name] = value


def where() -> list[int]:
    return [os.getpid(), os.getuid()]
