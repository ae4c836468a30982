"""The commit log: sealed by each new writer, and decided by its slots."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure import (
    CommitLog,
    CommitUnknownError,
    FencedError,
    LogWriter,
    Prepared,
    RecordError,
    StoreCannotLockError,
    StoreError,
    StoreUnavailableError,
    WriterLease,
)
from tenure._commit import _keys
from tenure._commit._collect import _remove_below
from tenure._commit._entry import Entry
from tenure._commit._log import _BATCH
from tenure._lease import _keys as lease_keys
from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore
from tenure.stores import Stored
from tests.commit.logs import Desk, desk

_BEAT = lease_keys.beat(1)


@pytest.fixture
def it() -> Iterator[Desk]:
    with desk() as made:
        yield made


@pytest.fixture(params=["memory", "file"])
def any_desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    with desk(MemoryStore() if request.param == "memory" else FileStore(tmp_path / "store")) as made:
        yield made


def test_what_was_committed_is_read_in_order(any_desk: Desk) -> None:
    writer = any_desk.writer()
    done = [writer.commit({"n": number}) for number in range(3)]
    assert [one.slot for one in done] == [2, 3, 4]
    assert any_desk.bodies() == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [entry.kind for entry in any_desk.log().read()] == ["seal", "commit", "commit", "commit"]


def test_a_replaced_writer_is_refused_by_the_log_though_it_noticed_nothing(any_desk: Desk) -> None:
    old = any_desk.writer()
    old.commit("old")
    new = any_desk.writer()
    with pytest.raises(FencedError) as caught:
        old.commit("too late")
    assert (caught.value.applied, caught.value.current) == (False, new.fence)
    new.commit("new")
    with pytest.raises(FencedError):
        old.commit("still too late")
    assert any_desk.bodies() == ["old", "new"]


def test_a_writer_that_slept_through_others_and_a_clean_up_is_still_refused(any_desk: Desk) -> None:
    """B67: the conflict evidence must not be deleted."""
    asleep = any_desk.writer()
    busy = any_desk.writer()
    busy.commit("acknowledged")
    busy.collect(busy.snapshot("all").slot, undecided=None)
    any_desk.holds[-1].release()
    with pytest.raises(FencedError):
        asleep.commit("into the void")
    assert [entry.body for entry in any_desk.log().read()] == ["all"]


def test_seals_are_kept_for_ever(any_desk: Desk) -> None:
    for _ in range(2):
        any_desk.writer().commit("x")
    writer = any_desk.writer()
    writer.commit("x")
    writer.collect(writer.snapshot("all").slot, undecided=None)
    kept = [slot for slot in any_desk.slots() if slot < any_desk.log().floor]
    assert [any_desk.record(slot)["kind"] for slot in kept] == ["seal"] * 3


def test_the_log_is_not_opened_below_a_higher_fence_in_it(it: Desk) -> None:
    """Claims were removed, or a backup of them restored; the log is the second witness."""
    for _ in range(2):
        it.writer().commit("x")
    for key in list(it.store.list("lease/")):
        it.store.delete(key)
    hold = WriterLease(it.store, clock=it.clock).acquire()
    with hold, pytest.raises(FencedError, match="higher fence"):
        it.log().open(hold)


def test_a_seal_whose_slot_was_collected_beneath_it_is_made_again(it: Desk) -> None:
    """The holder before goes on until the very moment of the seal, and tidies up: SlateDB #1682."""
    before = it.writer()

    def goes_on() -> None:
        before.commit("late, and in time")
        # It had asked whether it is current, and slept since.
        floor = before.snapshot("all").slot
        it.store.create(_keys.floor(floor), _keys.NOTE)
        _remove_below(it.store, floor)

    hold = it.hold()
    it.memory.on("create", "log/0").run(once(goes_on))
    writer = it.log().open(hold)
    assert writer.seal > it.log().floor
    writer.commit("mine")
    assert it.bodies() == ["mine"]
    assert [entry.slot for entry in it.log().read()] == list(range(it.log().floor, writer.head + 1))


def test_a_writer_that_is_replaced_while_it_seals_is_fenced(it: Desk) -> None:
    hold = it.hold()
    it.memory.on("create", "log/0").run(once(it.hold))
    with pytest.raises(FencedError):
        it.log().open(hold)


