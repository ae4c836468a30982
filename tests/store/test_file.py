"""The directory store: what it makes, what it follows, what it costs, and many processes at once."""

from __future__ import annotations

import errno
import os
import pickle
import socket
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure._store import _kernel, _publish
from tenure._store._file import FileStore
from tenure.errors import StoreCannotLockError, StoreError
from tenure.stores import Created, LocalDirectory
from tests.helpers.capabilities import NEEDS_MODES, NEEDS_MOUNT, NEEDS_STRACE, NEEDS_SYMLINKS
from tests.store.children import child, children, read_only, traced


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> FileStore:
    return FileStore(root)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _names(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir())


# What it makes


def test_reading_makes_nothing(store: FileStore, root: Path) -> None:
    store.read("lease/1", durable=True)
    list(store.list("lease/"))
    store.delete("lease/1")
    store.replace("lease/1", b"x", "1")
    assert not root.exists()


@NEEDS_MODES
def test_only_the_owner_may_enter_or_read(store: FileStore, root: Path) -> None:
    store.create("lease/beat/1", b"x")
    assert {_mode(path) for path in (root, root / "lease", root / "lease/beat")} == {0o700}
    assert _mode(root / "lease/beat/1") == 0o600


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@NEEDS_MODES
def test_a_group_gets_what_the_operator_chose_whatever_the_umask(root: Path, strict_umask: None) -> None:
    store = FileStore(root, directory_mode=0o770, file_mode=0o660)
    store.create("lease/1", b"x")
    found = store.read("lease/1")
    assert found is not None
    store.replace("lease/1", b"y", found.version)
    assert (_mode(root), _mode(root / "lease"), _mode(root / "lease/1"), _mode(root / ".lock")) == (
        0o770,
        0o770,
        0o660,
        0o660,
    )


@NEEDS_MODES
def test_a_group_id_that_is_inherited_stays(root: Path) -> None:
    root.mkdir()
    root.chmod(0o2770)
    FileStore(root, directory_mode=0o770).create("lease/1", b"x")
    assert _mode(root / "lease") == 0o2770


def test_a_missing_parent_is_never_made(tmp_path: Path) -> None:
    """A missing parent is most often a missing mount; made up beneath it, each host would have its own only writer."""
    with pytest.raises(StoreError) as caught:
        FileStore(tmp_path / "mount/store").create("lease/1", b"x")
    assert caught.value.errno == errno.ENOENT
    assert "mount" in str(caught.value.hint)
    assert list(tmp_path.iterdir()) == []


def test_nothing_stays_but_the_records(store: FileStore, root: Path) -> None:
    store.create("lease/1", b"x")
    store.create("lease/1", b"y")
    assert _names(root) == ["lease/1"]


def test_a_relative_root_is_not_moved_by_chdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = FileStore("store")
    monkeypatch.chdir("/")
    store.create("lease/1", b"x")
    assert (tmp_path / "store/lease/1").read_bytes() == b"x"


def test_it_is_a_local_directory(store: FileStore, root: Path) -> None:
    assert isinstance(store, LocalDirectory)
    assert store.path_of("lease/beat/1") == root / "lease/beat/1"
    assert not root.exists()
    with pytest.raises(ValueError, match="not a store key"):
        store.path_of("../1")


