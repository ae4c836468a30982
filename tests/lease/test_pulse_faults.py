"""The pulse among faults: its directory, its disk, its file or its descriptors are gone, or it slept."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tenure import StoreError, WriterLease
from tenure._lease import _keys
from tests.helpers import holders, processes, tracing
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_MOUNT, NEEDS_STRACE
from tests.helpers.scripts import Script, ran
from tests.lease.beats import beat_of, nonce_of, taken, unknowable, until_beaten
from tests.lease.stores import LONG

BEAT = _keys.beat(1)
QUICK = 0.15

HOLDER = """
    import tenure
    hold = tenure.WriterLease(sys.argv[1], ttl=float(sys.argv[2]), skew=0.1).acquire()
    print(hold.fence)
    for line in sys.stdin:
        word = line.strip()
        try:
            print(eval(word))
        except tenure.Error as error:
            print(error.kind)
"""


def test_a_directory_that_was_away_for_a_while_costs_no_hold(tmp_path: Path) -> None:
    store, away = tmp_path / "store", tmp_path / "away"
    hold = WriterLease(store, ttl=QUICK, skew=0).acquire()
    until_beaten(store)
    store.rename(away)
    with pytest.raises(StoreError):
        hold.check()
    processes.until(lambda: hold.state == "expired", "it does not expire without its directory")
    away.rename(store)

    processes.until(lambda: hold.state == "held", "the pulse does not recover")
    hold.check()
    assert hold.fence == 1
    hold.release()
    assert WriterLease(store).inspect().state == "free"


@NEEDS_MOUNT
@NEEDS_LINUX_PROC
def test_a_read_only_mount_expires_the_hold_and_a_writable_one_brings_it_back(tmp_path: Path) -> None:
    where = tmp_path / "mounted"
    where.mkdir()
    with Script(HOLDER, where / "store", QUICK, prefix=("unshare", "--mount")) as holder:
        assert holder.says() == "1"

        def in_its_namespace(command: str) -> None:
            enter = ["nsenter", "-t", str(holder.pid), "-m", "sh", "-c", command, str(where)]
            subprocess.run(enter, check=True)

        def state() -> str:
            holder.tell("hold.state")
            return holder.says()

        # Over it and not in its place: the lifeline is open for writing there.
        in_its_namespace('mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"')
        processes.until(lambda: state() == "expired", "a beat is written on a read-only file system")
        holder.tell("hold.check()")
        assert holder.says() == "store_failed"
        in_its_namespace('umount "$0"')
        processes.until(lambda: state() == "held", "the pulse does not recover")
        holder.tell("hold.check()")
        assert holder.says() == "None"


@NEEDS_STRACE
@NEEDS_LINUX_PROC
@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT"])
def test_on_a_full_disk_the_time_stamp_is_the_beat(tmp_path: Path, error: str) -> None:
    """As on btrfs, where even a write in place needs room."""
    store = tmp_path / "store"
    with holders.holding(store, ttl=QUICK) as agent:
        until_beaten(store)
        nonce = nonce_of(store)
        with tracing.failing(agent, "pwrite64", error):
            number, _, stamp = beat_of(store, nonce)
            for _ in range(3):
                last = beat_of(store, nonce)[2]
                processes.until(lambda last=last: beat_of(store, nonce)[2] > last, "the stamp stands still")  # type: ignore[misc]
            assert beat_of(store, nonce)[0] == number
            assert beat_of(store, nonce)[2] > stamp
            assert agent.ask("check_hold") == "ok"

            def watched() -> int:
                lease.inspect()
                seen = lease._observer._silence.watched()
                assert seen is not None
                return int(seen.seen[3] or 0)

            with unknowable(store):
                lease = WriterLease(store)
                first = watched()
                processes.until(lambda: watched() > first, "an observer does not count the stamp as a beat")
                seen = lease._observer._silence.watched()
            assert seen is not None
            assert seen.seconds == 0, "its watch has started again"


@pytest.mark.parametrize("how", ["a file", "a link", "a pipe"])
def test_what_replaced_the_heartbeats_file_is_not_written_to(tmp_path: Path, how: str) -> None:
    store, victim = tmp_path / "store", tmp_path / "victim"
    hold = WriterLease(store, ttl=QUICK, skew=0).acquire()
    until_beaten(store)
    victim.write_bytes(b"precious" * 40)
    path = store / BEAT
    if how == "a file":
        victim.rename(path)
        victim = path
    else:
        path.unlink()
        if how == "a link":
            path.symlink_to(victim)
        else:
            os.mkfifo(path)

    processes.until(lambda: hold.state == "expired", "beats reach something else")
    with pytest.raises(StoreError):
        hold.renew()
    hold.release()
    assert victim.read_bytes() == b"precious" * 40


def test_two_holds_of_one_process_beat_each_for_itself(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    holds = [WriterLease(store, ttl=QUICK, skew=0).acquire() for store in (one, other)]
    until_beaten(one, 2)
    until_beaten(other, 2)
    holds[0].release()
    until_beaten(other, 2)

    assert (holds[0].state, holds[1].state) == ("released", "held")
    assert WriterLease(one).inspect().state == "free"
    holds[1].check()
    holds[1].release()


CLOSER = """
    import time, tenure
    import logging
    logging.disable()
    hold = tenure.WriterLease(sys.argv[1], ttl=0.15, skew=0).acquire()
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    os.closerange(3, highest + 1)
    victims = [os.open(sys.argv[2], os.O_RDWR) for _ in range(highest + 4)]
    time.sleep(0.4)
    try:
        hold.check()
        print("still ours")
    except tenure.FencedError as error:
        print(error.kind, error.ours, error.current)
    hold.release()
    for fd in victims:
        os.fstat(fd)
    print(hold.state)