@pytest.mark.parametrize("what", ["seal", "commit"])
def test_a_lost_reply_is_asked_again_and_lands_once(what: str) -> None:
    with desk(patience_s=5.0) as it:
        fault = it.memory.on("create", "log/0", nth=1 if what == "seal" else 2)
        fault.lose_reply()
        it.writer().commit("once")
        assert it.bodies() == ["once"]
        assert it.slots() == [1, 2]


def test_a_refusal_before_anything_was_sent_is_an_error_and_the_writer_goes_on(it: Desk) -> None:
    writer = it.writer()
    it.memory.on("create", "log/0").fail()
    with pytest.raises(StoreUnavailableError) as caught:
        writer.commit("not sent")
    assert caught.value.applied is False
    writer.commit("sent")
    assert it.bodies() == ["sent"]


def unknown(it: Desk, *, arrives: bool) -> tuple[CommitUnknownError, CommitLog, LogWriter]:
    """A commit without an answer; whether it is in the log, nobody has been told."""
    log = it.log()
    writer = log.open(it.hold())
    # With an id, so that what is in the log has been read before the store fails.
    writer.commit("before", id="payment-6")
    fault = it.memory.on("create", "log/0", nth=0)
    fault.lose_reply() if arrives else fault.fail(StoreUnavailableError("no answer", applied=None))
    it.memory.on("read", "log/0", nth=0).fail()
    with pytest.raises(CommitUnknownError) as caught:
        writer.commit("unknown", id="payment-7")
    it.memory.heal()
    assert caught.value.applied is None
    assert caught.value.commit_id == "payment-7"
    return caught.value, log, writer


@pytest.mark.parametrize("arrives", [True, False])
def test_an_unknown_commit_is_settled_before_the_next_one(it: Desk, arrives: bool) -> None:
    _, _, writer = unknown(it, arrives=arrives)
    writer.commit("next")
    assert it.bodies() == ["before", "unknown", "next"]


@pytest.mark.parametrize("arrives", [True, False])
def test_the_same_id_again_lands_once(it: Desk, arrives: bool) -> None:
    _, _, writer = unknown(it, arrives=arrives)
    assert writer.commit("unknown", id="payment-7").slot == 3
    assert it.writer().commit("unknown", id="payment-7").slot == 3
    assert it.bodies() == ["before", "unknown"]


def test_an_unknown_commit_that_arrived_resolves_to_landed(it: Desk) -> None:
    error, log, _ = unknown(it, arrives=True)
    assert log.resolve(error.attempt) == "landed"


def test_an_unknown_commit_stays_unknown_until_its_slot_is_taken(it: Desk) -> None:
    error, log, _ = unknown(it, arrives=False)
    assert log.resolve(error.attempt) == "unknown"
    it.writer()
    assert log.resolve(error.attempt) == "not_applied"


def test_one_that_a_later_writer_has_landed_resolves_to_landed(it: Desk) -> None:
    error, log, _ = unknown(it, arrives=False)
    it.writer().commit("unknown", id="payment-7")
    assert log.resolve(error.attempt) == "landed"


def test_a_collected_slot_within_its_writers_reign_can_only_have_held_that_commit(it: Desk) -> None:
    error, log, _ = unknown(it, arrives=True)
    later = it.writer()
    later.collect(later.snapshot("all").slot, undecided=None)
    assert error.attempt.slot < log.floor
    assert log.resolve(error.attempt) == "landed"


def test_a_commit_that_was_refused_does_not_land_by_being_collected(it: Desk) -> None:
    """Mutant 14: below the floor is not "landed", and neither is it "not applied"."""
    error, log, _ = unknown(it, arrives=False)
    later = it.writer()
    later.commit("in between")
    later.collect(later.snapshot("all").slot, undecided=None)
    # Its slot holds the next writer's seal; but below the floor a seal may be a ghost too.
    assert log.resolve(error.attempt) == "unknown"
    elsewhere = Prepared(
        "payment-8",
        error.attempt.slot + 1,
        Entry(error.attempt.slot + 1, error.attempt.entry.fence, "0" * 32, "commit", "payment-8", 1, None).encode(),
    )
    assert log.resolve(elsewhere) == "unknown"


def test_a_ghost_below_the_floor_decides_nothing(it: Desk) -> None:
    """A stalled writer's request arrives in a slot that was collected."""
    old = it.writer()
    prepared = old.prepare("ghost")
    new = it.writer()
    # A store that lost the seal as well, to let the ghost in at all.
    new.commit("new")
    new.collect(new.snapshot("all").slot, undecided=None)
    it.store.delete(_keys.entry(prepared.slot))
    it.store.create(_keys.entry(prepared.slot), prepared.data)
    assert it.log().at(prepared.slot) is None
    assert it.log().find("ghost") is None
    assert [entry.body for entry in it.log().read()] == ["all"]


