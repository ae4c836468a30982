"""The life of one `tenure run`: wait for the lease, start the command, stay with it to its end."""

from __future__ import annotations

import sys

assert sys.platform != "win32"

# Below the assertion, so that mypy leaves them out where it holds for nobody.
import contextlib  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from typing import Literal  # noqa: E402

from tenure._cli import _output  # noqa: E402
from tenure._cli._command import Command  # noqa: E402
from tenure._cli._signals import Inbox  # noqa: E402
from tenure._clock import SystemClock  # noqa: E402
from tenure._lease._hold import Hold  # noqa: E402
from tenure._lease._lease import WriterLease  # noqa: E402
from tenure._pidfile import PidFile  # noqa: E402
from tenure.errors import FencedError, StoreError, StoreUnavailableError, WriterBusyError  # noqa: E402

# How long one step of waiting for the lease may keep a signal waiting.
_STEP_S = 0.1
# After so long a person at a terminal wants to know whom we wait for.
_PATIENCE_OF_PEOPLE_S = 1.0


OnLost = Literal["stop", "kill", "continue"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for."""

    lease: WriterLease
    words: tuple[str, ...]
    wait: float
    grace: float
    pass_lifeline: bool
    on_lost: OnLost = "stop"
    pid_file: PidFile | None = None


def attend(plan: Plan, inbox: Inbox) -> int:
    """
    Take the lease, run the command, let go; the exit code.

    Raises:
        WriterBusyError: somebody else has the lease; the command was not started.
        CannotStartError: the command cannot be started.
        FencedError: the lease was lost; the command has ended.
    """
    hold = _acquire(plan, inbox)
    if not isinstance(hold, Hold):
        return hold
    with hold, contextlib.ExitStack() as until_the_end:
        # Asked anew: since the lease was taken this process may have been stopped for an hour.
        hold.check()
        number = inbox.asked_to_end()
        if number is not None:
            return 128 + number
        holds = [hold]
        if plan.pid_file is not None:
            # Ours until the command has its number.
            holds.append(plan.pid_file.acquire())
            until_the_end.callback(plan.pid_file.release)
        environment = {"TENURE_FENCE": str(hold.fence), "TENURE_URL": plan.lease.store.url}
        lifelines = [fd for one in holds if (fd := one.lifeline_fileno()) is not None]
        command = Command.start(plan.words, environment, lifelines if plan.pass_lifeline else [], inbox)
        try:
            if plan.pid_file is not None:
                plan.pid_file.write(command.pid)
            inbox.start()
            code = _stay_with(command, inbox, plan)
        except BaseException:
            # Whatever went wrong with us: the hold ends with this block, and the command must not outlive it.
            command.end()
            command.exit_code()
            raise
        _check_to_the_end(hold)
        return code


def _acquire(plan: Plan, inbox: Inbox) -> Hold | int:
    """
    The hold, or the exit code if a signal came first.

    In short steps, because signals are blocked: a step that was interrupted anywhere might leave the hold with nobody.
    """
    clock = SystemClock()
    started = clock.awake()
    told = not sys.stderr.isatty()
    while True:
        number = inbox.asked_to_end()
        if number is not None:
            return 128 + number
        waited = clock.awake() - started
        left = plan.wait - waited
        try:
            return plan.lease.acquire(max(0.0, min(left, _STEP_S)))
        except WriterBusyError as busy:
            if left <= _STEP_S:
                raise
            if not told and waited > _PATIENCE_OF_PEOPLE_S:
                told = True
                _output.note(f"waiting up to {plan.wait:g} s for {busy.holder}, {busy.judgement.verdict.value}")
        except StoreUnavailableError:
            if left <= _STEP_S:
                raise


def _stay_with(command: Command, inbox: Inbox, plan: Plan) -> int:
    """Until the command has ended: pass signals on, and end it if the lease is lost."""
    clock = SystemClock()
    kill_at: float | None = None
    while not command.has_ended():
        event = inbox.next(None if kill_at is None else max(0.0, kill_at - clock.awake()))
        if command.has_ended():
            break
        if event is None:
            kill_at = None
            command.end()
        elif event.kind == "lost":
            kill_at = _when_lost(command, plan)
        else:
            command.tell(event)
    return command.exit_code()


def _when_lost(command: Command, plan: Plan) -> float | None:
    """Do what was asked for; when to kill the command, if it gets time to end by itself."""
    if plan.on_lost == "continue":
        _output.note("the command goes on without the lease, as asked: what it writes must be fenced by its store")
        return None
    if plan.on_lost == "kill":
        _output.note("killing the command")
        command.end()
        return None
    _output.note(f"stopping the command: TERM now, KILL after {plan.grace:g} s")
    command.ask_to_end()
    return SystemClock().awake() + plan.grace


def _check_to_the_end(hold: Hold) -> None:
    """
    Say so if the command did not have the lease to its end.

    Raises:
        FencedError: it was lost, so what the command did may have been refused, or may have collided.
    """
    try:
        hold.check()
    except FencedError:
        raise
    except StoreError as error:
        _output.note(f"whether the lease was held to the end is not known: {error}")
