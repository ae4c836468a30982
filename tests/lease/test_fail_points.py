"""A process that dies, stops or fails at any point between two steps blocks nobody, and two holds never share a fence."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tenure import Hold, WriterBusyError, WriterLease, _failpoints
from tenure._store._memory import MemoryStore
from tests.helpers import processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.helpers.scripts import Script, ran
from tests.lease.beats import taken
from tests.lease.stores import LONG

# Those that a lease passes; tests/datastore/test_kill_points.py has the others.
POINTS = re.findall(r"^\| `((?:publish|lease)\.\w+)` \|", _failpoints.__doc__ or "", re.MULTILINE)

# Acquires, beats, releases; says what it got through.
WRITER = """
    import logging, tenure
    logging.disable()
    lease = tenure.WriterLease(sys.argv[1], ttl=float(sys.argv[2]))
    def step(name, call):
        try:
            result = call()
        except tenure.Error as error:
            print(name, error.kind)
            return None
        print(name, "ok")
        return result
    hold = step("acquire", lease.acquire)
    if hold:
        step("renew", hold.renew)
        step("check", hold.check)
        step("release", hold.release)
    print("done")
    sys.stdin.readline()
"""


@pytest.mark.parametrize("text", ["x", "lease.beat=explode", "lease.beat", "lease.beat=kill=1;x"])
def test_a_fault_that_nobody_understands_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="TENURE_FAILPOINTS"):
        _failpoints._parse(text)


def test_what_can_be_asked_for() -> None:
    assert _failpoints._parse(" a.b=kill ; c=sleep:0.25@3;;d=error@2") == {
        "a.b": ("kill", 0.0, 0),
        "c": ("sleep", 0.25, 3),
        "d": ("error", 0.0, 2),
    }


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("point", POINTS)
def test_whoever_dies_there_is_replaced_at_once(tmp_path: Path, point: str) -> None:
    store = tmp_path / "store"
    with Script(WRITER, store, LONG, TENURE_FAILPOINTS=f"{point}=kill") as writer:
        assert writer.ends()[0] == -signal.SIGKILL, "the point was not reached"
    first, second = taken(WriterLease(store)), taken(WriterLease(store))

    assert (first, second) in [(1, 2), (2, 3)]


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("point", POINTS)
def test_whoever_is_stopped_there_shares_no_fence_with_others_and_harms_none(tmp_path: Path, point: str) -> None:
    """It goes on when others have taken the lease and given it back, or were refused it because it has it."""
    store = tmp_path / "store"
    with Script(WRITER, store, LONG, TENURE_FAILPOINTS=f"{point}=stop@1") as writer:
        processes.until_state(writer.pid, "T")
        lease = WriterLease(store, ttl=LONG)
        hold = None
        try:
            hold = lease.acquire()
        except WriterBusyError as busy:
            verdict = busy.judgement.verdict.value
            assert verdict == "alive"
        writer.send(signal.SIGCONT)
        said: list[str] = []
        while not said or said[-1] not in ("done", ""):
            said.append(writer.says())
        assert said[-1] == "done", writer.ends()
        if hold is None:
            assert "acquire ok" in said
        else:
            hold.check()
            assert said[0] == "acquire writer_busy", "two holders at once"
            hold.release()
        assert taken(lease) >= 2


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("nth", ["", "@1"])
@pytest.mark.parametrize("point", POINTS)
def test_whoever_fails_there_blocks_nobody_though_it_lives_on(tmp_path: Path, point: str, nth: str) -> None:
    store = tmp_path / "store"
    with Script(WRITER, store, LONG, TENURE_FAILPOINTS=f"{point}=error{nth}") as writer:
        said: list[str] = []
        while not said or said[-1] not in ("done", ""):
            said.append(writer.says())
        assert said[-1] == "done", writer.ends()
        assert "release store_unavailable" not in said, "a release never fails"
        # It is still there.
        lease = WriterLease(store, ttl=LONG)
        assert taken(lease) in (1, 2)
        assert taken(lease) in (2, 3)


ACQUIRES_AGAIN = """
    import logging, tenure
    from tenure import _failpoints
    logging.disable()
    lease = tenure.WriterLease(sys.argv[1], ttl=3600)
    try:
        with lease.acquire() as hold:
            hold.renew()
    except tenure.Error:
        pass
    _failpoints._points.clear()
    with lease.acquire() as hold:
        hold.check()
        print(hold.fence)
