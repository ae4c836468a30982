"""What `tenure run` is told, its command is told: once, whenever it comes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure import Verdict, WriterBusyError, WriterLease
from tests.cli.running import (
    TELLER,
    TENURE,
    children,
    descendants,
    ended,
    environment,
    held,
    look,
    started,
    told,
    until_told,
    until_waiting,
    verdict,
)
from tests.helpers import independent
from tests.helpers.capabilities import NEEDS_PID_NAMESPACE
from tests.helpers.namespaces import OWN_PROC
from tests.helpers.processes import PATIENCE, ROOT, until, until_state


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "CONT"])
def test_a_signal_is_passed_on_once_and_the_command_decides_what_it_means(tmp_path: Path, name: str) -> None:
    log = tmp_path / "log"
    with started("run", str(tmp_path / "lease"), "--", *TELLER, str(log)) as process:
        until_told(log, "started")
        process.send_signal(signal.Signals[f"SIG{name}"])
        until_told(log, name)
        process.terminate()
        assert ended(process) == (7, "")
    assert told(log) == ["started", name, "TERM"]


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_a_command_that_dies_of_what_was_passed_on_gives_128_and_its_number(tmp_path: Path, name: str) -> None:
    with started("run", str(tmp_path / "lease"), "--", "sleep", "60") as process:
        until(lambda: children(process.pid) != [] and look(tmp_path / "lease").state == "held", "not started")
        number = signal.Signals[f"SIG{name}"]
        process.send_signal(number)
        assert ended(process) == (128 + number, "")
    assert verdict(tmp_path / "lease")[1] == "released"


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT"])
def test_a_signal_while_waiting_ends_the_wait_and_starts_nothing(tmp_path: Path, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    with held(tmp_path / "lease"):
        words = ("--wait", "3600", str(tmp_path / "lease"), "--", "touch", str(tmp_path / "started"))
        with started("run", *words) as process:
            until_waiting(process.pid)
            process.send_signal(number)
            assert ended(process) == (128 + number, "")
    assert not (tmp_path / "started").exists()


def test_a_signal_while_waiting_that_is_not_about_ending_reaches_the_command_when_it_starts(tmp_path: Path) -> None:
    with held(tmp_path / "lease"):
        words = ("--wait", "30", str(tmp_path / "lease"), "--", "sleep", "60")
        process = subprocess.Popen([*TENURE, "run", *words], cwd=ROOT, env=environment())
        until_waiting(process.pid)
        process.send_signal(signal.SIGUSR1)
    assert process.wait(PATIENCE) == 128 + signal.SIGUSR1


# A signal at one exact moment, sent by the process itself just before or after a step.
AT_A_MOMENT = """
import os, signal, subprocess, sys
from tenure._cli import _app, _attend, _command
from tenure import WriterLease

def sending(step, before):
    def wrapped(*words, **options):
        if before: os.kill(os.getpid(), signal.SIGTERM)
        result = step(*words, **options)
        if not before: os.kill(os.getpid(), signal.SIGTERM)
        return result
    return wrapped

