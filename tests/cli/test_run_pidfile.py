"""`tenure run --pidfile` and `--on-lost`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tenure import WriterLease
from tests.cli.running import children, started, tenure
from tests.cli.test_status import shown
from tests.helpers.processes import PATIENCE, until


def number_in(path: Path) -> int:
    """As every old tool reads it."""
    try:
        return int(path.read_text() or 0)
    except FileNotFoundError:
        return 0


def test_the_pid_file_names_the_command_and_goes_with_it(tmp_path: Path) -> None:
    url, path = str(tmp_path / "lease"), tmp_path / "app.pid"
    with started("run", "--pidfile", str(path), url, "--", "sleep", "1000") as running:
        until(lambda: number_in(path) in children(running.pid), "the command's number to be in the file")
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 128 + signal.SIGTERM
    assert not path.exists()


def test_a_second_run_with_the_same_pid_file_is_busy_and_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "app.pid"
    with started("run", "--pidfile", str(path), str(tmp_path / "a"), "--", "sleep", "1000") as running:
        until(lambda: number_in(path) in children(running.pid), "the command's number to be in the file")
        done = tenure("run", "--pidfile", str(path), str(tmp_path / "b"), "--", "true")
        assert (done.returncode, number_in(path) in children(running.pid)) == (75, True)


def test_a_killed_run_whose_command_lives_keeps_its_pid_file(tmp_path: Path) -> None:
    path = tmp_path / "app.pid"
    with started("run", "--pidfile", str(path), str(tmp_path / "a"), "--", "sleep", "1000") as running:
        until(lambda: number_in(path) in children(running.pid), "the command's number to be in the file")
        command = number_in(path)
        running.kill()
        running.wait(PATIENCE)
        assert tenure("run", "--pidfile", str(path), str(tmp_path / "b"), "--", "true").returncode == 75
        os.kill(command, signal.SIGKILL)
        until(
            lambda: tenure("run", "--pidfile", str(path), str(tmp_path / "b"), "--", "true").returncode == 0,
            "the file to be taken over once the command is dead",
        )
    assert not path.exists()


@pytest.mark.parametrize(("what", "code"), [("stop", 1), ("kill", 1)])
def test_a_lost_lease_ends_the_command_as_asked(tmp_path: Path, what: str, code: int) -> None:
    url = str(tmp_path / "lease")
    with started("run", "--ttl", "0.3", "--on-lost", what, url, "--", "sleep", "1000") as running:
        until(lambda: WriterLease(url).inspect().state == "held", "the command to start")
        WriterLease(url).force_release(shown(url)["nonce"], even_if_alive=True)
        assert running.wait(PATIENCE) == code


def test_a_command_that_may_go_on_without_the_lease_does(tmp_path: Path) -> None:
    url, told = str(tmp_path / "lease"), tmp_path / "told"
    script = f"while [ ! -e {tmp_path}/end ]; do sleep 0.05; done; echo $TENURE_FENCE > {told}"
    with started("run", "--ttl", "0.3", "--on-lost", "continue", url, "--", "sh", "-c", script) as running:
        until(lambda: WriterLease(url).inspect().state == "held", "the command to start")
        WriterLease(url).force_release(shown(url)["nonce"], even_if_alive=True)
        assert json.loads(json.dumps(shown(url)))["state"] == "free"
        (tmp_path / "end").touch()
        assert (running.wait(PATIENCE), told.read_text()) == (1, "1\n")