def test_a_reader_that_fell_behind_starts_from_the_snapshot_and_applies_no_ghost(it: Desk) -> None:
    """Between its read and its look at the floor, the slots are collected and a ghost appears in one of them."""
    writer = it.writer()
    for number in range(3):
        writer.commit(number)
    reader = it.log()
    seen = reader.read(after=4)
    ghost = Entry(5, writer.fence, "0" * 32, "commit", "ghost", 4, "ghost").encode()

    def meanwhile() -> None:
        writer.commit("5")
        writer.collect(writer.snapshot("all").slot, undecided=None)
        it.store.create(_keys.entry(5), ghost)

    it.memory.on("read", _keys.entry(5)).run(once(meanwhile))
    assert [entry.body for entry in seen] == ["all"]


def test_a_reader_makes_the_newest_entry_durable_before_it_hands_it_out(tmp_path: Path) -> None:
    durable: list[str] = []

    class Watched(FileStore):
        def read(self, key: str, *, durable: bool = False) -> Stored | None:
            if durable:
                asked.append(key)
            return super().read(key, durable=durable)

    asked = durable
    with desk(Watched(tmp_path / "store")) as it:
        writer = it.writer()
        writer.commit("a")
        writer.commit("b")
        durable.clear()
        assert len(list(it.log().read())) == 3
        assert durable == [_keys.entry(3)]


def test_a_reader_makes_the_last_entry_of_each_batch_durable(it: Desk) -> None:
    """The newest one there is may be the last of a full batch."""
    writer = it.writer()
    while writer.head < _BATCH:
        writer.commit(writer.head)
    durable: list[str] = []
    read = it.memory.read

    def watched(key: str, *, durable_: bool) -> Stored | None:
        if durable_:
            durable.append(key)
        return read(key)

    it.memory.read = lambda key, *, durable=False: watched(key, durable_=durable)  # type: ignore[method-assign]
    for entry in it.log().read():
        assert entry.slot < _BATCH or durable == [_keys.entry(_BATCH)]


def test_what_comes_before_a_damaged_entry_is_handed_out(it: Desk) -> None:
    writer = it.writer()
    for number in range(3):
        writer.commit(number)
    it.store.delete(_keys.entry(4))
    it.store.create(_keys.entry(4), b"?")
    seen: list[int] = []
    with pytest.raises(RecordError, match=_keys.entry(4)):
        seen.extend(entry.slot for entry in it.log().read())
    assert seen == [1, 2, 3]


def test_an_entry_of_our_name_that_we_never_sent_means_that_we_were_cloned(it: Desk) -> None:
    writer = it.writer()
    clone = Entry(2, writer.fence, writer._hold.nonce, "commit", "same-id", 1, "the clone's").encode()
    it.store.create(_keys.entry(2), clone)
    with pytest.raises(FencedError, match="cloned"):
        writer.commit("mine", id=None)


def test_a_lower_fence_behind_a_seal_is_named_as_damage(it: Desk) -> None:
    it.writer()
    writer = it.writer()
    forged = Entry(writer.head + 1, 1, "0" * 32, "commit", "forged", 0, None).encode()
    it.store.create(_keys.entry(writer.head + 1), forged)
    with pytest.raises(RecordError, match="lower fence"):
        writer.commit("x")


def test_a_commit_is_one_create_and_nothing_else(it: Desk) -> None:
    writer = it.writer()
    it.memory.calls.clear()
    for number in range(10):
        writer.commit(number)
    assert [call.operation for call in it.memory.calls] == ["create"] * 10


def test_the_end_of_a_long_log_is_found_with_few_reads(it: Desk) -> None:
    writer = it.writer()
    for number in range(1000):
        writer.commit(number)
    it.memory.calls.clear()
    assert it.log().head == 1001
    assert len(it.memory.calls) < 30


def test_a_snapshot_shortens_the_way(it: Desk) -> None:
    writer = it.writer()
    for number in range(200):
        writer.commit(number)
    writer.snapshot("all")
    it.memory.calls.clear()
    assert it.log().head == 202
    assert it.memory.count("read", "log/0") == 1


