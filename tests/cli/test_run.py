"""A command runs under the lease, and only under the lease."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tenure import Verdict, WriterLease
from tests.cli.running import (
    children,
    ended,
    environment,
    held,
    look,
    only_the_error,
    started,
    take_over,
    tenure,
    told,
    until_told,
    until_waiting,
    verdict,
)
from tests.helpers.processes import PATIENCE, ROOT, until

# Appends a line about itself to $1 every hundredth of a second, TERM or no TERM.
STUBBORN = 'trap "echo TERM >> $0" TERM; echo started >> $0; for _ in $(seq 6000); do sleep 0.01; done'


def test_the_command_finds_fence_and_url_in_its_environment(tmp_path: Path) -> None:
    url = (tmp_path / "lease").as_uri()
    for fence in ("1", "2"):
        done = tenure("run", url, "--", "sh", "-c", 'echo "$TENURE_FENCE $TENURE_URL"')
        assert done.stdout == f"{fence} {url}\n"


def test_a_plain_path_is_a_file_url_that_still_means_the_same_elsewhere(tmp_path: Path) -> None:
    done = tenure("run", "lease", "--", "sh", "-c", 'echo "$TENURE_URL"', cwd=tmp_path)
    assert done.stdout == f"{(tmp_path / 'lease').as_uri()}\n"


def test_the_lease_is_held_while_the_command_runs_and_given_back_afterwards(tmp_path: Path) -> None:
    inner = [sys.executable, "-m", "tenure", "status", "--json", str(tmp_path / "lease")]
    done = tenure("run", "--label", "asking", str(tmp_path / "lease"), "--", *inner)
    seen = json.loads(done.stdout)
    assert (seen["state"], seen["reason"], seen["label"]) == ("held", "lifeline_held", "asking")
    assert verdict(tmp_path / "lease") == (Verdict.GONE, "released")


def test_the_label_is_the_program_and_never_its_arguments(tmp_path: Path) -> None:
    tenure("run", str(tmp_path / "lease"), "--", "echo", "secret")
    assert look(tmp_path / "lease").label == "echo"


def test_options_of_the_command_are_its_own(tmp_path: Path) -> None:
    assert tenure("run", str(tmp_path / "lease"), "echo", "--wait", "--", "-h").stdout == "--wait -- -h\n"


def test_input_and_output_are_the_commands(tmp_path: Path) -> None:
    done = tenure("run", str(tmp_path / "lease"), "--", "sh", "-c", "cat; echo problem >&2", input="data")
    assert (done.stdout, done.stderr) == ("data", "problem\n")


# Prints the files that are open above standard error.
OPEN_FILES = (
    sys.executable,
    "-c",
    """
import os
for fd in sorted(os.listdir("/proc/self/fd"), key=int):
    path = os.path.realpath(f"/proc/self/fd/{fd}")
    if int(fd) > 2 and os.path.isfile(path):
        print(path)
