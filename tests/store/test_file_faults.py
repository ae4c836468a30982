"""
The directory store when the system fails: full disks, errors of each system call, and death at each of them.

The faults are real or injected by strace at the system call itself, so nothing of the store is replaced.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure._store import _at, _kernel, _publish
from tenure._store._failures import _MEANINGS
from tenure._store._file import FileStore
from tenure.errors import StoreCannotLockError, StoreError, StoreUnavailableError
from tenure.stores import Created
from tests.helpers.capabilities import NEEDS_MOUNT, NEEDS_ROOT, NEEDS_STRACE
from tests.store.children import Child, child, traced, with_tmpfs

WAYS = {"link": (), "rename": ("link",), "exclusive": ("link", "rename")}
EACH_WAY = pytest.mark.parametrize("without", WAYS.values(), ids=WAYS)
UNAVAILABLE, FAILED, CANNOT = "StoreUnavailableError", "StoreError", "StoreCannotLockError"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def one(root: Path) -> Iterator[Child]:
    with child(root) as ready:
        ready.ask("warm_up", "lease/0")
        yield ready


def _inject(one: Child, call: str, what: str, do: str, *arguments: object) -> dict[str, Any]:
    with traced(one, "-e", f"trace={call}", "-e", f"inject={call}:{what}"):
        return one.ask(do, *arguments)


def _assert_only_whole_records(root: Path, *texts: bytes) -> None:
    for path in root.rglob("[a-z0-9]*"):
        assert path.is_dir() or path.read_bytes() in texts, path


# A full disk


@NEEDS_MOUNT
@EACH_WAY
def test_a_full_disk_leaves_no_record_and_passes(root: Path, without: tuple[str, ...]) -> None:
    """B40"""
    root.mkdir()
    with child(root, prefix=with_tmpfs(root, "size=64k"), without=without) as one:
        one.ask("create", "lease/0", "0")
        one.ask("fill")
        refused = one.ask("create", "lease/1", "x" * 5000)
        assert (refused["error"], refused["errno"]) == (UNAVAILABLE, errno.ENOSPC)
        assert refused["hint"]
        assert one.ask("read", "lease/1") == {"result": None}
        assert one.ask("replace", "lease/0", "y" * 5000)["error"] == UNAVAILABLE
        assert one.ask("read", "lease/0") == {"result": "0"}
        assert one.ask("names") == {"result": [".fill", ".lock", "lease/0"]}


@NEEDS_MOUNT
@EACH_WAY
def test_no_inode_left_is_a_full_disk(root: Path, without: tuple[str, ...]) -> None:
    """B40"""
    root.mkdir()
    with child(root, prefix=with_tmpfs(root, "nr_inodes=4"), without=without) as one:
        assert one.ask("create", "lease/0", "0")["result"]["won"]
        outcomes = [one.ask("create", f"lease/{number}", "x") for number in (1, 2, 3)]
        assert outcomes[-1]["errno"] == errno.ENOSPC
        assert outcomes[-1]["applied"] is False
        assert "df -i" in outcomes[-1]["hint"]


@NEEDS_STRACE
@pytest.mark.parametrize("call", ["write", "fsync"])
@EACH_WAY
def test_an_error_before_the_record_is_complete_leaves_none(root: Path, call: str, without: tuple[str, ...]) -> None:
    """B40"""
    with child(root, without=without) as one:
        one.ask("warm_up", "lease/0")
        # The child's own answer is a write too, and comes second.
        refused = _inject(one, call, "error=ENOSPC:when=1", "create", "lease/1", "x")
        assert refused["error"] == UNAVAILABLE
        assert one.ask("read", "lease/1") == {"result": None}
        assert one.ask("names") == {"result": [".lock"]}
        assert one.ask("create", "lease/1", "y")["result"]["won"]


@NEEDS_STRACE
def test_an_error_of_close_after_the_sync_is_none(root: Path, one: Child) -> None:
    """B40: fsync has the last word on whether the bytes arrived, and it has spoken."""
    assert _inject(one, "close", "error=EIO", "create", "lease/1", "x")["result"] == {"won": True, "text": "x"}
    assert one.ask("read", "lease/1") == {"result": "x"}


@NEEDS_STRACE
@EACH_WAY
def test_an_unsynced_directory_leaves_the_outcome_open(root: Path, without: tuple[str, ...]) -> None:
    """The record is there, whole, and the caller decides by reading it."""
    with child(root, without=without) as one:
        one.ask("warm_up", "lease/0")
        refused = _inject(one, "fsync", "error=EIO:when=2", "create", "lease/1", "x")
        assert (refused["error"], refused["applied"]) == (FAILED, None)
        assert one.ask("read", "lease/1", True) == {"result": "x"}


# The outcome of link


@NEEDS_STRACE
@pytest.mark.parametrize("error", ["EPERM", "EOPNOTSUPP", "ENOSYS", "EMLINK", "EXDEV", "EACCES"])
def test_without_hard_links_it_renames(root: Path, one: Child, error: str) -> None:
    with traced(one, "-e", "trace=linkat,renameat2", "-e", f"inject=linkat:error={error}") as trace:
        assert one.ask("create", "lease/1", "x")["result"]["won"]
        assert one.ask("create", "lease/2", "x")["result"]["won"]
        assert one.ask("create", "lease/2", "y")["result"] == {"won": False, "text": "x"}
    assert trace.calls == {"linkat": 1, "renameat2": 3}, "what was refused once is not tried again"


@NEEDS_STRACE
@pytest.mark.parametrize("error", ["EINVAL", "ENOSYS", "EOPNOTSUPP"])
def test_without_a_rename_that_refuses_it_creates_in_place(root: Path, error: str) -> None:
    with child(root, without=["link"]) as one:
        one.ask("warm_up", "lease/0")
        assert _inject(one, "renameat2", f"error={error}", "create", "lease/1", "x")["result"]["won"]
        assert one.ask("create", "lease/1", "y")["result"] == {"won": False, "text": "x"}


@NEEDS_STRACE
@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EROFS", "EIO", "ETIMEDOUT"])
def test_another_error_of_link_is_told_and_no_way_around_it_is_tried(root: Path, one: Child, error: str) -> None:
    number = getattr(errno, error)
    with traced(one, "-e", "trace=linkat,renameat2", "-e", f"inject=linkat:error={error}") as trace:
        refused = one.ask("create", "lease/1", "x")
    assert refused["errno"] == number
    assert refused["error"] == _MEANINGS[number].error.__name__
    assert refused["applied"] is (None if error in ("EIO", "ETIMEDOUT") else False)
    assert trace.calls == {"linkat": 1}
    assert one.ask("names") == {"result": [".lock"]}


def test_a_lost_reply_of_link_is_a_win(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An NFS client sends the request again, and it meets its own success. No way to have strace lose a reply."""
    store = FileStore(root)
    real = os.link
    for number, error in enumerate((errno.EEXIST, errno.EIO, errno.ETIMEDOUT, errno.EPERM, errno.ESTALE)):

        def losing(*args: object, error: int = error, **options: object) -> None:
            real(*args, **options)  # type: ignore[arg-type]
            raise OSError(error, os.strerror(error))

        monkeypatch.setattr(os, "link", losing)
        assert store.create(f"lease/{number}", b"x").won
    assert len(list(root.rglob(".temp-*"))) == 0


