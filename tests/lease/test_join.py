"""Joining: a second acquire of the same process counts on the same hold, and a lost hold is joined by nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tenure import FencedError, Hold, HoldError, StoreError, StoreUnavailableError, WriterBusyError, WriterLease
from tenure._lease import _keys, _tenancy
from tenure._store._memory import MemoryStore
from tenure.testing import ManualClock
from tests.helpers import holders
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.helpers.scripts import ran
from tests.lease.beats import taken
from tests.lease.stores import LONG, interrupt, put

MAKERS: dict[str, Callable[[Path], object]] = {
    "a directory": lambda path: str(path / "store"),
    "another store": lambda path: MemoryStore(),
}


@pytest.fixture(params=list(MAKERS.values()), ids=list(MAKERS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def lease_of(store: Any, **options: Any) -> WriterLease:
    return WriterLease(store, ttl=LONG, **options)


def supersede(lease: WriterLease, fence: int = 2) -> None:
    """Put another holder's claim above ours, as after a takeover that the pulse has not noticed."""
    lease.store.create(_keys.claim(fence), holders.claim(fence))


@pytest.mark.parametrize("first", [0, 1])
def test_holds_of_one_process_share_a_fence_until_the_last_is_released(store: Any, first: int) -> None:
    lease = lease_of(store)
    holds = [lease.acquire(), lease.acquire()]
    assert [hold.fence for hold in holds] == [1, 1]
    assert holds[0].nonce == holds[1].nonce

    holds[first].release()
    assert lease.inspect().state == "held"
    holds[1 - first].check()
    assert [holds[first].state, holds[1 - first].state] == ["released", "held"]
    with pytest.raises(HoldError):
        holds[first].check()

    holds[1 - first].release()
    assert lease.inspect().state == "free"
    assert taken(lease) == 2


def test_releasing_one_hold_twice_does_not_release_another(store: Any) -> None:
    lease = lease_of(store)
    one, other = lease.acquire(), lease.acquire()
    one.release()
    one.release()

    other.check()
    assert lease.inspect().state == "held"
    other.release()


def test_another_lease_object_of_the_same_store_joins(store: Any) -> None:
    hold = lease_of(store, label="one").acquire()
    joined = lease_of(store, label="another").acquire()

    assert joined.nonce == hold.nonce
    hold.release()
    joined.check()
    joined.release()


def test_joining_writes_no_claim(tmp_path: Path) -> None:
    lease = lease_of(tmp_path / "store")
    hold = lease.acquire()
    before = sorted(path.name for path in (tmp_path / "store/lease").iterdir())
    joined = lease.acquire()

    assert sorted(path.name for path in (tmp_path / "store/lease").iterdir()) == before
    hold.release()
    joined.release()


WAYS_TO_ASK: dict[str, Callable[[WriterLease], object]] = {
    "the same lease": lambda lease: lease.acquire(),
    "another lease": lambda lease: lease_of(lease.store).acquire(),
    "one with a callback": lambda lease: lease_of(lease.store, on_lost=lambda hold: None).acquire(),
    "another thread": lambda lease: ThreadPoolExecutor(1).submit(lease.acquire).result(),
    "one that waits": lambda lease: WriterLease(lease.store, clock=ManualClock()).acquire(timeout=3),
}


@pytest.mark.parametrize("noticed", [False, True], ids=["unnoticed", "noticed"])
@pytest.mark.parametrize("ask", WAYS_TO_ASK.values(), ids=WAYS_TO_ASK.keys())
def test_a_lost_hold_is_joined_by_nobody(store: Any, ask: Callable[[WriterLease], object], noticed: bool) -> None:
    lease = lease_of(store)
    hold = lease.acquire()
    supersede(lease)
    if noticed:
        with pytest.raises(FencedError):
            hold.check()

    for _ in range(2):
        with pytest.raises(WriterBusyError) as busy:
            ask(lease)
        assert busy.value.fence == 2, "busy by the one who is there, not by us"
    with pytest.raises(FencedError):
        hold.check()
    hold.release()


