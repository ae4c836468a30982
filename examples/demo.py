"""
See it work: real processes take the writer lease and meet their fates; then the next writer asks for it. `make demo`.

Exits with 1 if anything comes out otherwise than it must. Needs no privilege, but shows less without user namespaces.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tenure import Datastore, Judgement, Verdict, WriterBusyError, WriterLease, judge, open_store

PATIENCE = 20.0
# A ttl that is over in no time, to show that proof of life does not care.
SHORT, LONG = 0.1, 30.0


class Needs(Exception):  # noqa: N818  not an error: what this machine would have to have
    """A scene cannot be played here."""


@dataclass(frozen=True)
class Outcome:
    """What came out of a scene, as words: verdict and reason on the hold and on the process, and the next writer's fate."""

    hold: list[str]
    process: list[str]
    taken: bool
    milliseconds: float
    note: str = ""


def ask(url: str, since: float | None = None, note: str = "") -> Outcome:
    """Be the next writer: look, then try to take the lease. Timed from *since*, by default from the try."""
    lease = WriterLease(url)
    seen = lease.inspect()
    started = time.perf_counter() if since is None else since
    try:
        hold = lease.acquire()
    except WriterBusyError as busy:
        took = time.perf_counter() - started
        if busy.retry_after_s is not None:
            note = f"until {busy.retry_after_s:.0f} s of silence"
        return Outcome(words(busy.judgement), words(judge(seen.holder)), False, took * 1e3, note)
    took = time.perf_counter() - started
    hold.release()
    assert seen.judgement is not None
    if hold.fence <= seen.fence:
        raise RuntimeError(f"the fence did not rise: {hold.fence} after {seen.fence}")
    return Outcome(words(seen.judgement), words(judge(seen.holder)), True, took * 1e3, note)


def words(judgement: Judgement) -> list[str]:
    """Verdict and reason."""
    return [judgement.verdict.value, judgement.reason]


# --- the holders: children that run demo/writers.py ---------------------------------------------------------------


def writer(fate: str, *arguments: str) -> list[str]:
    """The command of a writer that takes the lease and meets *fate*."""
    return [sys.executable, str(Path(__file__).resolve().with_suffix("") / "writers.py"), fate, *arguments]