def test_it_says_how_it_publishes(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    assert store.publishes_by is None
    store.create("a", b"x")
    assert store.publishes_by == _publish.WAYS[0]
    renaming = FileStore(tmp_path, without=["link"])
    renaming.create("b", b"x")
    assert renaming.publishes_by == "rename"
    creating = FileStore(tmp_path, without=["link", "rename"])
    creating.create("c", b"x")
    assert creating.publishes_by == "exclusive"


def test_where_no_way_is_possible_another_store_is_needed(root: Path) -> None:
    with pytest.raises(StoreCannotLockError) as caught:
        FileStore(root, without=["link", "rename", "exclusive"]).create("a", b"x")
    assert caught.value.exit_code == 78


def test_the_ways_exclude_each_other(tmp_path: Path) -> None:
    """Two hosts may find different ways possible; still one of them wins."""
    ways = [FileStore(tmp_path), FileStore(tmp_path, without=["link"]), FileStore(tmp_path, without=["link", "rename"])]
    for number, first in enumerate(ways):
        assert first.create(f"{number}", b"first").won
        assert {store.create(f"{number}", b"x") for store in ways} == {Created(won=False, data=b"first")}


@NEEDS_SYMLINKS
def test_a_file_beside_the_records_is_opened_as_carefully(store: FileStore, root: Path) -> None:
    with pytest.raises(StoreError) as caught:
        store.open("lease/beat/1", os.O_RDWR)
    assert caught.value.errno == errno.ENOENT
    assert not root.exists()
    fd = store.open("lease/beat/1", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.write(fd, b"x")
    assert not os.get_inheritable(fd)
    os.close(fd)
    found = store.read("lease/beat/1")
    assert found is not None
    assert (found.data, _mode(root / "lease/beat/1")) == (b"x", 0o600)
    with pytest.raises(StoreError) as caught:
        store.open("lease/beat/1", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    assert caught.value.errno == errno.EEXIST
    store.unlink("lease/beat/1")
    store.unlink("lease/beat/1")
    assert store.read("lease/beat/1") is None


def test_an_error_keeps_its_fields_through_pickle(root: Path) -> None:
    root.write_bytes(b"x")
    with pytest.raises(StoreError) as caught:
        FileStore(root).read("a")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.errno, again.filename, again.hint, again.applied) == (
        errno.ENOTDIR,
        str(root / "a"),
        caught.value.hint,
        False,
    )


# What it follows


def _plant_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "file")


def _plant_directory(path: Path, outside: Path) -> None:
    path.symlink_to(outside, target_is_directory=True)


def _plant_dangling(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "nothing")


def _plant_pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def _plant_socket(path: Path, outside: Path) -> None:
    # By a relative name: the path of a socket has 107 bytes at most.
    here = Path.cwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)
    os.chdir(here)


def _plant_a_directory(path: Path, outside: Path) -> None:
    path.mkdir()


LINKS = [pytest.param(plant, marks=NEEDS_SYMLINKS) for plant in (_plant_file, _plant_directory, _plant_dangling)]
NO_DIRECTORIES = [*LINKS, _plant_pipe, _plant_socket]
PLANTS = [*NO_DIRECTORIES, _plant_a_directory]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"not yours")
    (outside / "1").write_bytes(b"not yours")
    return outside


def _untouched(outside: Path) -> bool:
    return _names(outside) == ["1", "file"] and (outside / "file").read_bytes() == b"not yours"


@pytest.mark.parametrize("without", [[], ["link"], ["link", "rename"]], ids=["link", "rename", "exclusive"])
@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_planted_at_a_key_is_neither_followed_nor_read(
    root: Path, outside: Path, plant: object, without: list[_publish.Way]
) -> None:
    """B44; and nothing of it blocks."""
    store = FileStore(root, without=without)
    store.create("lease/0", b"x")
    assert callable(plant)
    plant(root / "lease/1", outside)
    for operation in (
        lambda: store.create("lease/1", b"mine"),
        lambda: store.read("lease/1"),
        lambda: store.read("lease/1", durable=True),
        lambda: store.replace("lease/1", b"mine", "1"),
        lambda: store.delete("lease/1"),
        lambda: store.open("lease/1", os.O_RDWR),
        lambda: store.open("lease/1", os.O_RDWR | os.O_CREAT),
    ):
        with pytest.raises(StoreError, match="stands where the store keeps its own files") as caught:
            operation()
        assert str(root / "lease/1") in str(caught.value)
        assert caught.value.hint
    assert list(store.list()) == ["lease/0"]
    assert os.path.lexists(root / "lease/1")
    assert _untouched(outside)


@pytest.mark.parametrize("plant", NO_DIRECTORIES)
def test_what_is_planted_at_a_directory_is_not_entered(root: Path, outside: Path, plant: object) -> None:
    """B44"""
    store = FileStore(root)
    store.create("other/1", b"x")
    assert callable(plant)
    plant(root / "lease", outside)
    for operation in (
        lambda: store.create("lease/1", b"mine"),
        lambda: store.read("lease/1"),
        lambda: store.replace("lease/1", b"mine", "1"),
        lambda: store.delete("lease/1"),
        lambda: list(store.list("lease/")),
    ):
        with pytest.raises(StoreError, match="stands where"):
            operation()
    assert list(store.list()) == ["other/1"]
    assert _untouched(outside)


