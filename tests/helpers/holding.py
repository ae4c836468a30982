"""What an agent does with a lease, from where it stands; plain JSON on both sides."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tenure

_holds: list[tenure.Hold] = []


def take(store: str, timeout: float = 0.0, **options: Any) -> dict[str, Any]:
    """Acquire; the grant, or what the refusal said."""
    import tenure

    try:
        hold = tenure.WriterLease(store, **options).acquire(timeout)
    except tenure.Error as error:
        return told(error)
    _holds.append(hold)
    return {"fence": hold.fence, "nonce": hold.nonce}


def try_often(store: str, times: int) -> list[list[str]]:
    """What the evidence was at each of *times* attempts; a grant ends them."""
    answers = []
    for _ in range(times):
        answer = take(store)
        answers.append([answer.get("kind", "granted"), answer.get("verdict", ""), answer.get("reason", "")])
        if "fence" in answer and "kind" not in answer:
            break
    return answers


def check_hold() -> str:
    return _outcome(_holds[-1].check)


def renew_hold() -> str:
    return _outcome(_holds[-1].renew)


def release_hold() -> str:
    return _outcome(_holds[-1].release)


def look_at(store: str) -> dict[str, Any]:
    import tenure

    status = tenure.WriterLease(store).inspect()
    judgement = status.judgement
    return {
        "state": status.state,
        "fence": status.fence,
        "verdict": judgement and judgement.verdict.value,
        "reason": judgement and judgement.reason,
        "beat": status.beat,
        "retry_after_s": status.retry_after_s,
        "problem": status.problem,
    }


def told(error: Any) -> dict[str, Any]:
    judgement = getattr(error, "judgement", None)
    return {
        "kind": error.kind,
        "exit_code": error.exit_code,
        "message": str(error),
        "fence": getattr(error, "fence", None),
        "retry_after_s": getattr(error, "retry_after_s", None),
        "verdict": judgement.verdict.value if judgement else "",
        "reason": judgement.reason if judgement else "",
    }


def in_a_fork(call: str) -> str:
    """Have a forked child do *call* and leave; its answer."""
    return _answer_of_a_fork(globals()[call])


def taken_in_a_fork(store: str) -> str:
    """Have a forked child acquire, and end while it holds; its fence, or why it has none."""

    def take_it() -> str:
        answer = take(store)
        return str(answer.get("kind") or answer["fence"])

    return _answer_of_a_fork(take_it)


def _answer_of_a_fork(call: Callable[[], object]) -> str:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.write(writing, str(call()).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


def fork_a_sleeper() -> int:
    """A forked child that lives on, as a daemon of ours would, and is nobody's child when we end."""
    pid = os.fork()
    if pid == 0:
        _sleep()
    return pid


def leave_by(how: str) -> int:
    """The exit code of a forked child that leaves in one of the ways in which Python code ends."""
    pid = os.fork()
    if pid == 0:
        try:
            _leave(how)
        except SystemExit as left:
            os._exit(int(left.code or 0))
        except BaseException:  # noqa: BLE001  as the interpreter would
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _leave(how: str) -> None:
    import gc

    if how == "collected":
        _holds.clear()
        gc.collect()
    elif how == "exit":
        sys.exit(3)
    elif how == "exception":
        raise RuntimeError("the child fails")
    elif how == "release":
        _holds[-1].release()
    elif how == "with":
        with _holds[-1]:
            pass


def carry_on() -> int:
    """A command that inherited the lifeline and outlives us; its pid."""
    fd = _holds[-1].lifeline_fileno()
    assert fd is not None
    return subprocess.Popen(["sleep", "600"], pass_fds=[fd], start_new_session=True).pid


def start_a_command() -> int:
    """An ordinary command, started without a thought of leases; its pid."""
    return subprocess.Popen(["sleep", "600"], start_new_session=True).pid


def close_every_descriptor() -> None:
    """What daemon libraries do. Not those over which the agent talks."""
    # The agent is the program itself here; importing it again would make a second one.
    keep = vars(sys.modules["__main__"])["REPLIES"]
    os.closerange(3, keep)
    os.closerange(keep + 1, 256)


def _outcome(call: Any) -> str:
    import tenure

    try:
        call()
    except tenure.Error as error:
        return str(error.kind)
    return "ok"


def _sleep() -> None:
    import signal

    with contextlib.suppress(BaseException):
        signal.pause()
    os._exit(0)