"""


@NEEDS_LINUX_PROC
def test_closing_every_descriptor_fences_the_holder_and_harms_no_file(tmp_path: Path) -> None:
    """Daemon libraries do it. The numbers are given out again, to files that are none of our business."""
    store, victim = tmp_path / "store", tmp_path / "victim"
    victim.write_bytes(b"precious" * 40)
    said = ran(CLOSER, store, victim).splitlines()

    assert said == ["fenced 1 1", "released"]
    assert victim.read_bytes() == b"precious" * 40
    assert taken(WriterLease(store)) == 2


@NEEDS_LINUX_PROC
def test_a_stopped_holder_that_nobody_robbed_goes_on_with_its_fence(tmp_path: Path) -> None:
    """B54: it slept three times its ttl, nobody was there. Expired is not lost."""
    store = tmp_path / "store"
    with holders.stopped(store, ttl=QUICK, skew=0.05) as agent:
        time.sleep(3 * QUICK)
        os.kill(agent.pid, signal.SIGCONT)
        assert agent.ask("check_hold") == "ok"
        assert WriterLease(store).inspect().fence == 1


WOKEN = """
    import logging, time, threading, tenure
    logging.disable()
    calls = []
    threading.excepthook = lambda args: print("thread", args.exc_type)
    lease = tenure.WriterLease(sys.argv[1], ttl=0.15, skew=0.05, on_lost=lambda hold: calls.append(hold.state))
    hold = lease.acquire()
    print("held")
    sys.stdin.readline()
    deadline = time.monotonic() + 20
    while not calls and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    print(calls, hold.state)
    for call in (hold.check, hold.renew, hold.lifeline_fileno):
        try:
            call()
            print("usable")
        except tenure.FencedError as error:
            print(error.current)
    hold.release()
"""


@NEEDS_LINUX_PROC
def test_a_holder_robbed_in_its_sleep_wakes_up_lost_and_alive(tmp_path: Path) -> None:
    """B55: no exception in a background thread, no exit; one callback, and the next call of the owner raises."""
    store = tmp_path / "store"
    with Script(WOKEN, store) as holder:
        assert holder.says() == "held"
        holder.send(signal.SIGSTOP)
        processes.until_state(holder.pid, "T")
        lease = WriterLease(store)
        forced = lease.force_release(lease.inspect().nonce, even_if_alive=True)
        assert forced.fence == 2
        taker = lease.acquire()
        holder.send(signal.SIGCONT)
        holder.tell()
        assert holder.says() == "['lost'] lost"
        assert [holder.says() for _ in range(3)] == ["2", "2", "2"]
        assert holder.ends() == (0, "", "")

    taker.check()
    taker.release()


@pytest.mark.parametrize("what", ["directory", "claim", "heartbeat"])
def test_a_pulse_for_what_is_not_there_is_refused(tmp_path: Path, what: str) -> None:
    from tenure._core import LocalHold
    from tenure._identity import ProcessIdentity
    from tenure._lease._beat import DIGITS_AT, encode

    places = {name: tmp_path / name for name in ("claim", "successor", "heartbeat")}
    for name in ("claim", "heartbeat"):
        if name != what:
            places[name].write_bytes(b"")
    directory = tmp_path / "nowhere" if what == "directory" else tmp_path
    if what == "directory":
        places = {name: directory / name for name in places}
    with pytest.raises(OSError):
        LocalHold(
            directory=directory,
            claim=places["claim"],
            claimed=b"",
            successor=places["successor"],
            fence=1,
            heartbeat=places["heartbeat"],
            held=encode(holders.NONCE, 0, "held"),
            released=encode(holders.NONCE, 0, "released"),
            digits_at=DIGITS_AT,
            interval=LONG,
            holder=ProcessIdentity.current(),
            lifeline=None,
        )
