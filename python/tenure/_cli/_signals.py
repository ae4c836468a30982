"""
Signals as events, from the first moment to the last.

All that matter are blocked before the lease is asked for, so none can be lost and none interrupts half a step: until the
command is started they wait in the kernel; then a thread takes them one by one. Only while the command is being started
are they let through, because a program inherits what is blocked; handlers keep those that come just then.

Blocked and ignored by default is not the same: a signal that this process was told to ignore (nohup(1), a shell's `&`)
stays ignored, for the command too. Sources: signal(7), sigwaitinfo(2), execve(2).
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Literal

assert sys.platform != "win32"

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
PASSED_ON = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Event:
    """
    What happened: a signal came, or the lease was lost.

    `sender` is `kernel` for what the terminal sent to its whole foreground process group, `person` for what another
    process sent, None where the system does not say.
    """

    kind: Literal["signal", "lost"]
    number: int = 0
    sender: Literal["kernel", "person"] | None = None


LOST = Event("lost")


class Inbox:
    """Events in their order. Made in the main thread, before any other thread is started: those inherit what is blocked."""

    def __init__(self) -> None:
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._numbers = {number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN}
        # An ignored SIGCHLD would have the kernel throw our command's exit code away. Source: wait(2), notes.
        self._numbers.add(signal.SIGCHLD)
        self._at_first = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        for number in self._numbers:
            signal.signal(number, self._keep)

    def _keep(self, number: int, _: FrameType | None) -> None:
        # Sent by whom is not known here. Rather twice (by the terminal and by us) than not at all.
        self._events.put(Event("signal", number, "person"))

    def put(self, event: Event) -> None:
        """Add an event, from any thread."""
        self._events.put(event)

    def next(self, timeout: float | None) -> Event | None:
        """The next event, waiting up to *timeout* seconds, or without bound; None if there was none."""
        try:
            return self._events.get(timeout=timeout)
        except Empty:
            return None

    def asked_to_end(self) -> int | None:
        """A signal that says "end" and came before the command was started, or None. Does not wait."""
        came = signal.sigpending() & self._numbers & set(ENDING)
        return signal.sigwait(came) if came else None

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """For starting a command with nothing blocked that was not blocked before."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._at_first)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)

    def start(self) -> None:
        """From now on signals become events."""
        threading.Thread(target=self._take, name="tenure-signals", daemon=True).start()

    def _take(self) -> None:
        while True:
            self._events.put(_take_one(self._numbers))


def _take_one(numbers: set[signal.Signals]) -> Event:
    if sys.platform == "darwin":
        # It has no call that says who sent a signal.
        return Event("signal", signal.sigwait(numbers))
    info = signal.sigwaitinfo(numbers)
    # Zero or below: another process. Above: the kernel itself. Source: sigaction(2), si_code.
    return Event("signal", info.si_signo, "kernel" if info.si_code > 0 else "person")