def test_the_floor_does_not_pass_an_undecided_entry(it: Desk) -> None:
    writer = it.writer()
    writer.commit("x")
    snapshot = writer.snapshot("all")
    with pytest.raises(ValueError, match="Recover the outbox first"):
        writer.collect(snapshot.slot, undecided=snapshot.slot - 1)
    assert it.log().floor == 0
    assert it.slots() == [1, 2, 3]


def test_a_floor_needs_a_snapshot_to_stand_on(it: Desk) -> None:
    writer = it.writer()
    done = writer.commit("x")
    with pytest.raises(ValueError, match="no snapshot"):
        writer.collect(done.slot, undecided=None)


def test_a_collection_that_was_cut_off_is_finished_by_the_next(it: Desk) -> None:
    writer = it.writer()
    for number in range(5):
        writer.commit(number)
    snapshot = writer.snapshot("all")
    it.memory.on("delete", nth=3).fail()
    with pytest.raises(StoreUnavailableError):
        writer.collect(snapshot.slot, undecided=None)
    assert [entry.body for entry in it.log().read()] == ["all"]
    writer.collect(snapshot.slot, undecided=None)
    assert it.slots() == [1, snapshot.slot]


def test_a_collector_that_slept_while_a_successor_collected_past_it_has_nothing_to_do(it: Desk) -> None:
    """Found by the simulation: it was told that its snapshot had never been there."""
    asleep = it.writer()
    asleep.commit("x")
    snapshot = asleep.snapshot("all")

    def meanwhile() -> None:
        later = it.writer()
        later.collect(later.snapshot("all of it").slot, undecided=None)

    it.memory.on("read", _keys.entry(snapshot.slot)).run(once(meanwhile))
    assert asleep.collect(snapshot.slot, undecided=None) == 0
    assert [entry.body for entry in it.log().read()] == ["all of it"]


def test_nothing_is_collected_under_a_lost_hold(it: Desk) -> None:
    old = it.writer()
    old.commit("x")
    snapshot = old.snapshot("all")
    it.writer()
    with pytest.raises(FencedError):
        old.collect(snapshot.slot, undecided=None)
    assert it.log().floor == 0


def test_a_retry_is_recognised_by_what_a_snapshot_says_it_replaces(it: Desk) -> None:
    writer = it.writer()
    writer.commit("pay", id="payment-7")
    snapshot = writer.snapshot("all")
    writer.collect(snapshot.slot, undecided=None)
    assert it.log().find("payment-7") == snapshot.slot
    assert it.writer().commit("pay", id="payment-7").slot == snapshot.slot
    assert it.bodies() == []


def test_a_list_without_the_first_floor_is_not_believed(it: Desk) -> None:
    class Lying(MemoryStore):
        lies = False

        def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
            return iter(()) if self.lies and prefix == _keys.FLOORS else super().list(prefix, after)

    store = Lying()
    with desk(store) as other:
        other.writer().commit("x")
        store.lies = True
        with pytest.raises(StoreUnavailableError, match="list lacks"):
            list(other.log().read())
        with pytest.raises(StoreUnavailableError, match="list lacks"):
            other.log().head  # noqa: B018  asking is the test


def test_a_store_that_can_leave_torn_records_takes_no_log(tmp_path: Path) -> None:
    with desk(FileStore(tmp_path / "store", without=["link", "rename"])) as it:
        hold = it.hold()
        with pytest.raises(StoreCannotLockError, match="torn entry"):
            it.log().open(hold)


def test_reading_where_there_is_no_log_finds_nothing(any_desk: Desk) -> None:
    log = any_desk.log()
    assert (log.head, log.floor, list(log.read()), log.at(1)) == (0, 0, [], None)


@pytest.mark.parametrize("body", [object(), float("nan"), "\ud800", b"bytes"])
def test_a_body_that_json_cannot_carry_is_refused_and_nothing_is_sent(it: Desk, body: object) -> None:
    writer = it.writer()
    with pytest.raises(ValueError):
        writer.commit(body)
    assert writer.commit("next").slot == 2


def test_a_body_that_is_too_large_says_what_to_do(it: Desk) -> None:
    writer = it.writer()
    with pytest.raises(ValueError, match="put the content elsewhere first"):
        writer.commit("x" * (1 << 20))
    assert writer.commit("next").slot == 2


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 101, ".x"])
def test_a_bad_id_is_refused(it: Desk, name: str) -> None:
    with pytest.raises(ValueError, match="id of a commit"):
        it.writer().commit("x", id=name)