"""


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("point", POINTS)
def test_whoever_failed_there_can_acquire_again_itself(tmp_path: Path, point: str) -> None:
    assert ran(ACQUIRES_AGAIN, tmp_path / "store", TENURE_FAILPOINTS=f"{point}=error") in ("1", "2")


@pytest.mark.parametrize("kind", ["directory", "memory"])
@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("lease.")])
def test_ctrl_c_there_leaves_a_lease_that_can_be_taken(
    tmp_path: Path, point: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = tmp_path / "store" if kind == "directory" else MemoryStore()
    reached: list[str] = []

    def interrupted(name: str) -> None:
        if name == point:
            reached.append(name)
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        for module in ("_lease", "_pulse", "_tenancy"):
            patched.setattr(f"tenure._lease.{module}.reach", interrupted)
        holds: list[Hold] = []

        def hold_and_renew() -> None:
            holds.append(WriterLease(store, ttl=LONG).acquire())
            with holds[0]:
                holds[0].renew()

        with pytest.raises(KeyboardInterrupt):
            hold_and_renew()

    assert reached
    # A release that was cut off has done its work; repeating it is what says so.
    for hold in holds:
        hold.release()
    assert taken(WriterLease(store, ttl=LONG)) in (1, 2)


ENDS: dict[str, str] = {
    "exec": "os.execvp('sleep', ['sleep', '600'])",
    "os._exit": "os._exit(3)",
    "sys.exit": "sys.exit(3)",
    "the end of the program": "pass",
    "an exception": "raise RuntimeError",
    "an exception in with": "with hold: raise RuntimeError",
    "sys.exit in with": "with hold: sys.exit(3)",
    "abort": "os.abort()",
    "sys.exit in a thread, and the end": "import threading; t = threading.Thread(target=sys.exit); t.start(); t.join()",
    "a thread that goes on": "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
}


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("how", ENDS.values(), ids=list(ENDS))
def test_however_a_holder_ends_the_next_one_takes_over_at_once(tmp_path: Path, how: str) -> None:
    """While it holds, whatever it has hooked: interpreter shutdown hangs on no pulse and no callback."""
    store = tmp_path / "store"
    code = (
        "import logging, resource, warnings, tenure; logging.disable(); warnings.simplefilter('ignore')\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "lease = tenure.WriterLease(sys.argv[1], ttl=0.3, on_lost=print)\n"
        f"hold = lease.acquire(); print('held')\n{how}\n"
    )
    with Script(code, store) as holder:
        assert holder.says() == "held"
        if "exec" in how:
            comm = Path(f"/proc/{holder.pid}/comm")
            processes.until(lambda: comm.read_text() == "sleep\n", "no exec happened")
            # The new program is named before the files of the old one are closed.
            processes.until(lambda: WriterLease(store).inspect().state == "free", "its lifeline is not let go")
        else:
            holder.process.wait(processes.PATIENCE)
        assert taken(WriterLease(store)) == 2


@NEEDS_LINUX_PROC
def test_sys_exit_in_a_thread_ends_no_hold_of_its_process(tmp_path: Path) -> None:
    code = (
        "import threading, tenure; hold = tenure.WriterLease(sys.argv[1]).acquire()\n"
        "thread = threading.Thread(target=sys.exit); thread.start(); thread.join()\n"
        "hold.check(); print(hold.state); hold.release()"
    )
    assert ran(code, tmp_path / "store") == "held"
