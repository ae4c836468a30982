"""What every store promises. A new store joins by adding a maker to `MAKERS`."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore
from tenure._store._protocol import check_key
from tenure._store._publish import Way
from tenure._store._records import MAX_SIZE_BYTES
from tenure.stores import Store, open_store
from tests.helpers import databases, object_server
from tests.helpers.object_dialects import Dialect

Maker = Callable[[Path], Callable[[], Store]]


def _files(*without: Way) -> Maker:
    return lambda directory: lambda: FileStore(directory / "store", without=without)


def _memory(_: Path) -> Callable[[], Store]:
    name = uuid.uuid4().hex
    return lambda: MemoryStore.named(name)


def _bucket(dialect: Dialect) -> Maker:
    def maker(_: Path) -> Callable[[], Store]:
        url = object_server.shared(dialect).url(f"contract/{uuid.uuid4().hex}")
        return lambda: open_store(url)

    return maker


MAKERS: dict[str, Maker] = {
    "file": _files(),
    "file-rename": _files("link"),
    "file-exclusive": _files("link", "rename"),
    "memory": _memory,
    "s3": _bucket("s3"),
    "gs": _bucket("gs"),
    "az": _bucket("az"),
}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in object_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=[*MAKERS, *databases.EVERY])
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    if request.param in MAKERS:
        return MAKERS[request.param]
    new = databases.urls(request.param, request, tmp_path)

    def make(_: Path) -> Callable[[], Store]:
        url = new()
        return lambda: open_store(url)

    return make


@pytest.fixture
def opened(maker: Maker, tmp_path: Path) -> Callable[[], Store]:
    """Opens one and the same store, each time as somebody else would."""
    return maker(tmp_path)


@pytest.fixture
def store(opened: Callable[[], Store]) -> Store:
    return opened()


def test_a_created_record_is_read_back(store: Store) -> None:
    assert store.create("lease/1", b"one").won
    found = store.read("lease/1")
    assert found is not None
    assert found.data == b"one"


def test_a_record_is_seen_by_another_store_object(opened: Callable[[], Store]) -> None:
    opened().create("lease/1", b"one")
    found = opened().read("lease/1", durable=True)
    assert found is not None
    assert found.data == b"one"


def test_an_absent_key_reads_as_none(store: Store) -> None:
    assert store.read("lease/1") is None
    assert store.read("lease/1", durable=True) is None


def test_a_loser_gets_the_winners_bytes(opened: Callable[[], Store]) -> None:
    opened().create("lease/1", b"winner")
    lost = opened().create("lease/1", b"loser")
    assert (lost.won, lost.data) == (False, b"winner")


def test_a_loser_changes_nothing(store: Store) -> None:
    store.create("lease/1", b"winner")
    before = store.read("lease/1")
    store.create("lease/1", b"loser")
    assert store.read("lease/1") == before


def test_of_eight_threads_one_wins_and_all_agree(opened: Callable[[], Store]) -> None:
    """B43: temporary names that threads share would let one remove the other's."""
    shared, rounds, start = opened(), 40, threading.Barrier(8)

    def race(number: int) -> list[tuple[bool, bytes]]:
        mine = shared if number % 2 else opened()
        outcomes = []
        for turn in range(rounds):
            start.wait(30)
            created = mine.create(f"lease/{turn}", f"thread {number}".encode())
            outcomes.append((created.won, created.data))
        return outcomes

    with ThreadPoolExecutor(8) as pool:
        by_thread = list(pool.map(race, range(8)))
    for outcomes in zip(*by_thread, strict=True):
        assert sum(won for won, _ in outcomes) == 1
        assert len({data for _, data in outcomes}) == 1
    assert len(list(shared.list("lease/"))) == rounds


def test_a_replace_with_the_current_version_applies(store: Store) -> None:
    store.create("lease/beat/1", b"1")
    found = store.read("lease/beat/1")
    assert found is not None
    version = store.replace("lease/beat/1", b"2", found.version)
    after = store.read("lease/beat/1")
    assert after is not None
    assert (after.data, after.version) == (b"2", version)


def test_a_replace_with_an_old_version_changes_nothing(store: Store) -> None:
    store.create("lease/beat/1", b"1")
    old = store.read("lease/beat/1")
    assert old is not None
    store.replace("lease/beat/1", b"2", old.version)
    assert store.replace("lease/beat/1", b"3", old.version) is None
    found = store.read("lease/beat/1")
    assert found is not None
    assert found.data == b"2"


def test_a_replace_makes_no_record(store: Store) -> None:
    store.create("lease/beat/1", b"1")
    found = store.read("lease/beat/1")
    assert found is not None
    assert store.replace("lease/beat/2", b"1", found.version) is None
    store.delete("lease/beat/1")
    assert store.replace("lease/beat/1", b"1", found.version) is None
    assert list(store.list()) == []


def test_no_increment_is_lost_between_threads(opened: Callable[[], Store]) -> None:
    """B82: compare-and-swap made of a read and a write clobbers."""
    opened().create("counter", b"0")

    def increment(_: int) -> None:
        store = opened()
        for _ in range(10):
            while True:
                found = store.read("counter")
                assert found is not None
                if store.replace("counter", str(int(found.data) + 1).encode(), found.version) is not None:
                    break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(increment, range(4)))
    found = opened().read("counter")
    assert found is not None
    assert found.data == b"40"