@NEEDS_STRACE
def test_when_nobody_can_say_who_won_neither_do_we(root: Path, one: Child) -> None:
    """EEXIST, and then no answer to "is it mine": neither "won" nor "lost" is known."""
    FileStore(root).create("lease/1", b"other")
    with traced(one, "-e", "trace=newfstatat") as trace:
        one.ask("create", "lease/1", "x")
    nth = 1 + ['"1", ' in line for line in trace.lines].index(True)
    refused = _inject(one, "newfstatat", f"error=EIO:when={nth}+", "create", "lease/1", "x")
    assert (refused["error"], refused["errno"], refused["applied"]) == (FAILED, errno.EEXIST, None)
    assert one.ask("names") == {"result": [".lock", "lease/1"]}


# Each error as what it is


@NEEDS_STRACE
@pytest.mark.parametrize("error", ["EROFS", "EINVAL"])
def test_where_there_is_nothing_to_sync_a_durable_read_works(root: Path, one: Child, error: str) -> None:
    """B103: some file systems that are mounted read-only refuse even the sync, as having nothing to do."""
    FileStore(root).create("lease/1", b"x")
    assert _inject(one, "fsync", f"error={error}", "read", "lease/1", "durable") == {"result": "x"}


@NEEDS_STRACE
def test_a_durable_read_that_cannot_sync_says_so(root: Path, one: Child) -> None:
    FileStore(root).create("lease/1", b"x")
    assert _inject(one, "fsync", "error=EIO", "read", "lease/1", "durable")["errno"] == errno.EIO