moment = sys.argv[1]
if moment == "after-acquire": WriterLease.acquire = sending(WriterLease.acquire, False)
if moment == "before-start": subprocess.Popen = sending(subprocess.Popen, True)
if moment == "after-start": subprocess.Popen = sending(subprocess.Popen, False)
sys.exit(_app.run(sys.argv[2:]))
"""


@pytest.mark.parametrize("moment", ["after-acquire", "before-start", "after-start"])
def test_a_signal_between_the_lease_and_the_command_is_never_lost(tmp_path: Path, moment: str) -> None:
    words = ("run", str(tmp_path / "lease"), "--", "sh", "-c", "echo > $0; exec sleep 60", str(tmp_path / "started"))
    process = subprocess.Popen([sys.executable, "-c", AT_A_MOMENT, moment, *words], cwd=ROOT, env=environment())
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert verdict(tmp_path / "lease") == (Verdict.GONE, "released")
    if moment == "after-acquire":
        assert not (tmp_path / "started").exists()


def test_what_we_are_told_to_ignore_stays_ignored_for_the_command_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ("run", str(tmp_path / "lease"), "--", "sh", "-c", 'echo started >> "$0"; exec sleep 60', str(log))
    with started(*words, prefix=("sh", "-c", 'trap "" HUP; exec "$@"', "sh")) as process:
        until_told(log, "started")
        process.send_signal(signal.SIGHUP)
        for pid in children(process.pid):
            os.kill(pid, signal.SIGHUP)
        process.terminate()
        assert ended(process)[0] == 128 + signal.SIGTERM


# Brings `tenure run` to the foreground again once it has stopped and the file $GO is there.
WITH_JOB_CONTROL = ("-m", "-c", '"$@"; until [ -e "$GO" ]; do sleep 0.01; done; fg')
# In one process group with what it runs, and deaf to the keys.
WITHOUT = ("-c", 'trap : INT QUIT; "$@"; true')


class Terminal:
    """A shell on a terminal of its own, with `tenure run` in the foreground."""

    def __init__(self, shell: tuple[str, ...], words: tuple[str, ...], go: Path) -> None:
        import pty

        self.shell, self.master = pty.fork()
        if self.shell == 0:
            os.chdir(ROOT)
            os.execve("/bin/sh", ["sh", *shell, "sh", *TENURE, *words], environment(GO=str(go)))

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)


@contextmanager
def on_a_terminal(shell: tuple[str, ...], *words: str, go: Path = Path("/")) -> Iterator[Terminal]:
    terminal = Terminal(shell, words, go)
    try:
        yield terminal
    finally:
        for pid in [*descendants(terminal.shell), terminal.shell]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.close(terminal.master)
        until(lambda: os.waitpid(terminal.shell, os.WNOHANG)[0] != 0, "the shell does not end")


@pytest.mark.parametrize(("key", "name"), [(b"\x03", "INT"), (b"\x1c", "QUIT")])
def test_what_a_terminal_sends_reaches_the_command_once(tmp_path: Path, key: bytes, name: str) -> None:
    log = tmp_path / "log"
    with on_a_terminal(WITHOUT, "run", str(tmp_path / "lease"), "--", *TELLER, str(log)) as terminal:
        until_told(log, "started")
        (run,) = children(terminal.shell)
        # Stopped until the command has dealt with the first, since two that come at once count as one.
        os.kill(run, signal.SIGSTOP)
        until_state(run, "T")
        terminal.type(key)
        until_told(log, name)
        os.kill(run, signal.SIGCONT)
        # Signals that wait are taken in the order of their numbers, and those of the keys are low.
        until_told(log, "CONT")
        assert told(log) == ["started", name, "CONT"]
        os.kill(run, signal.Signals[f"SIG{name}"])
        until(lambda: told(log).count(name) == 2, "one from a person is passed on")
        os.kill(run, signal.SIGTERM)
        until_told(log, "TERM")


def test_what_a_terminal_sends_is_passed_on_to_a_command_that_has_left_its_reach(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ("run", str(tmp_path / "lease"), "--", "setsid", *TELLER, str(log))
    with on_a_terminal(WITHOUT, *words) as terminal:
        until_told(log, "started")
        terminal.type(b"\x03")
        until_told(log, "INT")
        (run,) = children(terminal.shell)
        os.kill(run, signal.SIGTERM)
        until_told(log, "TERM")


def test_ctrl_z_stops_both_and_the_lease_is_kept(tmp_path: Path) -> None:
    log, lease, go = tmp_path / "log", tmp_path / "lease", tmp_path / "go"
    words = ("run", "--ttl", "0.2", "--skew", "0", str(lease), "--", *TELLER, str(log))
    with on_a_terminal(WITH_JOB_CONTROL, *words, go=go) as terminal:
        until_told(log, "started")
        (run,) = children(terminal.shell)
        (command,) = children(run)
        terminal.type(b"\x1a")
        until_state(run, "T")
        until_state(command, "T")
        # Much longer than its ttl.
        with pytest.raises(WriterBusyError):
            WriterLease(lease).acquire(timeout=1.0)
        assert independent.state(run) == independent.state(command) == "T"
        go.touch()
        until_told(log, "CONT")
        os.kill(run, signal.SIGTERM)
        until_told(log, "TERM")
    assert look(lease).fence == 1


@NEEDS_PID_NAMESPACE
def test_as_process_1_of_a_namespace_it_passes_the_signal_and_the_exit_code_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started("run", str(tmp_path / "lease"), "--", *TELLER, str(log), prefix=OWN_PROC) as process:
        until_told(log, "started")
        (run,) = children(process.pid)
        assert independent.state(run) in "SR"
        os.kill(run, signal.SIGHUP)
        until_told(log, "HUP")
        os.kill(run, signal.SIGTERM)
        assert ended(process)[0] == 7


@NEEDS_PID_NAMESPACE
def test_as_process_1_of_a_namespace_it_reaps_whom_others_left(tmp_path: Path) -> None:
    script = """
        (sh -c 'sleep 0.05 & echo $! > "$0.pid"' "$0")
        until [ ! -e /proc/$(cat "$0.pid") ]; do sleep 0.01; done
        exit 5
    """
    with started(
        "run", str(tmp_path / "lease"), "--", "sh", "-c", script, str(tmp_path / "log"), prefix=OWN_PROC
    ) as process:
        assert ended(process) == (5, "")