def test_a_claim_that_appears_between_the_look_and_the_join_is_seen(tmp_path: Path) -> None:
    """The pulse cannot have noticed; the authority is asked again."""
    lease = lease_of(tmp_path / "store")
    hold = lease.acquire()
    seen = lease.inspect()
    supersede(lease)

    assert lease._join(seen) is None
    assert hold.state == "lost"
    hold.release()


def test_after_a_loss_a_new_hold_has_a_new_fence_and_the_old_one_stays_lost(store: Any) -> None:
    lease = lease_of(store)
    lost = lease.acquire()
    lease.force_release(lost.nonce, even_if_alive=True)
    fresh = lease.acquire()
    joined = lease.acquire()

    assert (fresh.fence, joined.fence) == (3, 3)
    with pytest.raises(FencedError):
        lost.check()
    lost.release()
    fresh.check()
    fresh.release()
    joined.check()
    joined.release()


def test_an_unreadable_store_joins_nobody() -> None:
    store = MemoryStore()
    lease = lease_of(store)
    hold = lease.acquire()
    # The look is answered, and the question after it is not.
    look = lease._observer.look()
    store.on("list").fail()
    with pytest.raises(StoreUnavailableError):
        lease._join(look)

    hold.check()
    hold.release()
    assert lease.inspect().state == "free", "the join that failed counts for nothing"


def test_a_directory_that_cannot_be_read_joins_nobody(tmp_path: Path) -> None:
    lease = lease_of(tmp_path / "store")
    hold = lease.acquire()
    seen = lease.inspect()
    claim = tmp_path / "store" / _keys.claim(1)
    claim.rename(tmp_path / "aside")
    with pytest.raises(StoreError):
        lease._join(seen)
    (tmp_path / "aside").rename(claim)

    hold.check()
    hold.release()
    assert lease.inspect().state == "free"


def test_each_joiners_callback_is_called_once_with_its_own_hold(store: Any) -> None:
    calls: list[Hold] = []
    leases = [lease_of(store, on_lost=calls.append) for _ in range(3)]
    holds = [lease.acquire() for lease in leases]
    quiet = lease_of(store).acquire()
    supersede(leases[0])

    for _ in range(3):
        for hold in (*holds, quiet):
            with pytest.raises(FencedError):
                hold.check()
    assert calls == holds
    for hold in (*holds, quiet):
        hold.release()
    assert calls == holds