@contextmanager
def running(command: list[str], first_word: str) -> Iterator[subprocess.Popen[str]]:
    """*command*, once it has said *first_word*; dead when the block ends."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline().strip()
            if said != first_word:
                raise RuntimeError(f"a process of the demo did not start: {command}")
            yield process
        finally:
            # Kills a stopped one, too. Its end of the pipe is closed by `Popen.__exit__`.
            process.kill()


def holder(url: str, *, ttl: float = LONG, prefix: tuple[str, ...] = ()) -> Any:
    """A process that holds the lease."""
    return running([*prefix, *writer("holds", url, str(ttl))], "holding")


# --- the scenes ---------------------------------------------------------------------------------------------------


def alive(url: str) -> Outcome:
    """It holds on."""
    with holder(url):
        return ask(url)


def killed(url: str) -> Outcome:
    """SIGKILL, and its parent has reaped it."""
    with holder(url) as process:
        since = time.perf_counter()
        process.kill()
        process.wait()
        return ask(url, since)


def zombie(url: str) -> Outcome:
    """SIGKILL, and nobody has reaped it."""
    with holder(url) as process:
        since = time.perf_counter()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        outcome = ask(url, since)
        check_state(process.pid, "Z")
        return outcome


def suspended(url: str) -> Outcome:
    """SIGSTOP, for longer than its ttl."""
    with holder(url, ttl=SHORT) as process:
        process.send_signal(signal.SIGSTOP)
        until(lambda: state(process.pid) == "T")
        threading.Event().wait(3 * SHORT)
        outcome = ask(url)
        # Nobody has sent it anything, not even a signal 0 or CONT.
        check_state(process.pid, "T")
        return outcome


def pid_reused(url: str) -> Outcome:
    """It ended, and its number was given to another process."""
    # Inside a pid namespace, where the next number can be chosen; it is asked for from inside, too.
    asking = (sys.executable, __file__, "--ask", url)
    command = [*namespace(), *writer("pid-reused", url, *asking)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        raise Needs("a pid namespace in which the next pid can be chosen")
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return Outcome(**json.loads(done.stdout))


def in_another_namespace(url: str) -> Outcome:
    """It holds on, in a container for what that matters, with our host name."""
    with holder(url, prefix=namespace()):
        return ask(url)


def killed_in_another_namespace(url: str) -> Outcome:
    """Its namespace was killed."""
    with holder(url, prefix=namespace()) as process:
        since = time.perf_counter()
        # unshare(1) takes its child with it.
        process.kill()
        process.wait()
        until(lambda: WriterLease(url).inspect().state == "free")
        return ask(url, since)


def command_lives_on(url: str) -> Outcome:
    """What writes is the command, and that lives."""
    with run_killed(url):
        return ask(url)


def command_has_ended(url: str) -> Outcome:
    """And now it does not."""
    with run_killed(url) as process:
        assert process.stdin is not None
        since = time.perf_counter()
        process.stdin.close()
        until(lambda: WriterLease(url).inspect().state == "free")
        return ask(url, since)


@contextmanager
def run_killed(url: str) -> Iterator[subprocess.Popen[str]]:
    """A `tenure run` that was killed; its command goes on until its input ends."""
    if importlib.util.find_spec("click") is None or importlib.util.find_spec("rich") is None:
        raise Needs("pip install 'tenure[cli]'")
    command = [sys.executable, "-m", "tenure", "run", url, "--", "sh", "-c", "echo writing; exec cat"]
    with running(command, "writing") as process:
        process.kill()
        process.wait()
        yield process


def died_before_its_commit_landed(url: str) -> Outcome:
    """It had prepared a commit of a datastore, and was killed before it put it into the log. The next one lands it."""
    checkout = str(Path(url).with_name("checkout"))
    dies_there = ("env", "TENURE_FAILPOINTS=log.putting=kill")
    with running([*dies_there, *writer("prepares", url, checkout)], "holding") as process:
        process.wait()
        outcome = ask(url)
    datastore = Datastore(url)
    with datastore.checkout(checkout) as opened:
        landed = opened.recover().outbox.landed
    if landed != 1 or datastore.read("plan.txt") != b"prepared":
        raise RuntimeError(f"the prepared commit did not land: {landed}")
    return replace(outcome, note="and lands what it had prepared")


def without_identity(url: str) -> Outcome:
    """As another program, or an older one, may have left it."""
    claim = {"v": 1, "fence": "1", "nonce": os.urandom(16).hex(), "holder": None, "ttl": 30.0, "skew": 10.0}
    open_store(url).create(f"lease/{1:020}", json.dumps(claim).encode())
    return ask(url)


def main_thread_exited(url: str) -> Outcome:
    """The process shows as a zombie and still writes."""
    if platform.machine() not in ("x86_64", "aarch64", "riscv64"):
        raise Needs("x86_64, aarch64 or riscv64, whose exit(2) we know by number")
    with running(writer("main-thread-exits", url), "holding") as process:
        until(lambda: state(process.pid) == "Z")
        outcome = ask(url)
        check_state(process.pid, "Z")
        return outcome


def namespace() -> tuple[str, ...]:
    """A command prefix that starts a new pid namespace, with a user namespace around it where that is what it takes."""
    for user in ((), ("--user", "--map-root-user")):
        prefix = ("unshare", *user, "--pid", "--fork", "--kill-child", "--mount-proc")
        if (
            shutil.which("unshare")
            and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
        ):
            return prefix
    raise Needs("root, or user namespaces (unshare --user --pid --mount-proc)")


def state(pid: int) -> str:
    """The letter that ps(1) shows. The name before it may hold spaces and parentheses: proc_pid_stat(5)."""
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]


def check_state(pid: int, letter: str) -> None:
    """Judging must have left it as it was."""
    if state(pid) != letter:
        raise RuntimeError(f"the holder is in state {state(pid)} now, no longer {letter}")


def until(condition: Callable[[], bool]) -> None:
    """Wait for what the kernel or a child will do soon."""
    deadline = time.perf_counter() + PATIENCE
    while not condition():
        if time.perf_counter() > deadline:
            raise RuntimeError("it did not come about")
        threading.Event().wait(0.0005)


ALIVE, GONE, UNKNOWN = (verdict.value for verdict in Verdict)

# What the holder ..., what plays it, and what must come out: of the hold, and whether the next writer takes over.
SCENES: list[tuple[str, Callable[[str], Outcome], set[tuple[str, str]], bool]] = [
    ("lives", alive, {(ALIVE, "lifeline_held")}, False),
    ("was killed", killed, {(GONE, "lifeline_free")}, True),
    ("was killed and not reaped: a zombie", zombie, {(GONE, "lifeline_free")}, True),
    ("is suspended, its ttl is long over", suspended, {(ALIVE, "lifeline_held")}, False),
    ("has died, its pid is another's now", pid_reused, {(GONE, "pid_reused")}, True),
    ("lives in another pid namespace", in_another_namespace, {(ALIVE, "lifeline_held")}, False),
    ("  ... and was killed there", killed_in_another_namespace, {(GONE, "lifeline_free")}, True),
    ("was `tenure run`; its command lives", command_lives_on, {(ALIVE, "lifeline_held")}, False),
    ("  ... and the command has ended", command_has_ended, {(GONE, "lifeline_free")}, True),
    ("runs on, its main thread has exited", main_thread_exited, {(ALIVE, "lifeline_held")}, False),
    ("died before its commit had landed", died_before_its_commit_landed, {(GONE, "lifeline_free")}, True),
    ("left a record that names no process", without_identity, {(UNKNOWN, "no_identity")}, False),
]


# --- the show -----------------------------------------------------------------------------------------------------


def main() -> int:
    """Play every scene; 1 if one came out wrong."""
    show = printer()
    show("bold", "tenure: one writer at a time, and proof when the last one is gone.\n")
    show("", "A real process takes the writer lease; then the next writer asks for it.\n")
    wide = shutil.get_terminal_size((120, 24)).columns >= 104
    heading = f"  {'the holder ...':<37}{'next writer':<12}{'took':>6}  {'the hold is':<22}"
    show("dim", (heading + "its process is" * wide).rstrip())
    counts = dict.fromkeys("✓✗-", 0)
    for title, scene, holds, taken in SCENES:
        mark, rest = played(scene, holds, taken, wide)
        counts[mark] += 1
        show({"✓": "green", "✗": "bold red", "-": "yellow"}[mark], f"{mark} ", end="")
        show("dim" if mark == "-" else "", f"{title:<37}{rest}".rstrip())
    skipped = f", {counts['-']} skipped" * bool(counts["-"])
    show("", f"\n{counts['✓']} as it must be, {counts['✗']} not{skipped}. No signal was sent to find out, not even 0.")
    show("dim", "Each takeover got a higher fence: that keeps out a writer that comes back late.")
    return 1 if counts["✗"] else 0


def played(scene: Callable[[str], Outcome], holds: set[tuple[str, str]], taken: bool, wide: bool) -> tuple[str, str]:
    """Mark and words for one scene, played in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as directory:
        try:
            if any(reason.startswith("lifeline") for _, reason in holds):
                check_lifeline(os.path.join(directory, "probe"))
            outcome = scene(os.path.join(directory, "lease"))
        except Needs as needs:
            return "-", f"needs: {needs}"
        except Exception as error:  # noqa: BLE001  a scene that fails in any way has come out wrong
            return "✗", f"{type(error).__name__}: {error}"
    right = outcome.taken is taken and tuple(outcome.hold) in holds
    fate = "takes over" if outcome.taken else "is refused"
    rest = f"{fate:<11}{outcome.milliseconds:>4.1f} ms  {': '.join(outcome.hold):<22}"
    if outcome.note:
        rest = f"{rest}{outcome.note}" if wide else f"{rest.rstrip()}\n{'':<39}{outcome.note}"
    elif wide:
        rest += ": ".join(outcome.process)
    if not right:
        rest = f"{rest.rstrip()}   must be: {'takes over' if taken else 'is refused'}, {sorted(holds)}"
    return "✓" if right else "✗", rest


def check_lifeline(url: str) -> None:
    """Most scenes show what the lifeline shows, so they need one."""
    with WriterLease(url).acquire() as hold:
        if hold.lifeline_fileno() is None:
            raise Needs("Linux, and a local file system for temporary files")


def printer() -> Callable[..., None]:
    """What prints in a style: rich where it is installed, else without styles."""
    try:
        from rich.console import Console  # noqa: PLC0415  it may be missing
    except ImportError:
        return lambda _, text, end="\n": print(text, end=end, flush=True)
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    return lambda style, text, end="\n": console.print(text, style=style or None, end=end)


if __name__ == "__main__":
    # The library's log would tell of each takeover once more.
    logging.getLogger("tenure").addHandler(logging.NullHandler())
    if sys.argv[1:2] == ["--ask"]:
        print(json.dumps(asdict(ask(sys.argv[2]))))
    else:
        sys.exit(main())