@NEEDS_STRACE
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("ENOSPC", UNAVAILABLE),
        ("EDQUOT", UNAVAILABLE),
        ("ETIMEDOUT", UNAVAILABLE),
        ("EMFILE", UNAVAILABLE),
        ("EIO", FAILED),
        ("EROFS", FAILED),
        ("EACCES", FAILED),
        ("EPERM", FAILED),
        ("ENAMETOOLONG", FAILED),
        ("ENOSYS", CANNOT),
    ],
)
def test_each_error_says_what_to_do(root: Path, one: Child, error: str, expected: str) -> None:
    refused = _inject(one, "openat", f"error={error}", "create", "lease/1", "x")
    assert (refused["error"], refused["errno"]) == (expected, getattr(errno, error))
    assert str(root / "lease/1") in str(refused["message"])
    assert f"errno=`{error}`" in str(refused["message"])
    assert refused["filename"] == str(root / "lease/1")
    assert refused["hint"]
    assert refused["applied"] is False
    assert str(refused["cause"]).endswith("Error")


def test_every_temporary_error_asks_to_exit_with_75_and_a_hopeless_one_with_78() -> None:
    codes = {StoreUnavailableError: 75, StoreError: 1, StoreCannotLockError: 78}
    assert {meaning.error.exit_code == codes[meaning.error] for meaning in _MEANINGS.values()} == {True}


@NEEDS_STRACE
@pytest.mark.parametrize("call", ["openat", "read", "fstat"])
@pytest.mark.parametrize("do", ["read", "create"])
def test_a_handle_that_is_stale_once_is_changed_under_me(root: Path, one: Child, call: str, do: str) -> None:
    """B85"""
    FileStore(root).create("lease/1", b"x")
    asked = ("read", "lease/1") if do == "read" else ("create", "lease/1", "y")
    # The child reads its request as well, before anything else.
    when = "when=2" if call == "read" else "when=1"
    injected = "?fstat,?newfstatat" if call == "fstat" else call
    reply = _inject(one, injected, f"error=ESTALE:{when}", *asked)
    assert reply["result"] in ("x", {"won": False, "text": "x"})


@NEEDS_STRACE
@pytest.mark.parametrize("do", ["read", "create", "delete", "keys"])
def test_a_handle_that_stays_stale_is_an_error_after_two_attempts(root: Path, one: Child, do: str) -> None:
    """B85"""
    FileStore(root).create("lease/1", b"x")
    asked = {"create": ("create", "lease/1", "y"), "keys": ("keys",)}.get(do, (do, "lease/1"))
    with traced(one, "-e", "trace=openat", "-e", "inject=openat:error=ESTALE") as trace:
        refused = one.ask(*asked)
    assert (refused["error"], refused["errno"]) == (UNAVAILABLE, errno.ESTALE)
    assert trace.calls == {"openat": 2}


@NEEDS_STRACE
def test_a_temporary_file_that_somebody_removed_is_made_again(root: Path, one: Child) -> None:
    with traced(one, "-e", "trace=linkat", "-e", "inject=linkat:error=ENOENT:when=1") as trace:
        assert one.ask("create", "lease/1", "x")["result"]["won"]
    assert trace.calls == {"linkat": 2}


@NEEDS_STRACE
@pytest.mark.parametrize("do", ["replace", "delete"])
def test_a_file_system_without_locks_cannot_replace(root: Path, one: Child, do: str) -> None:
    FileStore(root).create("lease/1", b"x")
    refused = _inject(one, "fcntl", "error=ENOLCK", do, "lease/1", *(["y"] if do == "replace" else []))
    assert (refused["error"], refused["errno"]) == (CANNOT, errno.ENOLCK)
    assert one.ask("read", "lease/1") == {"result": "x"}