@NEEDS_SYMLINKS
def test_a_link_planted_at_a_temporary_name_is_not_written_through(
    store: FileStore, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can guess the name; here it is foretold."""
    store.create("lease/0", b"x")
    monkeypatch.setattr(_publish, "_unique", lambda: "0" * 24)
    planted = root / "lease" / (".temp-" + "0" * 24)
    planted.symlink_to(outside / "file")
    with pytest.raises(StoreError):
        store.create("lease/1", b"mine")
    assert store.sweep() == ((), (f"lease/{planted.name}",))
    assert planted.is_symlink()
    assert _untouched(outside)


@NEEDS_SYMLINKS
def test_a_link_swapped_in_for_a_temporary_file_is_not_followed(
    store: FileStore, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B44: else a stranger's file would become our record."""
    store.create("lease/0", b"x")
    real = _kernel.sync

    def swapped_after(fd: int) -> None:
        real(fd)
        (temporary,) = (root / "lease").glob(".temp-*")
        temporary.unlink()
        temporary.symlink_to(outside / "file")

    monkeypatch.setattr(_publish, "sync", swapped_after)
    store.create("lease/1", b"mine")
    assert (outside / "file").stat().st_nlink == 1
    with pytest.raises(StoreError):
        store.read("lease/1")
    assert _untouched(outside)


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_planted_at_the_lock_file_is_not_followed(root: Path, outside: Path, plant: object) -> None:
    store = FileStore(root)
    store.create("lease/1", b"x")
    found = store.read("lease/1")
    assert found is not None
    assert callable(plant)
    plant(root / ".lock", outside)
    with pytest.raises(StoreError):
        store.replace("lease/1", b"y", found.version)
    assert store.read("lease/1") == found
    assert _untouched(outside)


@NEEDS_SYMLINKS
def test_the_root_may_be_a_link_because_the_operator_chose_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real", target_is_directory=True)
    FileStore(tmp_path / "link").create("lease/1", b"x")
    assert _names(tmp_path / "real") == ["lease/1"]


@NEEDS_SYMLINKS
def test_a_list_passes_over_what_is_no_record(store: FileStore, root: Path) -> None:
    store.create("lease/1", b"x")
    for name in ("Upper", ".hidden", "spa ce", "lease/UPPER", "lease/.temp-1", "lease/1~"):
        (root / name).write_bytes(b"x")
    for name in ("Dir", ".dir", "empty"):
        (root / name).mkdir()
    (root / "Dir/1").write_bytes(b"x")
    assert list(store.list()) == ["lease/1"]


def test_a_list_enters_a_directory_only_when_it_gets_there(store: FileStore, root: Path) -> None:
    store.create("a/1", b"x")
    store.create("b/1", b"x")
    keys = store.list()
    assert next(keys) == "a/1"
    (root / "b").rename(root / "c")
    assert list(keys) == []


def test_a_directory_that_has_a_keys_name_is_told_apart_from_a_record(store: FileStore) -> None:
    store.create("lease/1", b"x")
    with pytest.raises(StoreError, match="a directory stands where"):
        store.create("lease", b"x")
    with pytest.raises(StoreError, match="a file stands where"):
        store.create("lease/1/2", b"x")


def test_a_record_too_large_for_us_is_not_read(store: FileStore, root: Path) -> None:
    store.create("lease/1", b"x")
    with open(root / "lease/2", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(StoreError, match="size_bytes=`1099511627776`"):
        store.read("lease/2")


# What it costs


@NEEDS_STRACE
@pytest.mark.parametrize("without", [(), ("link",), ("link", "rename")], ids=["link", "rename", "exclusive"])
def test_a_publish_is_two_syncs(root: Path, without: tuple[str, ...]) -> None:
    with child(root, without=without) as one:
        one.ask("warm_up", "lease/0")
        with traced(one, "-e", "trace=fsync,fdatasync,sync,syncfs") as trace:
            assert one.ask("create", "lease/1", "x")["result"]["won"]
    assert trace.calls == {"fsync": 2}


@NEEDS_STRACE
def test_a_new_directory_is_one_sync_more_of_its_parent(root: Path) -> None:
    with child(root) as one:
        one.ask("warm_up", "lease/0")
        with traced(one, "-e", "trace=fsync", "-y") as trace:
            assert one.ask("create", "log/1", "x")["result"]["won"]
    assert [line for line in trace.lines if f"<{root}>" in line]
    assert trace.calls == {"fsync": 3}


@NEEDS_STRACE
def test_a_loser_syncs_what_it_found(root: Path) -> None:
    """Visible is not yet durable: the winner may be between its link and its sync."""
    FileStore(root).create("lease/1", b"winner")
    with child(root) as one:
        one.ask("warm_up", "lease/0")
        with traced(one, "-e", "trace=fsync", "-y") as trace:
            assert one.ask("create", "lease/1", "loser")["result"] == {"won": False, "text": "winner"}
    synced = [line.rpartition("<")[2].partition(">")[0] for line in trace.lines if "fsync(" in line]
    assert synced[-2:] == [f"{root}/lease/1", f"{root}/lease"]


@NEEDS_STRACE
def test_only_a_durable_read_syncs(root: Path) -> None:
    FileStore(root).create("lease/1", b"x")
    with child(root) as one:
        one.ask("warm_up", "lease/0")
        with traced(one, "-e", "trace=fsync") as plain:
            one.ask("read", "lease/1")
        with traced(one, "-e", "trace=fsync") as durable:
            one.ask("read", "lease/1", True)
    assert (plain.calls["fsync"], durable.calls["fsync"]) == (0, 2)


# Reading only


@NEEDS_MOUNT
def test_everything_but_writing_works_on_a_read_only_mount(root: Path) -> None:
    """B103"""
    FileStore(root).create("lease/1", b"x")
    before = _names(root)
    with child(root, prefix=read_only(root)) as one:
        assert one.ask("read", "lease/1") == {"result": "x"}
        assert one.ask("read", "lease/1", True) == {"result": "x"}
        assert one.ask("keys") == {"result": ["lease/1"]}
        assert one.ask("read", "lease/2", True) == {"result": None}
        refused = one.ask("create", "lease/2", "y")
    assert (refused["error"], refused["errno"], refused["applied"]) == ("StoreError", errno.EROFS, False)
    assert _names(root) == before


@NEEDS_STRACE
def test_reading_and_listing_write_nothing(root: Path) -> None:
    """B103"""
    FileStore(root).create("lease/1", b"x")
    (root / "lease/.temp-0123456789abcdef01234567").write_bytes(b"left over")
    calls = "?open,openat,?mkdir,mkdirat,?unlink,unlinkat,?rename,renameat2,?link,linkat,?creat,utimensat,fchmod,flock"
    with child(root) as one:
        one.ask("warm_up", "lease/0")
        (root / "lease/.temp-0123456789abcdef01234567").write_bytes(b"left over")
        with traced(one, "-e", f"trace={calls}") as trace:
            one.ask("read", "lease/1", True)
            one.ask("keys")
    assert trace.calls.keys() == {"openat"}
    assert not [line for line in trace.lines if "O_WRONLY" in line or "O_RDWR" in line or "O_CREAT" in line]


# Many processes


@pytest.mark.parametrize("without", [(), ("link",), ("link", "rename")], ids=["link", "rename", "exclusive"])
def test_of_sixteen_processes_one_wins_each_round_and_all_agree(root: Path, without: tuple[str, ...]) -> None:
    rounds = 200 if without else 1000
    barrier = root.parent / "barrier"
    barrier.write_bytes(bytes(8 * 16))
    with children(16, root, without=without) as racers:
        for number, racer in enumerate(racers):
            racer.tell("race", 16, number, rounds, str(barrier))
        outcomes = [racer.answer()["result"] for racer in racers]
    winners: Counter[str] = Counter()
    for number, tried in enumerate(zip(*outcomes, strict=True)):
        assert sum(won for won, _ in tried) == 1, number
        assert len({text for _, text in tried}) == 1, number
        winners[tried[0][1]] += 1
    assert len(winners) > 8, "it was no race"
    assert len(_names(root)) == rounds, "something was left over"


def test_no_increment_of_eight_processes_is_lost(root: Path) -> None:
    """B82"""
    store = FileStore(root)
    store.create("counter", b"0")
    with children(8, root) as counters:
        for one in counters:
            one.tell("increment", "counter", 200)
        lost = sum(one.answer()["result"] for one in counters)
    found = store.read("counter")
    assert found is not None
    assert found.data == b"1600"
    assert lost > 0, "nobody was in anybody's way"
    assert _names(root) == [".lock", "counter"]


def test_a_lock_that_a_forked_child_inherited_is_given_back(store: FileStore, root: Path) -> None:
    """Closing alone would leave it with the child for as long as that lives."""
    store.create("counter", b"0")
    with child(root) as one:
        assert one.ask("fork_while_locked") == {"result": None}
        found = store.read("counter")
        assert found is not None
        assert store.replace("counter", b"1", found.version) is not None
