"""The commands of a datastore, as a script and as a person see them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tenure import Datastore
from tests.cli.running import TENURE, environment, tenure
from tests.helpers.processes import ROOT, Agent


def told(*words: str, **options: Any) -> list[dict[str, Any]]:
    """What a command says with --json, one object a line."""
    done = tenure(*words, "--json", **options)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A datastore and a checkout of it, made by the commands."""
    assert tenure("init", str(tmp_path / "data")).returncode == 0
    assert tenure("pull", "--from", str(tmp_path / "data"), "-C", str(tmp_path / "here")).returncode == 0
    return tmp_path


def put(place: Path, name: str, data: str, *words: str, checkout: str = "here") -> dict[str, Any]:
    (place / checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (place / checkout / name).write_text(data)
    return told("put", "-C", str(place / checkout), name, *words)[0]


def test_what_is_put_in_one_checkout_is_pulled_in_another(place: Path) -> None:
    first = put(place, "notes/a.txt", "hello", "-m", "say hello")
    assert first["version"] == "2"
    (pulled,) = told("pull", "--from", str(place / "data"), "-C", str(place / "there"))
    assert (pulled["after"], pulled["files"], pulled["recovered"]) == ("2", 1, None)
    assert (place / "there" / "notes" / "a.txt").read_text() == "hello"
    (line,) = told("log", str(place / "there"))
    assert (line["version"], line["message"], line["count"], line["kind"]) == ("2", "say hello", 1, "commit")
    (listed,) = told("ls", str(place / "data"))
    assert (listed["name"], listed["size"], listed["version"]) == ("notes/a.txt", 5, "2")


def test_a_command_finds_the_checkout_from_inside_it(place: Path) -> None:
    put(place, "notes/a.txt", "hello")
    (place / "here" / "notes" / "b.txt").write_text("more")
    done = tenure("put", str(place / "here" / "notes" / "b.txt"), cwd=place / "here" / "notes")
    assert done.returncode == 0, done.stderr
    assert {one["name"] for one in told("ls", str(place / "data"))} == {"notes/a.txt", "notes/b.txt"}


def test_content_comes_from_standard_input_and_goes_to_standard_output(place: Path) -> None:
    assert tenure("put", "-C", str(place / "here"), "--from", "-", "x", input="piped").returncode == 0
    assert tenure("get", str(place / "data"), "x").stdout == "piped"
    assert tenure("get", str(place / "here"), "x", "-o", str(place / "copy")).returncode == 0
    assert (place / "copy").read_text() == "piped"
    assert sorted(path.name for path in place.iterdir()) == ["copy", "data", "here"]


def test_old_versions_are_read_until_they_are_given_up(place: Path) -> None:
    old = put(place, "f", "one")["version"]
    put(place, "f", "two")
    assert tenure("get", str(place / "data"), "f", "--at", old).stdout == "one"
    (done,) = told("retain", "-C", str(place / "here"), "--keep", "1")
    assert done["skipped"] is None
    refused = tenure("get", str(place / "data"), "f", "--at", old)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "no version" in refused.stderr
    assert tenure("get", str(place / "data"), "f").stdout == "two"


def test_a_file_is_removed(place: Path) -> None:
    put(place, "f", "one")
    assert told("rm", "-C", str(place / "here"), "f")[0]["version"] == "4"
    assert told("ls", str(place / "data")) == []
    assert not (place / "here" / "f").exists()


def test_a_commit_with_an_id_lands_once(place: Path) -> None:
    versions = {put(place, "f", "x", "--id", "nightly-1")["version"] for _ in range(2)}
    assert versions == {"2"}


def test_somebody_at_work_means_75_and_no_file_changes(place: Path) -> None:
    put(place, "f", "committed")
    with Agent() as agent:
        agent.ask("open_checkout", store=str(place / "data"), path=str(place / "here"))
        agent.ask("write")
        agent.ask("put", name="f", data="under way")
        for words in (["pull"], ["put", "f"], ["recover"], ["retain", "--keep", "1"]):
            done = tenure(*words[:1], "-C", str(place / "here"), *words[1:])
            assert done.returncode == 75, (words, done)
            assert done.stdout == ""
        assert (place / "here" / "f").read_text() == "under way"
        agent.kill()
        agent.process.wait()
    done = tenure("recover", "-C", str(place / "here"), "--json")
    assert "taken over" in done.stderr
    recovered = json.loads(done.stdout)
    assert (len(recovered["interrupted"]), recovered["restored"]) == (1, 1)
    assert [Path(moved).name for moved in recovered["moved_aside"]] == ["f"]
    assert (place / "here" / "f").read_text() == "committed"


def test_damage_is_named_and_means_1(place: Path) -> None:
    assert tenure("verify", str(place / "data")).stdout == "undamaged\n"
    put(place, "f", "x" * 10_000)
    datastore = Datastore(place / "data")
    (key,) = datastore.blobs.names()
    (place / "data" / key).write_text("y" * 10_000)
    done = tenure("verify", "--json", str(place / "here"))
    assert done.returncode == 1
    assert [json.loads(line)["key"] for line in done.stdout.splitlines()] == [key]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["put", "../x"], "'..'"),
        (["put", "nothing"], "no file"),
        (["put", "--from", "/etc/hostname", "a", "b"], "one NAME"),
        (["rm", "nothing"], "no file"),
        (["retain"], "--keep"),
        (["retain", "--older-than", "soon"], "is not a time"),
    ],
)
def test_wrong_usage_says_what_is_wrong_and_means_2(place: Path, words: list[str], said: str) -> None:
    done = tenure(words[0], "-C", str(place / "here"), *words[1:])
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert told("log", "--all", str(place / "data")) == [] or words[0] != "retain"


def test_where_there_is_no_checkout_it_says_how_to_make_one(tmp_path: Path) -> None:
    done = tenure("pull", "-C", str(tmp_path))
    assert done.returncode == 2
    assert "tenure pull --from URL" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_no_datastore_it_says_how_to_make_one(tmp_path: Path) -> None:
    done = tenure("ls", str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "tenure init" in done.stderr


def on_a_terminal(*words: str) -> str:
    """What a command shows on a terminal, both streams."""
    master, slave = pty.openpty()
    try:
        command = subprocess.Popen(
            [*TENURE, *words], stdout=slave, stderr=slave, stdin=slave, cwd=ROOT, env=environment(TERM="xterm")
        )
        os.close(slave)
        shown = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        command.wait()
    finally:
        os.close(master)
    return shown.decode(errors="replace")


def test_long_work_shows_a_bar_on_a_terminal_and_none_in_a_pipe(place: Path) -> None:
    put(place, "f", "x")
    words = ("pull", "--from", str(place / "data"), "-C", str(place / "there"))
    assert "catching up" in on_a_terminal(*words)
    done = tenure("pull", "--from", str(place / "data"), "-C", str(place / "elsewhere"))
    assert (done.stdout, done.stderr) == ("version 2, 1 files changed\n", "")


def test_names_that_could_steer_a_terminal_cannot_even_be_put(place: Path) -> None:
    done = tenure("put", "-C", str(place / "here"), "--from", "/dev/null", "a\x1b[2Jb")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