@NEEDS_STRACE
def test_a_file_system_without_locks_can_create(root: Path, one: Child) -> None:
    assert _inject(one, "fcntl", "error=ENOLCK", "create", "lease/1", "x")["result"]["won"]
    assert one.ask("names") == {"result": [".lock", "lease/1"]}


@NEEDS_ROOT
@pytest.mark.parametrize("mode", [0o000, 0o500], ids=["unreadable", "unwritable"])
def test_a_directory_that_may_not_be_used_is_an_error_at_once(root: Path, mode: int) -> None:
    """B49"""
    FileStore(root).create("lease/1", b"x")
    (root / "lease").chmod(mode)
    for path in (root.parent.parent, root.parent):
        path.chmod(0o755)
    for path in (root, root / "lease", root / "lease/1"):
        os.chown(path, 65534, 65534)
    with child(root, prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")) as one:
        with traced(one, "-e", "trace=openat") as trace:
            refused = one.ask("create", "lease/2", "y")
    assert (refused["error"], refused["errno"]) == (FAILED, errno.EACCES)
    assert trace.calls["openat"] < 50


def test_a_file_in_place_of_the_store_is_an_error_at_once(root: Path) -> None:
    """B49"""
    root.write_bytes(b"x")
    for operation in (lambda s: s.create("a", b"x"), lambda s: s.read("a"), lambda s: list(s.list())):
        with pytest.raises(StoreError) as caught:
            operation(FileStore(root))
        assert caught.value.errno == errno.ENOTDIR


def test_running_out_of_descriptors_passes(root: Path) -> None:
    import resource

    store = FileStore(root)
    store.create("lease/1", b"x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        with pytest.raises(StoreUnavailableError) as caught:
            store.read("lease/1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.errno == errno.EMFILE
    assert store.read("lease/1") is not None


def test_no_operation_leaves_a_descriptor_open(root: Path) -> None:
    store = FileStore(root)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        store.create(f"lease/{number}", b"x")
        store.create("lease/0", b"y")
        found = store.read("lease/0")
        assert found is not None
        store.replace("lease/0", b"y", found.version)
        next(store.list())
        with pytest.raises(StoreError):
            store.create("lease/0/1", b"x")
    store.sweep()
    assert len(os.listdir("/proc/self/fd")) == before


# Death


def _killed_at_every_call(one: Child, do: str, key: str, text: str) -> Iterator[str]:
    """Kill a twin of *one* at each system call of the same request, in turn; yields the key that each worked on."""
    one.ask("warm_up", "lease/warm")
    with traced(one) as trace:
        one.ask(do, key.format("whole"), text)
    # The first read is the one of the request.
    seen = Counter(read=1)
    for line in trace.lines:
        name = line.split(maxsplit=1)[1].partition("(")[0]
        if name.isidentifier() and "read(0," not in line and name not in ("restart_syscall", "select", "pselect6"):
            seen[name] += 1
            own = key.format(sum(seen.values()))
            one.killed_at(name, seen[name], do, own, text)
            yield own
        if "write(1," in line:
            break
    assert seen["openat"] >= 3
    assert seen["fsync"] == 2
    assert seen["write"] == 2, "the record, and the answer"


@NEEDS_STRACE
@EACH_WAY
def test_whoever_dies_at_any_call_of_create_leaves_all_or_nothing(root: Path, without: tuple[str, ...]) -> None:
    """B38: no run leaves a torn record or a permanent refusal, and the next create clears up."""
    outcomes: Counter[str] = Counter()
    whole = "x" * 200
    store = FileStore(root, without=without)  # type: ignore[arg-type]
    with child(root, without=without) as one:
        for key in _killed_at_every_call(one, "create", "lease/{}", whole):
            found = store.read(key, durable=True)
            if found is not None and found.data != whole.encode():
                outcomes["torn"] += 1
                continue
            outcomes["nothing" if found is None else "all"] += 1
            list(store.list("lease/"))
            created = store.create(key, b"next")
            assert created == (Created(won=True, data=b"next") if found is None else Created(False, whole.encode()))
            # A sweep comes with the next create that wins.
            store.create(key + ".next", b"x")
            assert not list(root.rglob(".temp-*"))
    assert outcomes["nothing"]
    assert outcomes["all"]
    # Tolerated there, and there only.
    assert bool(outcomes["torn"]) is (without == WAYS["exclusive"])


@NEEDS_STRACE
def test_whoever_dies_at_any_call_of_replace_leaves_the_old_or_the_new(root: Path) -> None:
    store = FileStore(root)
    store.create("lease/beat", b"old")
    outcomes: Counter[bytes] = Counter()
    with child(root) as one:
        for key in _killed_at_every_call(one, "replace", "lease/beat", "new"):
            found = store.read(key)
            assert found is not None
            outcomes[found.data] += 1
            assert store.replace(key, b"old", found.version) is not None, "the lock died with its holder"
            assert store.sweep().kept == ()
            assert not list(root.rglob(".temp-*"))
    assert outcomes.keys() == {b"old", b"new"}


# Sweeping


def _leave_behind(root: Path) -> Path:
    """A temporary file whose maker was killed."""
    with child(root) as one:
        one.ask("warm_up", "lease/0")
        with traced(one, "-e", "trace=linkat", "-e", "inject=linkat:signal=SIGKILL:when=1"):
            one.tell("create", "lease/9", "x")
            one.process.wait(30)
    (left,) = root.rglob(".temp-*")
    return left


@NEEDS_STRACE
def test_a_create_removes_what_a_list_met_and_whose_maker_is_gone(root: Path) -> None:
    """B99"""
    left = _leave_behind(root)
    store = FileStore(root)
    assert list(store.list("lease/")) == []
    assert left.exists(), "a list writes nothing"
    store.create("lease/1", b"x")
    assert not left.exists()


def test_a_temporary_file_of_somebody_alive_is_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B99: however old it is; and it is no copy of anything once its maker is gone."""
    store = FileStore(root)
    store.create("lease/0", b"x")
    directory = os.open(root / "lease", os.O_RDONLY)
    try:
        with _publish.temporary_file(directory, 0o600, b"x") as (_, name):
            os.utime(name, (0, 0), dir_fd=directory)
            assert store.sweep() == ((), (f"lease/{name}",))
            list(store.list())
            store.create("lease/1", b"x")
            assert (root / "lease" / name).exists()
    finally:
        os.close(directory)


def test_a_sweep_touches_no_file_that_is_not_a_temporary_one_of_ours(root: Path) -> None:
    """B99: somebody else's, one without an owner, and one whose maker had no lock."""
    store = FileStore(root)
    store.create("lease/0", b"x")
    others = [".temp-1", ".temp-" + "0" * 25, ".tmp", "0~", ".nolock-" + "0" * 24]
    for name in others:
        (root / "lease" / name).write_bytes(b"the only copy")
    assert store.sweep() == ((), ("lease/.nolock-" + "0" * 24,))
    assert sorted(os.listdir(root / "lease")) == sorted([*others, "0"])


def test_a_sweep_removes_only_where_the_kernel_alone_keeps_the_locks(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B99: on a file server a free lock proves nothing."""
    store = FileStore(root)
    store.create("lease/0", b"x")
    left = root / "lease" / (".temp-" + "0" * 24)
    left.write_bytes(b"x")
    with monkeypatch.context() as patched:
        patched.setattr(_at, "is_proof", lambda directory: False)
        assert store.sweep().kept == (f"lease/{left.name}",)
    assert store.sweep().removed == (f"lease/{left.name}",)


def test_a_maker_that_meets_a_sweep_before_its_lock_takes_another_name(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B99, the moment between open and lock."""
    store = FileStore(root)
    store.create("lease/0", b"x")
    real = _kernel.try_lock
    swept: list[str] = []

    def swept_first(fd: int) -> bool:
        if not swept:
            swept.append("looking")
            swept[:] = store.sweep().removed
        return real(fd)

    monkeypatch.setattr(_publish, "try_lock", swept_first)
    assert store.create("lease/1", b"x").won
    assert len(swept) == 1