def test_the_unknown_travels_between_processes(it: Desk) -> None:
    error, log, _ = unknown(it, arrives=True)
    copy = pickle.loads(pickle.dumps(error))
    assert copy.attempt == error.attempt
    assert log.resolve(copy.attempt) == "landed"


def test_a_hold_that_was_released_writes_nothing(it: Desk) -> None:
    hold = it.hold()
    writer = it.log().open(hold)
    hold.release()
    with pytest.raises(Exception, match="released"):
        writer.commit("x")
    assert it.slots() == [1]


def test_an_expired_hold_renews_before_it_commits(it: Desk) -> None:
    writer = it.writer()
    it.clock.advance(4000.0)
    it.memory.calls.clear()
    writer.commit("x")
    assert [call.key for call in it.memory.calls if call.operation in ("create", "replace")] == [_BEAT, _keys.entry(2)]


def test_an_expired_hold_that_cannot_renew_commits_nothing(it: Desk) -> None:
    writer = it.writer()
    it.clock.advance(4000.0)
    for operation in ("create", "replace"):
        it.memory.on(operation, _BEAT, nth=0).fail()
    with pytest.raises(StoreError):
        writer.commit("x")
    assert it.slots() == [1]


def once(function: Callable[[], object]) -> Callable[[], None]:
    """*function*, which does nothing when it meets itself: a fault on a create that itself creates."""
    done: list[None] = []

    def run() -> None:
        if not done:
            done.append(None)
            function()

    return run


def test_a_forced_release_shuts_the_log_for_a_commit_that_is_under_way(it: Desk) -> None:
    writer = it.writer()
    writer.commit("before")
    prepared = writer.prepare("under way")
    done = it.lease.force_release(it.lease.inspect().nonce, even_if_alive=True)
    assert done.fence is not None
    assert it.log().shut_out(done.fence)
    assert it.store.create(_keys.entry(prepared.slot), prepared.data).data != prepared.data
    with pytest.raises(FencedError):
        writer.put(prepared)
    assert it.bodies() == ["before"]


def test_nothing_is_shut_out_where_there_is_no_log_or_a_later_writer(it: Desk) -> None:
    assert not it.log().shut_out(1)
    it.writer()
    burnt = it.lease.force_release(it.lease.inspect().nonce, even_if_alive=True).fence
    assert burnt is not None
    it.writer().commit("the later one's")
    assert not it.log().shut_out(burnt)
    assert it.bodies() == ["the later one's"]


@pytest.mark.parametrize("arrived", [True, False])
def test_what_stands_in_a_slot_that_was_collected_refuses_nobody(arrived: bool) -> None:
    """Found by the model: a commit that had landed was reported as refused, because of a ghost in its slot."""
    it = Desk(patience_s=5.0)
    writer = it.writer()
    prepared = writer.prepare("mine", id="mine")

    def meanwhile() -> None:
        # One looks for the end of the log, and sleeps; the next one seals and collects; the sleeper's seal is a ghost.
        asleep = it.hold()
        later = it.writer()
        later.collect(later.snapshot("all").slot, undecided=None)
        it.store.delete(_keys.entry(prepared.slot))
        ghost = Entry(prepared.slot, asleep.fence, "0" * 32, "seal", "f" * 32, prepared.slot - 1, None)
        it.store.create(_keys.entry(prepared.slot), ghost.encode())

    first = it.memory.on("create", _keys.entry(prepared.slot))
    first.lose_reply() if arrived else first.fail(StoreUnavailableError("no answer", applied=None))
    it.memory.on("create", _keys.entry(prepared.slot), nth=2).run(once(meanwhile))
    if arrived:
        assert writer.put(prepared).slot == prepared.slot
    else:
        with pytest.raises(CommitUnknownError):
            writer.put(prepared)
    with pytest.raises(FencedError):
        writer.commit("next")
    it.let_go()


def test_nothing_is_collected_where_others_see_names_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure._commit._collect.filesystem_of", lambda _: None)
    with desk(FileStore(tmp_path / "store")) as it:
        writer = it.writer()
        writer.commit("x")
        snapshot = writer.snapshot("all")
        with pytest.raises(StoreCannotLockError, match="network file system"):
            writer.collect(snapshot.slot, undecided=None)
        assert it.slots() == [1, 2, 3]
