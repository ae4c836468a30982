"""Scripts branch on exit codes, and people read one message: B105, B106."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tenure import _lease, errors
from tenure._cli import _app
from tests.cli.running import ended, environment, held, look, only_the_error, started, take_over, tenure, verdict
from tests.helpers.processes import until


def test_b105_busy_is_75_and_the_command_is_not_started(tmp_path: Path) -> None:
    with held(tmp_path / "lease"):
        done = tenure("run", str(tmp_path / "lease"), "--", "touch", str(tmp_path / "started"))
    assert (done.returncode, done.stdout) == (75, "")
    assert not (tmp_path / "started").exists()


def test_b106_busy_says_who_doing_what_since_when_and_whether_it_lives(tmp_path: Path) -> None:
    with held(tmp_path / "lease", label="nightly import"):
        seen = look(tmp_path / "lease")
        done = tenure("run", str(tmp_path / "lease"), "--", "true")
    message, hint = only_the_error(done.stderr)
    for fact in (seen.holder_for_people(), "nightly import", str(seen.since), "alive", "lifeline_held"):
        assert f"`{fact}`" in message
    assert hint is not None
    assert "tenure status" in hint


def test_b106_busy_with_an_unknown_holder_says_when_to_come_back(tmp_path: Path) -> None:
    (tmp_path / "lease").mkdir()
    (tmp_path / f"lease/{1:020}").write_bytes(b"torn {")
    done = tenure("run", str(tmp_path), "--", "true")
    assert done.returncode == 75
    message, _ = only_the_error(done.stderr)
    assert "retry_after_s=`40.0`" in message
    assert "malformed" in message


@pytest.mark.parametrize("code", [0, 1, 3, 75, 255])
def test_the_commands_own_code_is_passed_on(tmp_path: Path, code: int) -> None:
    done = tenure("run", str(tmp_path / "lease"), "--", "sh", "-c", f"exit {code}")
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize("name", ["TERM", "KILL", "ABRT"])
def test_a_command_that_died_of_a_signal_gives_128_and_its_number(tmp_path: Path, name: str) -> None:
    done = tenure("run", str(tmp_path / "lease"), "--", "sh", "-c", f"kill -{name} $$")
    assert (done.returncode, done.stderr) == (128 + signal.Signals[f"SIG{name}"], "")


def test_a_command_that_was_not_found_gives_127_and_the_lease_is_given_back(tmp_path: Path) -> None:
    done = tenure("run", str(tmp_path / "lease"), "--", "no-such-command-anywhere")
    assert done.returncode == 127
    message, _ = only_the_error(done.stderr)
    assert "`no-such-command-anywhere`" in message
    assert verdict(tmp_path / "lease")[1] == "released"


def test_a_command_that_cannot_be_executed_gives_126(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program", encoding="ascii")
    done = tenure("run", str(tmp_path / "lease"), "--", str(tmp_path / "text"))
    assert done.returncode == 126
    only_the_error(done.stderr)


def test_b105_fenced_is_1_and_not_75(tmp_path: Path) -> None:
    with started("run", "--ttl", "0.3", str(tmp_path / "lease"), "--", "sleep", "60") as process:
        until(lambda: look(tmp_path / "lease").state == "held", "the lease is not taken")
        take_over(tmp_path / "lease")
        code, stderr = ended(process)
    assert code == 1
    assert "another writer has taken over. ours=`1`, current=`2`" in stderr


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-command"],
        ["run", "somewhere"],
        ["run", "somewhere", "--"],
        ["run", "somewhere", "--wait", "1", "true"],
        ["run", "--wait", "soon", "somewhere", "true"],
        ["run", "--wait", "-1", "somewhere", "true"],
        ["run", "--wait", "nan", "somewhere", "true"],
        ["run", "--ttl", "0", "somewhere", "true"],
        ["run", "--label", "two\nlines", "somewhere", "true"],
        ["run", "gopher://x", "--", "true"],
        ["status"],
        ["status", "gopher://x"],
        ["judge"],
        ["judge", "--host-id", "", "{}"],
    ],
    ids=" ".join,
)
def test_b105_wrong_usage_is_2(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["tenure", *words],
        executable=str(Path(sysconfig.get_path("scripts"), "tenure")),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: " in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(errors.__all__))
def test_b105_each_error_exits_with_its_own_code_and_says_message_and_hint(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = getattr(errors, name)

    def fail(_: Any) -> None:
        raise kind("what happened", hint="what to do")

    monkeypatch.setattr(_lease._lease.WriterLease, "inspect", fail)
    assert _app.run(["status", "somewhere"]) == kind.exit_code
    out, err = capsys.readouterr()
    assert (out, only_the_error(err)) == ("", ("what happened", "what to do"))


def test_without_a_word_it_shows_what_there_is() -> None:
    done = tenure()
    for word in ("judge", "run", "status", "whoami", "Exit codes:"):
        assert word in done.stdout + done.stderr


def test_a_store_that_cannot_be_read_is_1_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory", encoding="ascii")
    done = tenure("status", str(tmp_path / "file"))
    assert (done.returncode, done.stdout) == (1, "")
    only_the_error(done.stderr)


def test_a_path_cannot_steer_the_terminal() -> None:
    done = tenure("judge", "/nowhere/\x1b]0;title\x07")
    assert "path=`/nowhere/�]0;title�`" in done.stderr


def test_the_help_lists_the_exit_codes() -> None:
    shown = tenure("--help").stdout
    for code in ("0", "1", "2", "3, 4", "75", "78", "126, 127", "128+n"):
        assert f"\n    {code} " in shown, code


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_reader_that_has_seen_enough_gets_no_traceback(option: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = tenure("whoami", *option, capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
