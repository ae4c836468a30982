"""
tenure sends no signal to a process that it has not started itself: not in Rust, and not in Python.

`Popen.send_signal` is left out: it knows its own child, and checks that it has not been reaped. ruff's TID251 says more.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# System calls and their wrappers in libc, rustix, nix and the standard libraries. Source: signal(7).
SENDERS = re.compile(
    r"\b(?:kill|killpg|tkill|tgkill|kill_process|kill_process_group|kill_current_process_group|test_kill_process\w*|"
    r"pthread_kill|raise_signal|sigqueue|rt_sigqueueinfo|rt_tgsigqueueinfo|pidfd_send_signal|TerminateProcess|"
    r"SYS_(?:kill|tkill|tgkill|pidfd_send_signal|rt_\w*sigqueueinfo))\s*(?:\(|;|\}|,|::)"
)
# Fail points stop or kill the very process that runs them, and only when a test has asked for it.
FAIL_POINTS = ROOT / "python/tenure/_failpoints.py"
# What is shipped: tests, examples and benchmarks of the crates end processes of their own.
SOURCES = sorted({*ROOT.glob("rust/*/src/**/*.rs"), *ROOT.glob("python/**/*.py")} - {FAIL_POINTS})


def senders(text: str, comment: str) -> list[str]:
    """Lines that could send a signal; comments may speak of it."""
    code = [line.split(comment, 1)[0] for line in text.splitlines()]
    return [line.strip() for line in code if SENDERS.search(line)]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_can_send_a_signal(source: Path) -> None:
    assert senders(source.read_text("utf-8"), "//" if source.suffix == ".rs" else "#") == []


def test_a_fail_point_reaches_nobody_but_its_own_process() -> None:
    code = FAIL_POINTS.read_text("utf-8").split('"""', 2)[2]
    assert {line.split("(")[0] for line in senders(code, "#")} == {"signal.raise_signal"}


def test_there_are_sources() -> None:
    assert {path.suffix for path in SOURCES} == {".rs", ".py"}


@pytest.mark.parametrize(
    "line",
    [
        "unsafe { libc::kill(pid, 0) };",
        "libc::syscall(libc::SYS_kill, pid, 0)",
        "use rustix::process::{kill_process, Signal};",
        "rustix::process::test_kill_process(pid)",
        "os.kill(pid, 0)",
        "signal.pidfd_send_signal(fd, 0)",
    ],
)
def test_a_sender_would_be_found(line: str) -> None:
    assert senders(line, "//") == [line]


@pytest.mark.parametrize("line", ["// kill(pid, 0) would say EPERM", "let killed = true;", "fn is_killed() {}"])
def test_other_words_are_left_alone(line: str) -> None:
    assert senders(line, "//") == []
