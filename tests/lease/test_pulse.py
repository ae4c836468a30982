"""The pulse of a hold on a directory: beats whatever Python does, and writes to its own file or to none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tenure import FencedError, WriterLease
from tenure._lease import _keys
from tests.helpers import holders, processes, tracing
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_STRACE
from tests.helpers.scripts import Script, ran
from tests.lease.beats import beat_of, nonce_of, unknowable, until_beaten

QUICK = 0.15

# PyDLL calls into C without giving up the GIL, unlike CDLL. Source: the manual of ctypes.
GIL_KEEPER = """
    import ctypes, tenure
    hold = tenure.WriterLease(sys.argv[1], ttl=float(sys.argv[2]), skew=float(sys.argv[3])).acquire()
    print(hold.fence)
    sys.stdin.readline()
    ctypes.PyDLL(None).usleep(int(float(sys.argv[4]) * 1e6))
    hold.check()
    print(hold.state, hold.fence)
"""


@NEEDS_LINUX_PROC
def test_a_thread_that_keeps_the_gil_delays_no_beat(tmp_path: Path) -> None:
    """Watched by one who can judge neither lifeline nor identity: only the beats keep the holder its lease."""
    store = tmp_path / "store"
    ttl, skew, kept = 0.6, 0.2, 2.5
    with Script(GIL_KEEPER, store, ttl, skew, kept) as keeper:
        assert keeper.says() == "1"
        nonce, lease, seen = nonce_of(store), WriterLease(store), []
        with unknowable(store):
            keeper.tell()
            end = time.monotonic() + kept - 0.2
            while time.monotonic() < end:
                status = lease.inspect()
                assert status.state == "unknown", "silent for ttl + skew"
                seen.append(status.beat)
                time.sleep(0.02)
        assert keeper.says() == "held 1"
        assert nonce_of(store) == nonce

    # One every ttl / 3; half of them would do to show that no second of the sleep went without.
    assert seen == sorted(seen)
    assert len(set(seen)) >= (kept - 0.2) / (ttl / 3) / 2


@NEEDS_STRACE
@NEEDS_LINUX_PROC
def test_a_beat_of_the_pulse_is_one_write_in_place_and_no_sync(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with holders.holding(store, ttl=QUICK) as agent:
        writing = (
            "?pwrite64,?write,?fsync,?fdatasync,?syncfs,?rename,?renameat2,?linkat,?ftruncate,?utimensat,?futimens"
        )
        with tracing.traced(agent, "-e", f"trace={writing.replace(',?futimens', '')}") as trace:
            until_beaten(store, 4)

    assert trace.calls["pwrite64"] >= 4
    assert set(trace.calls) == {"pwrite64"}


@pytest.mark.parametrize("_", range(5))
def test_nothing_is_written_after_release_has_returned(tmp_path: Path, _: int) -> None:
    store = tmp_path / "store"
    hold = WriterLease(store, ttl=0.05, skew=0).acquire()
    until_beaten(store, 2)
    hold.release()
    after = beat_of(store, hold.nonce)
    time.sleep(0.15)

    assert beat_of(store, hold.nonce) == after
    assert after[1], "the last thing written is the release"


def test_a_stop_without_release_leaves_the_last_beat(tmp_path: Path) -> None:
    """What a lost hold does: no word of its own is the last one."""
    store = tmp_path / "store"
    hold = WriterLease(store, ttl=0.05, skew=0).acquire()
    until_beaten(store)
    hold._tenancy._pulse.stop(release=False)
    after = beat_of(store, hold.nonce)
    time.sleep(0.15)

    assert beat_of(store, hold.nonce) == after
    assert not after[1]
    hold.release()


THREADS = """
    import time
    from pathlib import Path
    from tenure import WriterLease
    def threads():
        names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
        return sorted(name for name in names if name.startswith("tenure"))
    def beaten(hold):
        taken_at = hold._tenancy._pulse.renewed_at
        while hold._tenancy._pulse.renewed_at == taken_at:
            time.sleep(0.01)
        return "beaten"
    for _ in range(3):
        WriterLease(sys.argv[1]).acquire().release()
    print(*threads())
    long, short = WriterLease(sys.argv[1]).acquire(), WriterLease(sys.argv[1] + "2", ttl=0.6).acquire()
    print(beaten(short), *threads())
    if os.fork():
        os.wait()
        short.check()
        print(short.state)
        sys.exit()
    print(*threads(), "in the child")
    own = WriterLease(sys.argv[1] + "3", ttl=0.6).acquire()
    print(beaten(own), *threads(), "in the child")
    os._exit(0)
"""


@NEEDS_LINUX_PROC
def test_a_hold_that_ends_before_its_first_beat_has_no_thread_of_its_own(tmp_path: Path) -> None:
    """One thread of the process starts those of the others, each when its beat is due; a forked child has its own."""
    assert ran(THREADS, tmp_path / "store").splitlines() == [
        "tenure-alarm",
        "beaten tenure-alarm tenure-pulse",
        "in the child",
        "beaten tenure-alarm tenure-pulse in the child",
        "held",
    ]


IN_A_CHILD = """
    import threading, time, tenure
    hold = tenure.WriterLease(sys.argv[1], ttl=0.15, skew=0).acquire()
    local = hold._tenancy._pulse._hold
    time.sleep(0.2)
    if os.fork():
        os.wait()
        hold.check()
        print(hold.state)
        sys.exit()
    def outcome(call):
        try:
            return call()
        except Exception as error:
            return type(error).__name__
    tasks = lambda: len(os.listdir("/proc/self/task"))
    before = tasks()
    path = os.path.join(sys.argv[1], "lease/beat/00000000000000000001")
    print(before, outcome(lambda: local.wait_lost(5)), outcome(lambda: local.stop(release=True)), local.lost)
    print(b"released" in open(path, "rb").read())
    print(outcome(local.beat), outcome(hold.release), outcome(hold.check), hold.state)
    if len(sys.argv) > 2:
        print(outcome(local.start), tasks() - before)
    os._exit(0)
"""


@NEEDS_LINUX_PROC
def test_the_pulse_does_not_survive_a_fork_and_the_childs_methods_change_nothing(tmp_path: Path) -> None:
    said = ran(IN_A_CHILD, tmp_path / "store").splitlines()

    assert said[0] == "1 False True False", "one thread; nothing to wait for, nothing to stop, nothing lost"
    assert said[1] == "False", "the child has not released the parent's hold"
    assert said[2].startswith("OSError None HoldError")
    assert said[-1] == "held"


@NEEDS_LINUX_PROC
def test_a_forked_child_cannot_start_the_pulse_again(tmp_path: Path) -> None:
    said = ran(IN_A_CHILD, tmp_path / "store", "start too").splitlines()

    assert said[3].endswith(" 0"), said


def test_a_higher_claim_marks_the_hold_lost_without_being_asked(tmp_path: Path) -> None:
    store = tmp_path / "store"
    hold = WriterLease(store, ttl=QUICK, skew=0).acquire()
    until_beaten(store)
    holders.plant(store, holders.claim(2), key=_keys.claim(2))
    processes.until(lambda: hold.state == "lost", "the pulse does not notice")
    before = beat_of(store, hold.nonce)

    with pytest.raises(FencedError):
        hold.check()
    hold.release()
    assert beat_of(store, hold.nonce) == before, "nothing is written under a successor"
