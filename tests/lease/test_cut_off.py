"""An acquire that is interrupted, or meets errors, at any point: no hold is half held, and nobody is blocked."""

from __future__ import annotations

import dis
import gc
import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tenure
from tenure import Error, Hold, StoreError, WriterBusyError, WriterLease, _lifeline
from tenure._lease import _keys, _tenancy
from tenure._lease._tenancy import tenancy_of
from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore, Operation
from tenure.stores import Store
from tenure.testing import ManualClock
from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.lease.owners import pulses
from tests.lease.stores import LONG, put, records

CLAIM = _keys.claim(1)

HERE = Path(tenure.__file__).parent


INSIDE = (str(HERE / "_lease") + os.sep, str(HERE / "_lifeline.py"))


def takes_no_signal(frame: FrameType) -> bool:
    """Where tracing stops and a signal handler never runs: at a bare `try:`, and where a `with` block is left."""
    doing = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
    # A `with` is entered by loading what it is about; it is left by anything else.
    entering = {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "PUSH_NULL"}
    return doing == "NOP" or (line.startswith("with ") and doing not in entering)


class Interrupter:
    """
    Raises KeyboardInterrupt before the *nth* line that this thread runs inside the lease.

    Only where Ctrl-C can come: an exception at other instructions would skip the `__exit__` of a lock that is held.
    """

    def __init__(self, nth: int) -> None:
        self._left = nth
        self.where: str | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> Interrupter | None:
        if not frame.f_code.co_filename.startswith(INSIDE):
            return None
        if event == "line" and self.where is None and not takes_no_signal(frame):
            self._left -= 1
            if self._left == 0:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self

    @contextmanager
    def at_work(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


@pytest.fixture(autouse=True)
def _nobody_elses_garbage() -> Iterator[None]:
    """Holds of other tests that are collected meanwhile would be cut off in place of ours, where nobody hears of it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def cut_off_everywhere(make: Callable[[int], Store], blocks: Callable[[Store], str | None]) -> dict[str, list[str]]:
    """Cut an acquire off before each of its lines; for each function, what was wrong afterwards."""
    wrong: dict[str, list[str]] = {}
    for nth in range(1, 2000):
        store = make(nth)
        interrupter = Interrupter(nth)
        lease = WriterLease(store, ttl=LONG)
        try:
            with interrupter.at_work():
                hold = lease.acquire()
        except KeyboardInterrupt:
            pass
        else:
            hold.release()
            if interrupter.where is None:
                assert nth > 50, "nothing was cut off"
                return wrong
        found = blocks(store)
        if found:
            wrong.setdefault(str(interrupter.where), []).append(f"{nth}: {found}")
    raise AssertionError("acquire never came to its end")


def held_on(store: Store) -> str | None:
    """Whether anybody can take the lease now, anew: joining a hold that nobody has would look the same."""
    if tenancy_of(WriterLease(store).inspect().nonce) is not None:
        return "there is still a hold to join"
    try:
        hold = WriterLease(store, ttl=LONG).acquire()
    except WriterBusyError as busy:
        return str(busy)
    hold.check()
    hold.release()
    return None


def left_running(store: Store) -> str | None:
    """Threads, locks and descriptors of a hold that nobody has."""
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("tenure-pulse")]
    for thread in threading.enumerate():
        if thread.name.startswith("tenure-pulse"):
            # Not again for the next cut.
            thread.name = "was a pulse"
    with ThreadPoolExecutor(1) as another:
        for lock in (_lifeline._forking, _tenancy._registry_lock):
            # By another thread, since this one may enter again what it has entered.
            if another.submit(lock.acquire, timeout=0.2).result():
                another.submit(lock.release).result()
            else:
                names.append(f"still locked: {lock}")
    root = str(getattr(store, "_root", "/nowhere"))
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = str(Path(f"/proc/self/fd/{fd}").readlink())
        except OSError:
            continue
        if target.startswith(root + "/"):
            os.close(int(fd))
            names.append(target.removeprefix(root))
    return ", ".join(names) or None


def maker(kind: str, before: str, directory: Path) -> Callable[[int], Store]:
    def make(nth: int) -> Store:
        store = FileStore(directory / str(nth)) if kind == "file" else MemoryStore()
        if before == "a dead holder":
            store.create(CLAIM, holders.claim(1, holder={"v": 1, "os": "linux", "pid": 1}))
            store.create(_keys.beat(1), holders.beat(1, state="released"))
        return store

    return make


@pytest.mark.parametrize("kind", ["file", "memory"])
@pytest.mark.parametrize("before", ["nobody", "a dead holder"])
def test_an_acquire_that_is_cut_off_anywhere_blocks_nobody(tmp_path: Path, kind: str, before: str) -> None:
    """B72. By Ctrl-C before each single line of it; the next one who asks gets the lease."""
    assert cut_off_everywhere(maker(kind, before, tmp_path), held_on) == {}


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("kind", ["file", "memory"])
def test_an_acquire_that_is_cut_off_anywhere_leaves_nothing_running(tmp_path: Path, kind: str) -> None:
    before = pulses()

    assert cut_off_everywhere(maker(kind, "nobody", tmp_path), left_running) == {}
    processes.until(lambda: pulses() <= before, "a pulse runs on")


@pytest.mark.parametrize("operation", ["list", "read", "create", "replace"])
@pytest.mark.parametrize("what", ["fail", "lose_reply", "fail for good"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_an_acquire_that_meets_an_error_at_any_request_blocks_nobody(operation: Operation, what: str, nth: int) -> None:
    """B72: the error was swallowed, and two schedulers ran. Here an error is no hold, and no hold stays behind."""
    store = MemoryStore()
    fault = store.on(operation, nth=nth)
    if what == "lose_reply":
        fault.lose_reply()
    else:
        fault.fail(StoreError("broken") if what == "fail for good" else None)
    hold: Hold | None = None
    try:
        hold = WriterLease(store, ttl=LONG).acquire()
    except Error:
        pass
    store.heal()
    if hold is not None:
        hold.check()
        hold.release()

    after = WriterLease(store, ttl=LONG).acquire()

    after.check()
    after.release()


@pytest.mark.parametrize("nth", [1, 2])
def test_a_lost_reply_does_not_make_a_waiting_acquire_wait_for_itself(nth: int) -> None:
    """The claim landed, the answer did not: it names a living process, us."""
    store = MemoryStore()
    store.on("create", nth=nth).lose_reply()

    hold = WriterLease(store, ttl=LONG, clock=ManualClock()).acquire(timeout=5)

    hold.check()
    assert hold.fence == 1


def test_a_reply_that_another_won_is_no_hold() -> None:
    """The store fails after somebody else's claim landed under the number that we wanted."""
    store = MemoryStore()
    store.on("create", "lease/").run(lambda: put(store, CLAIM, holders.claim()))
    with pytest.raises(WriterBusyError) as busy:
        WriterLease(store, ttl=LONG).acquire()

    assert busy.value.fence == 1
    assert records(store)[CLAIM] == holders.claim()


def test_a_number_that_was_collected_and_created_again_is_no_hold() -> None:
    """A taker stalls between its look and its claim; others take and collect meanwhile. Its claim must not count."""
    store = MemoryStore()
    put(store, CLAIM, holders.claim())
    put(store, _keys.beat(1), holders.beat(1, state="released"))

    def others() -> None:
        store.heal()
        put(store, _keys.claim(5), holders.claim(5))

    store.on("create", _keys.claim(2)).run(others)
    with pytest.raises(WriterBusyError) as busy:
        WriterLease(store, ttl=LONG).acquire()

    assert busy.value.fence == 5
