"""`tenure judge` answers for any record, and `tenure whoami` gives one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure import ProcessIdentity
from tests.cli.running import TENURE, environment, held, only_the_error, tenure
from tests.helpers import independent
from tests.helpers.processes import PATIENCE, ROOT, reaped, sleeping, stopped
from tests.helpers.records import changed

ALIVE, GONE, UNKNOWN = 0, 3, 4


def judged(record: str, *options: str, **how: Any) -> tuple[int, str, str]:
    """Exit code, verdict and reason."""
    done = tenure("judge", "--json", *options, record, **how)
    assert done.stderr == ""
    fields = json.loads(done.stdout)
    assert list(fields) == ["v", "verdict", "reason", "evidence", "detail", "sentence"]
    assert fields["v"] == 1
    return done.returncode, fields["verdict"], fields["reason"]


def test_a_living_process_is_0_and_one_that_has_ended_is_3() -> None:
    with sleeping() as subject:
        assert judged(subject.record)[:2] == (ALIVE, "alive")
    with reaped() as subject:
        assert judged(subject.record)[:2] == (GONE, "gone")


def test_another_host_is_4() -> None:
    record = changed(ProcessIdentity.current().to_json(), host="f" * 32)
    assert judged(record) == (UNKNOWN, "unknown", "other_host")


@pytest.mark.parametrize("by", ["text", "file", "stdin"])
def test_a_record_is_text_a_file_or_stdin(tmp_path: Path, by: str) -> None:
    record = ProcessIdentity.current().to_json()
    (tmp_path / "record").write_text(record, encoding="ascii")
    word = {"text": record, "file": str(tmp_path / "record"), "stdin": "-"}[by]
    assert judged(word, input=record)[0] == ALIVE


def test_a_whole_claim_is_judged_by_its_holder(tmp_path: Path) -> None:
    with held(tmp_path / "lease"):
        claim = tmp_path / f"lease/lease/{1:020}"
        assert judged(str(claim))[0] == ALIVE
        fields = json.loads(claim.read_text("utf-8"))
        assert judged(json.dumps(fields | {"holder": None})) == (UNKNOWN, "unknown", "no_identity")


@pytest.mark.parametrize(
    "record",
    ["", "{", "{}", "nonsense", "[]", "null", '{"v":1,"pid":"x"}', '{"holder":7}', '{"holder":' * 5000, "\udcff"],
    ids=lambda text: text[:20].encode("ascii", "replace").decode(),
)
def test_a_bad_record_is_unknown_and_says_what_is_wrong(record: str) -> None:
    done = tenure("judge", "-", input=record, errors="surrogateescape")
    assert (done.returncode, done.stderr) == (UNKNOWN, "")
    assert "verdict   unknown · malformed" in done.stdout
    assert "  detail    " in done.stdout


def test_a_record_of_a_newer_version_is_unknown_and_says_upgrade() -> None:
    done = tenure("judge", changed(ProcessIdentity.current().to_json(), v=2))
    assert done.returncode == UNKNOWN
    assert "upgrade" in done.stdout


def test_endless_input_is_read_to_a_bound_and_no_further() -> None:
    with subprocess.Popen(
        [*TENURE, "judge", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        # More than it reads and less than a pipe holds; the end never comes.
        process.stdin.write("{" + " " * 40_000)
        process.stdin.flush()
        assert process.wait(PATIENCE) == UNKNOWN
        process.stdin.close()


def test_a_file_that_is_not_there_is_1_and_no_verdict() -> None:
    done = tenure("judge", "/nowhere/record")
    assert (done.returncode, done.stdout) == (1, "")
    only_the_error(done.stderr)


def test_the_operators_word_about_the_host_turns_another_boot_into_gone() -> None:
    record = changed(
        ProcessIdentity.current(host_id="machine-7").to_json(), boot="00000000-0000-4000-8000-000000000000"
    )
    assert judged(record, "--host-id", "machine-7") == (UNKNOWN, "unknown", "other_boot")
    assert judged(record, "--host-id", "machine-7", "--host-id-is-unique") == (GONE, "gone", "rebooted")


def test_judging_leaves_a_stopped_process_stopped() -> None:
    with stopped() as subject:
        assert judged(subject.record)[0] == ALIVE
        assert independent.state(subject.pid) == "T"


def test_b36_no_sub_command_ends_a_holder() -> None:
    # What stops a stranger cannot go wrong where nothing stops anybody.
    listed = tenure("--help").stdout.split("Commands:")[1].split("Exit codes:")[0]
    assert [line.split()[0] for line in listed.splitlines() if line.strip()] == [
        "doctor",
        "get",
        "history",
        "init",
        "judge",
        "log",
        "ls",
        "pull",
        "put",
        "recover",
        "release",
        "retain",
        "rm",
        "run",
        "status",
        "verify",
        "whoami",
    ]


def test_whoami_gives_a_record_that_judge_understands() -> None:
    done = tenure("whoami", "--json")
    fields = json.loads(done.stdout)
    assert list(fields) == ["v", "host_name", "identity", "capabilities"]
    assert set(fields["capabilities"]) <= {"handle", "pidfd", "pidfs", "proc"}
    # The process that said so has ended since.
    assert judged(json.dumps(fields["identity"]))[0] in (GONE, UNKNOWN)


def test_whoami_says_for_each_kind_of_evidence_whether_it_is_there() -> None:
    out = tenure("whoami").stdout
    for kind in json.loads(tenure("whoami", "--json").stdout)["capabilities"]:
        assert f"yes  {kind}" in out
    assert out.splitlines()[0].startswith(f"{os.uname().nodename}/")


def test_each_reason_has_a_sentence() -> None:
    from tenure._cli._words import SENTENCES
    from tests.house.test_docs import literal

    assert set(SENTENCES) == literal("Reason")
    assert all(text[0].isupper() or text[0] == "/" for text in SENTENCES.values())
    assert all(text.endswith(".") for text in SENTENCES.values())


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_a_plain_install_says_in_one_line_what_it_lacks(missing: str) -> None:
    blocked = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "from tenure._cli import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", blocked, "status", "somewhere"],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "pip install 'tenure[cli]'" in done.stderr


def test_the_door_of_the_command_imports_nothing_heavy() -> None:
    code = "import sys; from tenure._cli import main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"click", "rich"} & set(loaded) == set()