def test_a_deleted_key_is_free_again(store: Store) -> None:
    store.create("lease/1", b"one")
    store.delete("lease/1")
    assert store.read("lease/1") is None
    assert list(store.list()) == []
    assert store.create("lease/1", b"two").won


def test_deleting_what_is_gone_is_no_error(store: Store) -> None:
    store.delete("lease/1")
    store.create("lease/1", b"one")
    store.delete("lease/1")
    store.delete("lease/1")


def test_an_empty_store_lists_nothing(store: Store) -> None:
    assert list(store.list()) == []
    assert list(store.list("lease/beat/", after="lease/beat/7")) == []


def test_a_list_is_sorted_by_the_whole_key(store: Store) -> None:
    for key in ("a0", "a/b", "a.b", "a-b", "b/c/d", "b/c.d", "b0"):
        store.create(key, b"x")
    assert list(store.list()) == ["a-b", "a.b", "a/b", "a0", "b/c.d", "b/c/d", "b0"]


def test_a_list_starts_strictly_after_a_key_that_need_not_exist(store: Store) -> None:
    for key in ("log/1", "log/2", "log/4"):
        store.create(key, b"x")
    assert list(store.list("log/", after="log/1")) == ["log/2", "log/4"]
    assert list(store.list("log/", after="log/3")) == ["log/4"]
    assert list(store.list("log/", after="log/4")) == []
    assert list(store.list(after="log/1")) == ["log/2", "log/4"]


def test_a_prefix_is_a_whole_directory(store: Store) -> None:
    for key in ("lease/1", "lease/beat/1", "lease-old/1"):
        store.create(key, b"x")
    assert list(store.list("lease/")) == ["lease/1", "lease/beat/1"]


def test_a_record_may_have_the_greatest_size_and_no_more(store: Store) -> None:
    store.create("lease/1", b"x" * MAX_SIZE_BYTES)
    found = store.read("lease/1")
    assert found is not None
    assert len(found.data) == MAX_SIZE_BYTES
    with pytest.raises(ValueError, match="too large"):
        store.create("lease/2", b"x" * (MAX_SIZE_BYTES + 1))
    with pytest.raises(ValueError, match="too large"):
        store.replace("lease/1", b"x" * (MAX_SIZE_BYTES + 1), found.version)
    assert list(store.list()) == ["lease/1"]


def test_its_url_opens_the_same_store(store: Store) -> None:
    store.create("lease/1", b"one")
    again = open_store(store.url)
    found = again.read("lease/1")
    assert again.url == store.url
    assert found is not None
    assert found.data == b"one"


MALFORMED = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    ".a",
    "A",
    "ä",
    "a b",
    "a\n",
    "a\0",
    "-a",
    "a" * 101,
]


@pytest.mark.parametrize("key", [*MALFORMED, "/".join("abcdefghi")])
def test_a_malformed_key_is_refused_by_every_operation(store: Store, key: str) -> None:
    for operation in (
        lambda: store.create(key, b"x"),
        lambda: store.read(key),
        lambda: store.replace(key, b"x", "1"),
        lambda: store.delete(key),
    ):
        with pytest.raises(ValueError, match="not a store key"):
            operation()
    assert list(store.list()) == []


@pytest.mark.parametrize("prefix", ["a", "/", "../", "a//", ".a/", "A/"])
def test_a_malformed_prefix_is_refused_before_the_first_key_is_asked_for(store: Store, prefix: str) -> None:
    with pytest.raises(ValueError, match="not a store prefix"):
        store.list(prefix)


SEGMENTS = st.from_regex(r"[ab0][ab0._-]{0,2}", fullmatch=True)
KEYS = st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join)
_EACH = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def _without_keys_that_are_directories(keys: set[str]) -> set[str]:
    return {key for key in keys if not any(other.startswith(key + "/") for other in keys)}


@given(keys=st.sets(KEYS, max_size=12).map(_without_keys_that_are_directories), after=st.just("") | KEYS)
@_EACH
def test_a_list_is_the_sorted_set(
    maker: Maker, tmp_path_factory: pytest.TempPathFactory, keys: set[str], after: str
) -> None:
    store = maker(tmp_path_factory.mktemp("listed"))()
    for key in keys:
        store.create(key, b"x")
    assert list(store.list(after=after)) == sorted(key for key in keys if key > after)
    for prefix in {key.rpartition("/")[0] + "/" for key in keys if "/" in key}:
        expected = sorted(key for key in keys if key.startswith(prefix) and key > after)
        assert list(store.list(prefix, after)) == expected


@given(key=st.text(max_size=12) | KEYS)
@_EACH
def test_every_text_is_a_key_or_refused(maker: Maker, tmp_path_factory: pytest.TempPathFactory, key: str) -> None:
    store = maker(tmp_path_factory.mktemp("keyed"))()
    try:
        check_key(key)
    except ValueError:
        with pytest.raises(ValueError, match="not a store key"):
            store.create(key, b"x")
        assert list(store.list()) == []
    else:
        assert store.create(key, b"x").won
        assert list(store.list()) == [key]
