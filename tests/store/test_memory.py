"""The store for tests: its faults, and its log."""

from __future__ import annotations

import threading

import pytest

from tenure._store._memory import Call, MemoryStore
from tenure.errors import StoreError, StoreUnavailableError


def test_the_second_create_fails_with_nothing_applied() -> None:
    store = MemoryStore()
    store.on("create", "lease/", nth=2).fail()
    assert store.create("lease/1", b"x").won
    assert store.create("log/1", b"x").won
    with pytest.raises(StoreUnavailableError) as caught:
        store.create("lease/2", b"x")
    assert caught.value.applied is False
    assert store.read("lease/2") is None
    assert store.create("lease/2", b"x").won


def test_a_lost_reply_is_applied() -> None:
    store = MemoryStore()
    store.on("create", "lease/").lose_reply()
    with pytest.raises(StoreUnavailableError) as caught:
        store.create("lease/1", b"x")
    assert caught.value.applied is None
    assert not store.create("lease/1", b"y").won


def test_a_reply_can_be_lost_for_every_operation() -> None:
    store = MemoryStore()
    store.create("a", b"1")
    found = store.read("a")
    assert found is not None
    store.on("replace", "a").lose_reply()
    with pytest.raises(StoreUnavailableError):
        store.replace("a", b"2", found.version)
    store.on("delete").lose_reply()
    with pytest.raises(StoreUnavailableError):
        store.delete("a")
    assert store.read("a") is None


def test_the_error_can_be_chosen() -> None:
    store = MemoryStore()
    store.on("read").fail(StoreError("damaged"))
    with pytest.raises(StoreError, match="damaged"):
        store.read("a")


def test_every_request_fails_until_it_is_healed() -> None:
    store = MemoryStore()
    store.on("read", nth=0).fail()
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            store.read("a")
    store.heal()
    assert store.read("a") is None


def test_a_list_fails_when_its_first_key_is_asked_for() -> None:
    store = MemoryStore()
    store.on("list", "lease/").fail()
    keys = store.list("lease/")
    with pytest.raises(StoreUnavailableError):
        next(keys)


def test_one_delayed_request_holds_up_no_other() -> None:
    store, parked, go = MemoryStore(), threading.Event(), threading.Event()

    def park() -> None:
        parked.set()
        assert go.wait(30)

    store.on("create", "slow").run(park)
    slow = threading.Thread(target=store.create, args=("slow", b"x"))
    slow.start()
    assert parked.wait(30)
    assert store.create("fast", b"x").won
    assert store.read("slow") is None
    go.set()
    slow.join(30)
    assert store.read("slow") is not None


def test_another_writer_can_go_first() -> None:
    store = MemoryStore()
    store.on("create", "lease/").run(lambda: store._records.update({"lease/1": b"other"}))
    assert store.create("lease/1", b"mine").data == b"other"


def test_requests_are_logged_in_their_order_failed_ones_too() -> None:
    store = MemoryStore()
    store.on("create").fail()
    with pytest.raises(StoreUnavailableError):
        store.create("lease/1", b"x")
    list(store.list("lease/"))
    store.read("lease/1")
    assert store.calls == [Call("create", "lease/1"), Call("list", "lease/"), Call("read", "lease/1")]
    assert (store.count("create"), store.count("create", "log/")) == (1, 0)


def test_a_malformed_request_is_none() -> None:
    store = MemoryStore()
    with pytest.raises(ValueError, match="not a store key"):
        store.create("../a", b"x")
    assert store.calls == []


def test_stores_of_one_name_are_one_and_others_are_not() -> None:
    assert MemoryStore.named("one") is MemoryStore.named("one")
    assert MemoryStore.named("one") is not MemoryStore.named("two")
    assert MemoryStore().url != MemoryStore().url


def test_threads_that_ask_for_a_new_name_get_one_store() -> None:
    start, found = threading.Barrier(8), []

    def ask() -> None:
        start.wait(30)
        found.append(MemoryStore.named("asked for by eight"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(map(id, found))) == 1
