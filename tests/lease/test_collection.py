"""Old claims go, so that a look does not grow with history; the fence does not fall, whoever stalls or dies meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure import FencedError, Hold, WriterLease
from tenure._lease import _keys
from tenure._lease._collection import KEPT
from tenure._lifeline import Lifeline
from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore, Operation
from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.lease.stores import LONG, put

# Fences at which a directory is cleaned up, and at which a store of requests is searched for what was left over.
DUE = {"directory": 1280, "memory": 1024}
# The lowest claim that is there then, if nothing was left over.
LOWEST = {"directory": 1, "memory": DUE["memory"] - KEPT}


def history_up_to(highest: int, lowest: int = 1) -> dict[str, bytes]:
    """The claim and the beat of each fence from *lowest* to *highest*, all given back."""
    made = {}
    for fence in range(lowest, highest + 1):
        nonce = f"{fence:032x}"
        made[_keys.claim(fence)] = holders.claim(fence, nonce=nonce)
        made[_keys.beat(fence)] = holders.beat(1, nonce=nonce, state="released")
    return made


def requests(highest: int, lowest: int = 1) -> MemoryStore:
    """A store, each use of which is a request, with such a history."""
    store = MemoryStore()
    for key, record in history_up_to(highest, lowest).items():
        put(store, key, record)
    return store


def directory(path: Path, highest: int) -> FileStore:
    """A directory with such a history."""
    for key, record in history_up_to(highest).items():
        holders.plant(path / "store", record, key=key)
    return FileStore(path / "store")


def crowded(kind: str, path: Path, highest: int) -> FileStore | MemoryStore:
    return directory(path, highest) if kind == "directory" else requests(highest, LOWEST[kind])


def fences(store: FileStore | MemoryStore) -> tuple[list[int], list[int]]:
    """Whose claims and whose beats are there."""
    keys = list(store.list("lease/"))
    claims, beats = map(_keys.fence_of, keys), map(_keys.fence_of_beat, keys)
    return [fence for fence in claims if fence], [fence for fence in beats if fence]


@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_the_last_thousand_are_kept(tmp_path: Path, kind: str) -> None:
    store = crowded(kind, tmp_path, DUE[kind] - 1)

    with WriterLease(store, ttl=LONG).acquire() as hold:
        assert hold.fence == DUE[kind]
        hold.check()
        kept = list(range(hold.fence - KEPT + 1, hold.fence + 1))
        assert fences(store)[0] == kept
        hold.renew()
        assert fences(store)[1] == kept
    with WriterLease(store, ttl=LONG).acquire() as hold:
        assert hold.fence == DUE[kind] + 1


@pytest.mark.parametrize("beside", [-1, 1])
def test_at_most_acquires_no_directory_is_cleaned_up(tmp_path: Path, beside: int) -> None:
    store = directory(tmp_path, DUE["directory"] - 1 + beside)

    with WriterLease(store, ttl=LONG).acquire():
        assert fences(store)[0][0] == 1


def test_where_each_use_is_a_request_no_acquire_pays_for_many(tmp_path: Path) -> None:
    """Also with a lot left over: three more than an acquire costs by itself, and ten at every sixteenth."""

    def cost(store: MemoryStore) -> int:
        before = len(store.calls)
        WriterLease(store, ttl=LONG).acquire().release()
        return len(store.calls) - before

    alone = cost(requests(KEPT - 1))
    store = requests(1500)
    costs = {fence: cost(store) - alone for fence in range(1501, 1565)}

    assert {fence: extra for fence, extra in costs.items() if extra > (3 if fence % 16 else 10)} == {}
    assert sum(costs.values()) > 64


def test_what_was_left_over_comes_to_its_end(tmp_path: Path) -> None:
    """Claims of collectors that were killed."""
    store = requests(1010)
    lease = WriterLease(store, ttl=LONG)
    for _ in range(5 * 16 + 6):
        lease.acquire().release()

    assert fences(store)[0] == fences(store)[1] == list(range(1096 - KEPT + 1, 1096 + 1))


def test_what_cannot_be_removed_holds_up_nothing_else(tmp_path: Path) -> None:
    store = requests(1010)
    damaged = [1, 2, 3, 4]
    for fence in damaged:
        put(store, _keys.claim(fence), b"torn")
    lease = WriterLease(store, ttl=LONG)
    for _ in range(60 * 16):
        lease.acquire().release()
        if fences(store)[0][: len(damaged) + 1] == [*damaged, lease.inspect().fence - KEPT + 1]:
            return
    raise AssertionError(fences(store)[0][:20])


@pytest.mark.parametrize("carried", [True, False])
def test_a_lifeline_goes_with_its_claim_unless_somebody_carries_it(tmp_path: Path, carried: bool) -> None:
    store = directory(tmp_path, DUE["directory"] - 1)
    key = _keys.lifeline(f"{7:032x}")
    lifeline = Lifeline.create(store, key)
    assert lifeline is not None
    record = holders.claim(7, nonce=f"{7:032x}", lifeline=lifeline.place.to_record())
    holders.plant(Path(store.root), record, key=_keys.claim(7))
    if not carried:
        lifeline.close(remove=False)

    with WriterLease(store, ttl=LONG).acquire():
        assert 7 not in fences(store)[0]
        assert store.path_of(key).exists() is carried


def test_what_cannot_be_read_is_kept_for_the_operator(tmp_path: Path) -> None:
    store = directory(tmp_path, DUE["directory"] - 1)
    holders.plant(Path(store.root), b"torn", key=_keys.claim(7))
    holders.plant(Path(store.root), holders.claim(8, v=2), key=_keys.claim(8))

    with WriterLease(store, ttl=LONG).acquire():
        assert fences(store)[0][:3] == [7, 8, DUE["directory"] - KEPT + 1]


@pytest.mark.parametrize(("what", "nth"), [("delete", 1), ("delete", 2), ("read", 1), ("list", 1)])
def test_a_failure_half_way_is_nobodys_and_is_made_good_the_next_time(what: Operation, nth: int) -> None:
    store = requests(DUE["memory"] - 1, LOWEST["memory"])
    lease = WriterLease(store, ttl=LONG)
    # Not before the claim has been written, so that the acquire itself goes well.
    broken = store.on("create", _keys.claim(DUE["memory"]))

    def fail_from_here() -> None:
        store.on(what, "lease/", nth=nth + (1 if what == "list" else 0)).fail()

    broken.run(fail_from_here)
    with lease.acquire() as hold:
        store.heal()
        hold.check()
    for _ in range(16):
        lease.acquire().release()

    highest = DUE["memory"] + 16
    assert fences(store)[0] == fences(store)[1] == list(range(highest - KEPT + 1, highest + 1))


def test_whoever_stalled_until_its_number_was_collected_goes_back(tmp_path: Path) -> None:
    """SlateDB's #352, for claims: the number is free again, and a conditional create alone would grant it."""
    store = MemoryStore()
    put(store, _keys.claim(1), holders.claim(1))
    put(store, _keys.beat(1), holders.beat(1, state="released"))

    def others() -> None:
        for key, record in history_up_to(DUE["memory"] - 1).items():
            put(store, key, record)
        current.append(WriterLease(store, ttl=LONG).acquire())

    current: list[Hold] = []
    store.on("create", _keys.claim(2)).run(others)
    late = WriterLease(store, ttl=LONG).acquire()

    assert late.fence == DUE["memory"], "it joins what this process has, above everything"
    assert 2 in fences(store)[0], "the word that it wrote is below all others, and goes with the next collection"
    late.check()
    late.release()
    current[0].release()


def test_history_says_that_older_ones_are_gone(tmp_path: Path) -> None:
    store = directory(tmp_path, DUE["directory"] - 1)
    lease = WriterLease(store, ttl=LONG)
    assert next(lease.history()).ended == "released"
    with lease.acquire() as hold:
        first, second, *_ = lease.history()

    assert (first.fence, first.ended) == (hold.fence - KEPT, "collected")
    assert (second.fence, second.ended) == (hold.fence - KEPT + 1, "released")


@NEEDS_LINUX_PROC
def test_a_stalled_holder_whose_claim_was_collected_hears_of_its_loss(tmp_path: Path) -> None:
    """The next claim, which its pulse looks for, is gone as well."""
    store = tmp_path / "store"
    hold = WriterLease(store, ttl=0.3).acquire()
    holders.plant(store, holders.claim(2000), key=_keys.claim(2000))
    (store / _keys.beat(1)).unlink()
    (store / _keys.claim(1)).unlink()

    processes.until(lambda: hold.state == "lost", "the pulse does not notice")
    with pytest.raises(FencedError) as fenced:
        hold.check()
    assert fenced.value.ours == 1
    hold.release()