""",
)


def test_the_command_gets_no_descriptor_of_ours_but_the_lifeline(tmp_path: Path) -> None:
    opened = tenure("run", str(tmp_path / "lease"), "--", *OPEN_FILES).stdout.splitlines()
    assert [Path(path).parent for path in opened] == [tmp_path / "lease/lease/lifeline"]
    assert tenure("run", "--close-lifeline", str(tmp_path / "lease"), "--", *OPEN_FILES).stdout == ""


def test_what_we_were_given_for_the_command_is_passed_on(tmp_path: Path) -> None:
    with open(tmp_path / "given", "wb") as given:
        done = tenure("run", "--close-lifeline", str(tmp_path / "lease"), "--", *OPEN_FILES, pass_fds=[given.fileno()])
    assert done.stdout == f"{tmp_path / 'given'}\n"


def test_a_command_under_two_leases_carries_both_lifelines(tmp_path: Path) -> None:
    inner = (sys.executable, "-m", "tenure", "run", str(tmp_path / "inner"), "--", *OPEN_FILES)
    opened = tenure("run", str(tmp_path / "outer"), "--", *inner).stdout.splitlines()
    assert {Path(path).parents[2].name for path in opened} == {"outer", "inner"}


def test_the_command_starts_with_no_signal_blocked_and_none_ignored(tmp_path: Path) -> None:
    # Without a shell, which would clear what is blocked.
    masks = ("grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status")
    plainly = subprocess.run(masks, capture_output=True, text=True, check=True).stdout
    assert tenure("run", str(tmp_path / "lease"), "--", *masks).stdout == plainly


def test_a_killed_run_with_a_living_command_is_not_taken_over_until_that_has_ended(tmp_path: Path) -> None:
    with started("run", str(tmp_path / "lease"), "--", "sh", "-c", STUBBORN, str(tmp_path / "log")) as process:
        until_told(tmp_path / "log", "started")
        (command,) = children(process.pid)
        process.kill()
        process.wait(PATIENCE)
        assert verdict(tmp_path / "lease") == (Verdict.ALIVE, "lifeline_held")
        busy = tenure("run", "--wait", "0.3", str(tmp_path / "lease"), "--", "true")
        assert busy.returncode == 75
        assert "lifeline_held" in only_the_error(busy.stderr)[0]
        os.kill(command, signal.SIGKILL)
        done = tenure("run", "--wait", "20", str(tmp_path / "lease"), "--", "sh", "-c", "echo $TENURE_FENCE")
        assert (done.returncode, done.stdout) == (0, "2\n")


def test_with_close_lifeline_the_lease_is_free_once_run_is_killed(tmp_path: Path) -> None:
    words = ("--close-lifeline", str(tmp_path / "lease"), "--", "sh", "-c", STUBBORN, str(tmp_path / "log"))
    with started("run", *words) as process:
        until_told(tmp_path / "log", "started")
        (command,) = children(process.pid)
        process.kill()
        process.wait(PATIENCE)
        try:
            assert verdict(tmp_path / "lease") == (Verdict.GONE, "lifeline_free")
        finally:
            os.kill(command, signal.SIGKILL)


def test_a_daemon_that_is_left_behind_keeps_the_lease_unless_the_lifeline_is_closed(tmp_path: Path) -> None:
    for option, state in (((), "held"), (("--close-lifeline",), "free")):
        leaves = f"sleep 60 >&- 2>&- & echo $! > {tmp_path}/pid"
        url = str(tmp_path / f"lease-{state}")
        assert tenure("run", *option, url, "--", "sh", "-c", leaves).returncode == 0
        try:
            assert look(url).state == state
        finally:
            os.kill(int((tmp_path / "pid").read_text("ascii")), signal.SIGKILL)


def test_a_lost_lease_stops_the_command_with_term(tmp_path: Path) -> None:
    command = 'trap "echo TERM >> $0; exit 0" TERM; echo started >> $0; for _ in $(seq 6000); do sleep 0.01; done'
    words = ("--ttl", "0.3", str(tmp_path / "lease"), "--", "sh", "-c", command, str(tmp_path / "log"))
    with started("run", *words) as process:
        until_told(tmp_path / "log", "started")
        take_over(tmp_path / "lease")
        code, stderr = ended(process)
    assert told(tmp_path / "log") == ["started", "TERM"]
    assert code == 1
    assert "tenure: another writer has taken over. ours=`1`, current=`2`\nhint: " in stderr
    assert look(tmp_path / "lease").fence == 2


def test_a_command_that_does_not_heed_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    words = ("--ttl", "0.3", "--grace", "0.3", str(tmp_path / "lease"), "--", "sh", "-c", STUBBORN)
    with started("run", *words, str(tmp_path / "log")) as process:
        until_told(tmp_path / "log", "started")
        (command,) = children(process.pid)
        take_over(tmp_path / "lease")
        code, stderr = ended(process)
        until(lambda: not Path(f"/proc/{command}").exists(), "the command lives on")
    assert told(tmp_path / "log") == ["started", "TERM"]
    assert (code, "another writer has taken over" in stderr) == (1, True)


def test_a_command_that_ends_by_itself_after_the_lease_was_lost_is_no_success(tmp_path: Path) -> None:
    # The pulse beats every 20 s here, so nobody notices before the command has ended.
    command = 'echo started >> "$0"; until [ -e "$0.go" ]; do sleep 0.01; done'
    log = tmp_path / "log"
    with started("run", "--ttl", "60", str(tmp_path / "lease"), "--", "sh", "-c", command, str(log)) as process:
        until_told(log, "started")
        take_over(tmp_path / "lease")
        (tmp_path / "log.go").touch()
        code, stderr = ended(process)
    assert (code, "another writer has taken over" in stderr) == (1, True)


def test_b87_the_next_one_waits_and_takes_over_when_the_first_is_told_to_end(tmp_path: Path) -> None:
    url, log = str(tmp_path / "lease"), tmp_path / "log"
    command = 'echo "$TENURE_FENCE" >> "$0"; exec sleep 60'
    with started("run", url, "--", "sh", "-c", command, str(log)) as first:
        until_told(log, "1")
        # A wait that is shorter than ttl + skew: only the release can let it in.
        with started("run", "--wait", "25", url, "--", "sh", "-c", command, str(log)) as second:
            until_waiting(second.pid)
            first.terminate()
            assert ended(first) == (128 + signal.SIGTERM, "")
            until_told(log, "2")
            second.terminate()
            assert ended(second)[0] == 128 + signal.SIGTERM
    assert told(log) == ["1", "2"]


def test_b87_the_next_one_takes_over_at_once_when_the_first_is_killed_with_its_command(tmp_path: Path) -> None:
    url, log = str(tmp_path / "lease"), tmp_path / "log"
    command = 'echo "$TENURE_FENCE" >> "$0"; exec sleep 60'
    with started("run", url, "--", "sh", "-c", command, str(log)) as first:
        until_told(log, "1")
        with started("run", "--wait", "25", url, "--", "sh", "-c", command, str(log)) as second:
            until_waiting(second.pid)
            for pid in (*children(first.pid), first.pid):
                os.kill(pid, signal.SIGKILL)
            until_told(log, "2")


def test_wait_zero_is_one_attempt_and_timeout_is_another_word_for_wait(tmp_path: Path) -> None:
    with held(tmp_path / "lease"):
        for option in ((), ("--wait", "0"), ("--timeout", "0.2")):
            assert tenure("run", *option, str(tmp_path / "lease"), "--", "true").returncode == 75


def test_a_broken_supervision_takes_the_command_with_it(tmp_path: Path) -> None:
    # The lifeline is closed, so the command would run on without anything that keeps others away.
    broken = (
        "import sys; from tenure._cli import _app, _attend\n"
        "def fail(*_): raise RuntimeError('supervision')\n"
        "_attend._stay_with = fail\n"
        "_app.run(sys.argv[1:])"
    )
    words = ("run", "--close-lifeline", str(tmp_path / "lease"), "--", "sh", "-c", "echo $$ > $0; exec sleep 60")
    done = subprocess.run(
        [sys.executable, "-c", broken, *words, str(tmp_path / "pid")],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=PATIENCE,
        check=False,
    )
    assert "RuntimeError: supervision" in done.stderr
    # Ended before it could say who it is, or since.
    pid = (tmp_path / "pid").read_text("ascii").strip() if (tmp_path / "pid").exists() else ""
    assert pid == "" or not Path("/proc", pid).exists()
    assert verdict(tmp_path / "lease")[1] == "released"


def test_nobody_reading_our_messages_still_stops_a_command_that_lost_the_lease(tmp_path: Path) -> None:
    with WriterLease(tmp_path / "lease").acquire():
        pass
    reading, writing = os.pipe()
    os.close(reading)
    words = ("--ttl", "0.3", str(tmp_path / "lease"), "--", "sh", "-c", STUBBORN, str(tmp_path / "log"))
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure", "run", "--grace", "0.2", *words], stderr=writing, cwd=ROOT, env=environment()
    )
    os.close(writing)
    until_told(tmp_path / "log", "started")
    take_over(tmp_path / "lease")
    assert process.wait(PATIENCE) == 1
    assert "TERM" in told(tmp_path / "log")
