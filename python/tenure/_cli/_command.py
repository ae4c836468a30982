"""The command of `tenure run`: started with the lease in its environment, told what we are told, ended when we must."""

from __future__ import annotations

import sys

assert sys.platform != "win32"

# Below the assertion, so that mypy leaves them out where it holds for nobody.
import os  # noqa: E402
import signal  # noqa: E402
import subprocess  # noqa: E402
from collections.abc import Iterator, Mapping, Sequence  # noqa: E402
from contextlib import contextmanager  # noqa: E402

from tenure._cli._signals import Event, Inbox  # noqa: E402
from tenure.errors import Error  # noqa: E402

# What a terminal sends goes to its whole foreground process group, in which the command is beside us.
_SENT_TO_THE_GROUP = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)


class CannotStartError(Error):
    """The command cannot be started. Exits as shells do: 127 if it was not found, 126 if it was."""

    kind = "cannot_start"

    def __init__(self, name: str, cause: OSError) -> None:
        missing = isinstance(cause, FileNotFoundError)
        what = "was not found" if missing else "cannot be started"
        super().__init__(
            f"the command {what}. command=`{name}`, cause=`{cause.strerror}`",
            hint="it is started without a shell; write `-- sh -c '…'` for one",
        )
        self.exit_code = 127 if missing else 126  # type: ignore[misc]  # the class says 1, this failure knows better


class Command:
    """A started command. Only the main thread talks to it, so its number cannot become another's under our hands."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @staticmethod
    def start(words: Sequence[str], environment: Mapping[str, str], lifelines: Sequence[int], inbox: Inbox) -> Command:
        """
        Start *words*, which inherit the descriptors *lifelines* and whatever we were given to pass on.

        Raises:
            CannotStartError: as a shell would say with 126 or 127.
        """
        # No preexec_fn, ever: it runs our hooks for forked children, and those close the lifeline. And no pass_fds, which
        # would close what we were given for the command: a socket, a lock, the lifeline of a `tenure run` around us.
        with inbox.let_through(), _inheritable(lifelines):
            try:
                # What it is told to run is what it is for.
                process = subprocess.Popen(words, env={**os.environ, **environment}, close_fds=False)  # noqa: S603
                return Command(process)
            except OSError as error:
                raise CannotStartError(words[0], error) from error

    @property
    def pid(self) -> int:
        """Its number, in our pid namespace."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Whether it has; reaps it, and as process 1 whoever else was left to us."""
        ended = self._process.poll() is not None
        if not ended and os.getpid() == 1:
            _reap_orphans(self._process.pid)
        return ended

    def exit_code(self) -> int:
        """Its own, or 128 + the signal it died of."""
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def tell(self, event: Event) -> None:
        """Pass a signal on, unless the command has it already."""
        if event.number != signal.SIGCHLD and not self._has_it_already(event):
            self._process.send_signal(event.number)

    def ask_to_end(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def end(self) -> None:
        """SIGKILL."""
        self._process.send_signal(signal.SIGKILL)

    def _has_it_already(self, event: Event) -> bool:
        if event.number not in _SENT_TO_THE_GROUP or event.sender == "person":
            return False
        try:
            beside_us = os.getpgid(self._process.pid) == os.getpgrp()
        except OSError:
            return False
        return beside_us and (event.sender == "kernel" or _in_the_foreground())


@contextmanager
def _inheritable(descriptors: Sequence[int]) -> Iterator[None]:
    """For a moment in which nobody else starts a process, descriptors that our children get too."""
    try:
        for fd in descriptors:
            os.set_inheritable(fd, True)
        yield
    finally:
        for fd in descriptors:
            os.set_inheritable(fd, False)


def _in_the_foreground() -> bool:
    """Whether a terminal's Ctrl-C reaches our process group: a good guess where the system does not say who sent it."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _reap_orphans(command: int) -> None:
    """Who loses its parent in a pid namespace becomes a child of its process 1. Source: pid_namespaces(7)."""
    if sys.platform == "darwin":
        return
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        # The command's own end is for `poll` to see.
        if found is None or found.si_pid == command:
            return
        os.waitpid(found.si_pid, os.WNOHANG)