def test_a_callback_that_fails_keeps_no_other_from_being_called(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[Hold] = []

    def fail(hold: Hold) -> None:
        raise RuntimeError("the owner's fault")

    one = lease_of(store, on_lost=fail).acquire()
    other = lease_of(store, on_lost=calls.append).acquire()
    supersede(lease_of(store))
    with pytest.raises(FencedError):
        one.check()

    assert calls == [other]
    assert "the owner's fault" in caplog.text
    one.release()
    other.release()


def test_a_hold_lost_while_it_is_joined_tells_the_joiner_too(store: Any) -> None:
    """Lost after the join was checked and before its callback was known: it is called all the same."""
    calls: list[Hold] = []
    lease = lease_of(store, on_lost=calls.append)
    hold = lease_of(store).acquire()
    tenancy = _tenancy.tenancy_of(hold.nonce)
    assert tenancy is not None
    tell = lease._tell_when_lost

    def lose_it_first(joined: Hold, of: _tenancy.Tenancy) -> None:
        supersede(lease)
        with pytest.raises(FencedError):
            hold.check()
        tell(joined, of)

    lease._tell_when_lost = lose_it_first  # type: ignore[method-assign,assignment]
    joined = lease.acquire()

    assert calls == [joined]
    joined.release()
    hold.release()


def test_a_released_hold_is_not_joined(store: Any) -> None:
    lease = lease_of(store)
    lease.acquire().release()
    assert taken(lease) == 2


@pytest.mark.parametrize("where", ["_tell_when_lost", "check"])
def test_a_join_that_is_cut_off_counts_for_nothing(store: Any, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C: else the count would never come down to nothing, and the process would hold the lease for ever."""
    lease = lease_of(store)
    hold = lease.acquire()
    with monkeypatch.context() as patched:
        patched.setattr(WriterLease if where != "check" else Hold, where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            lease.acquire()
    hold.release()

    assert lease.inspect().state == "free"


def test_an_acquire_cut_off_when_all_is_done_leaves_nothing_to_join(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step of an acquire is cut off: its hold is over, and the next acquire must not be handed it."""
    lease = lease_of(store)
    with monkeypatch.context() as patched:
        patched.setattr(WriterLease, "_tell_when_lost", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lease.acquire()
    hold = lease.acquire()

    assert hold.fence == 2
    hold.check()
    hold.release()


IN_A_CHILD = """
    import tenure
    lease = tenure.WriterLease(sys.argv[1])
    hold = lease.acquire()
    if os.fork():
        os.wait()
        hold.check()
        hold.release()
        print(lease.inspect().state)
        sys.exit()
    for own in (lease, tenure.WriterLease(sys.argv[1])):
        try:
            print(own.acquire().fence)
        except tenure.WriterBusyError as error:
            print(error.kind, error.fence)
    hold.release()
    os._exit(0)
"""


@NEEDS_LINUX_PROC
def test_a_forked_child_does_not_join_its_parents_hold(tmp_path: Path) -> None:
    assert ran(IN_A_CHILD, tmp_path / "store").splitlines() == ["writer_busy 1", "writer_busy 1", "free"]


def test_threads_that_join_and_release_at_once_release_once_and_leak_nothing(tmp_path: Path) -> None:
    """Each is granted or told busy by our own release; whoever holds passes its check; the end is a free lease."""
    path = tmp_path / "store"
    lease, wrong, granted = lease_of(path), [], []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for _ in range(25):
            try:
                hold = lease_of(path).acquire() if number % 2 else lease.acquire()
            except WriterBusyError:
                continue
            try:
                hold.check()
                granted.append(hold.fence)
            except Exception as error:  # noqa: BLE001  counted
                wrong.append(error)
            finally:
                hold.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert granted
    assert lease.inspect().state == "free"
    # By another process, which would be told busy by a lifeline that we forgot.
    said = ran("import tenure; hold = tenure.WriterLease(sys.argv[1]).acquire(); print(hold.fence)", path)
    assert int(said) == max(granted) + 1
    assert len(list((path / "lease/lifeline").iterdir())) <= 1


def test_two_holds_that_are_released_at_the_same_moment_end_it(store: Any) -> None:
    """Neither is the last one when it looks first, and one of them must be."""
    lease = lease_of(store)
    for _ in range(200):
        holds = [lease.acquire() for _ in range(4)]
        start = threading.Barrier(4)

        def release(hold: Hold, start: threading.Barrier = start) -> None:
            start.wait()
            hold.release()

        threads = [threading.Thread(target=release, args=(hold,)) for hold in holds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert lease.inspect().state == "free"


def test_a_hold_that_is_being_released_is_not_joined(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end under whoever has just been granted it."""
    lease = lease_of(store)
    hold = lease.acquire()
    answers: list[object] = []
    end = _tenancy.Tenancy._end

    def join_first(tenancy: _tenancy.Tenancy, *, release: bool) -> None:
        answers.append(tenancy.join(object()))
        end(tenancy, release=release)

    monkeypatch.setattr(_tenancy.Tenancy, "_end", join_first)
    hold.release()

    assert answers == [False]
    assert lease.inspect().state == "free"


def test_two_threads_that_release_one_hold_release_it_once(store: Any) -> None:
    lease = lease_of(store)
    for _ in range(20):
        one, other = lease.acquire(), lease.acquire()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda hold: hold.release(), [one] * 4))
        other.check()
        other.release()
        assert lease.inspect().state == "free"


def test_a_claim_that_only_looks_like_ours_is_not_joined(tmp_path: Path) -> None:
    """A record with our nonce, written by somebody else in our claim's place."""
    store = MemoryStore()
    lease = lease_of(store)
    hold = lease.acquire()
    put(store, _keys.claim(1), holders.claim(1, nonce=hold.nonce))

    with pytest.raises(WriterBusyError):
        lease.acquire()
    assert hold.state == "lost"
    hold.release()
