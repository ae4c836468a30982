"""A look at the lease writes nothing, waits for nobody, disturbs no process, and says what a person needs to know."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure import LeaseStatus, RecordTooNewError, StoreError, WriterBusyError, WriterLease
from tenure._identity import host_name
from tenure._lease import _keys
from tenure._store._memory import MemoryStore
from tests.helpers import holders, independent, processes, tracing
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_MOUNT, NEEDS_STRACE
from tests.lease.stores import LONG, put, records

WRITING = (
    "?write,?pwrite64,?rename,?renameat,?renameat2,?link,?linkat,?unlink,?unlinkat,?mkdir,?mkdirat,?utimensat,"
    "?ftruncate,?fsync,?fdatasync,?kill,?tkill,?tgkill,?pidfd_send_signal,?rt_sigqueueinfo"
)


@NEEDS_LINUX_PROC
@pytest.mark.parametrize(
    ("maker", "state"),
    [(holders.holding, "held"), (holders.stopped, "held"), (holders.zombie, "free"), (holders.reaped, "free")],
)
def test_a_look_changes_nothing(tmp_path: Path, maker: Callable[[Path], object], state: str) -> None:
    """B103: the same bytes, inodes and times afterwards, whoever holds."""
    store = tmp_path / "store"
    with maker(store):  # type: ignore[attr-defined]
        before = holders.everything_below(store)
        assert WriterLease(store).inspect().state == state
        assert holders.everything_below(store) == before


def test_a_look_at_nothing_makes_nothing(tmp_path: Path) -> None:
    assert WriterLease(tmp_path / "store").inspect() == LeaseStatus((tmp_path / "store").as_uri(), "free")
    assert list(tmp_path.iterdir()) == []


@NEEDS_STRACE
@NEEDS_LINUX_PROC
def test_a_look_makes_no_call_that_writes_or_signals(tmp_path: Path) -> None:
    """B103, by the kernel's own account; the one write is the answer of the process that looks."""
    store = tmp_path / "store"
    with holders.stopped(store) as stopped, processes.Agent() as asker:
        asker.ask("look_at", store=str(store))
        with tracing.traced(asker, "-e", f"trace={WRITING}") as trace:
            assert asker.ask("look_at", store=str(store))["reason"] == "lifeline_held"
        assert independent.state(stopped.pid) == "T"

    assert trace.calls == {"write": 1}, trace.lines


@NEEDS_MOUNT
@NEEDS_LINUX_PROC
@pytest.mark.parametrize(("maker", "state"), [(holders.holding, "held"), (holders.reaped, "free")])
def test_a_look_works_on_a_read_only_mount(tmp_path: Path, maker: Callable[[Path], object], state: str) -> None:
    """B103: listing failed on read-only media because reading took a lock."""
    store = tmp_path / "store"
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && ! touch "$0/x" 2>/dev/null && exec "$@"'
    program = "import sys, tenure; print(tenure.WriterLease(sys.argv[1]).inspect().state)"
    with maker(store):  # type: ignore[attr-defined]
        said = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, str(store), sys.executable, "-c", program, str(store)],
            check=True,
            capture_output=True,
            text=True,
            cwd=processes.ROOT,
        )

    assert said.stdout.strip() == state


@NEEDS_LINUX_PROC
def test_a_stopped_holder_stays_stopped(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with holders.stopped(store) as agent:
        for _ in range(5):
            assert WriterLease(store).inspect().state == "held"
        assert independent.state(agent.pid) == "T"


@NEEDS_LINUX_PROC
def test_busy_says_who_where_since_when_doing_what_and_why(tmp_path: Path) -> None:
    """B106: "could not lock within 5 s" sends people searching."""
    store = tmp_path / "store"
    with holders.holding(store, label="nightly import") as agent:
        with pytest.raises(WriterBusyError) as busy:
            WriterLease(store).acquire()
        status = WriterLease(store).inspect()

    error = busy.value
    assert error.holder == f"{host_name()}/{agent.pid}" == status.holder_for_people()
    assert error.judgement is not None
    assert (error.judgement.verdict.value, error.judgement.reason) == ("alive", "lifeline_held")
    assert (error.fence, error.label, error.retry_after_s) == (1, "nightly import", None)
    assert error.since == status.since
    for word in (error.holder, "nightly import", "alive", "lifeline_held", str(error.since), "fence=`1`"):
        assert word in str(error)
    assert pickle.loads(pickle.dumps(error)).__dict__ == error.__dict__


@pytest.mark.parametrize("data", [b"", b"{", b"\0" * 300, b"1"])
def test_busy_says_so_when_the_claim_cannot_be_read(data: bytes) -> None:
    """B106, and B02: a legacy file that holds a bare pid names nobody."""
    store = MemoryStore()
    put(store, _keys.claim(1), data)

    with pytest.raises(WriterBusyError) as busy:
        WriterLease(store).acquire()

    assert busy.value.judgement is not None
    assert (busy.value.judgement.verdict.value, busy.value.judgement.reason) == ("unknown", "malformed")
    assert "problem=" in str(busy.value)
    assert busy.value.retry_after_s == 40.0
    assert records(store)[_keys.claim(1)] == data


def test_busy_says_when_to_come_back() -> None:
    """B05: "waiting on an unknowable holder", with the earliest takeover, and not "healthy"."""
    store = MemoryStore()
    put(store, _keys.claim(1), holders.claim(ttl=20.0, skew=5.0, label="drain"))

    with pytest.raises(WriterBusyError) as busy:
        WriterLease(store).acquire()

    assert busy.value.retry_after_s == 25.0
    assert "drain" in str(busy.value)
    assert WriterLease(store).inspect().state == "unknown"


def test_what_was_seen_in_the_memory_of_this_process_is_not_remembered_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has another store of that name: one that was silent there has not been watched here."""
    monkeypatch.setenv("TENURE_CACHE", str(tmp_path / "cache"))
    store = MemoryStore()
    put(store, _keys.claim(1), holders.claim())
    with pytest.raises(WriterBusyError):
        WriterLease(store).acquire()

    assert not (tmp_path / "cache").exists()


def test_a_look_shows_what_the_claim_says() -> None:
    store = MemoryStore()
    put(store, _keys.claim(3), holders.claim(3, label="import", ttl=12.0, skew=3.0))
    put(store, _keys.beat(3), holders.beat(9))

    status = WriterLease(store).inspect()

    assert (status.fence, status.label, status.ttl, status.skew, status.beat) == (3, "import", 12.0, 3.0, 9)
    assert (status.host_name, status.since, status.nonce) == ("elsewhere", "2026-10-16T08:00:00+00:00", holders.NONCE)
    assert (status.state, status.retry_after_s, status.holder) == ("unknown", 15.0, None)


def test_only_the_highest_claim_counts() -> None:
    store = MemoryStore()
    put(store, _keys.claim(1), b"torn")
    put(store, _keys.claim(2), holders.claim(2, v=99))
    put(store, _keys.claim(10), holders.claim(10))

    assert WriterLease(store).inspect().fence == 10


def test_a_claim_that_is_known_already_takes_no_other_fence(tmp_path: Path) -> None:
    """Somebody copies files. What was understood under one name is not understood under another."""
    lease = WriterLease(tmp_path / "store", ttl=LONG)
    with lease.acquire():
        record = (tmp_path / "store" / _keys.claim(1)).read_bytes()
        holders.plant(tmp_path / "store", record, key=_keys.claim(2))
        seen = lease.inspect()

    assert (seen.fence, seen.nonce) == (2, None)
    assert "takes another fence" in str(seen.problem)


@pytest.mark.parametrize(
    "name", ["0", "00000000000000000000", "1", "99999999999999999999", "00000000000000000002.tmp", "x"]
)
def test_a_name_that_is_no_claims_is_ignored(name: str) -> None:
    store = MemoryStore()
    put(store, _keys.claim(1), holders.claim())
    put(store, f"lease/{name}", b"?")

    assert WriterLease(store).inspect().fence == 1


def test_a_newer_claim_is_said_to_be_newer_by_every_door() -> None:
    store = MemoryStore()
    put(store, _keys.claim(1), holders.claim(v=2))

    with pytest.raises(RecordTooNewError):
        WriterLease(store).inspect()
    with pytest.raises(RecordTooNewError):
        WriterLease(store).acquire(timeout=0)


def planted_link(directory: Path, what: str, key: str) -> Path:
    """A lease in `directory/store` where something else stands in place of the record of *key*."""
    store = directory / "store"
    victim = directory / "victim"
    if key != _keys.claim(1):
        holders.plant(store, holders.claim())
    path = holders.plant(store, b"", key=key)
    path.unlink()
    if what == "an old file":
        victim.write_bytes(b"precious")
        os.utime(victim, (1, 1))
        path.symlink_to(victim)
    elif what == "a pipe":
        os.mkfifo(path)
    elif what == "a directory":
        victim.mkdir()
        path.symlink_to(victim)
    else:
        path.symlink_to(path if what == "itself" else victim)
    return path


LINKS = ["an old file", "a directory", "nothing", "itself", "a pipe"]


@pytest.mark.parametrize("what", LINKS)
@pytest.mark.parametrize("key", [_keys.claim(1), _keys.beat(1)])
def test_what_stands_in_place_of_a_record_is_never_followed(tmp_path: Path, what: str, key: str) -> None:
    """B44: a waiter read the age of a link's target and broke a live lock. A clear error, and nothing touched."""
    path = planted_link(tmp_path, what, key)
    lease = WriterLease(tmp_path / "store")
    target = tmp_path / "victim"
    before = holders.everything_below(target) if target.exists() else {}

    with pytest.raises(StoreError) as refused:
        lease.acquire()

    assert str(path) in str(refused.value)
    assert (holders.everything_below(target) if target.exists() else {}) == before
    assert os.path.lexists(path)


@pytest.mark.parametrize("what", LINKS)
def test_a_lease_whose_claim_is_a_link_or_a_pipe_is_not_called_free_but_unusable(tmp_path: Path, what: str) -> None:
    """B44: whatever it is, nobody can take this lease, and `status` must not promise it."""
    path = planted_link(tmp_path, what, _keys.claim(1))
    with pytest.raises(StoreError) as refused:
        WriterLease(tmp_path / "store").inspect()

    assert str(path) in str(refused.value)


def test_an_oversized_beat_is_no_beat(tmp_path: Path) -> None:
    store = tmp_path / "store"
    holders.plant(store, holders.claim())
    holders.plant(store, b" " * (2 << 20), key=_keys.beat(1))

    assert WriterLease(store).inspect().beat == 0


def test_an_oversized_claim_takes_its_number_and_is_kept(tmp_path: Path) -> None:
    store = tmp_path / "store"
    path = holders.plant(store, b" " * (2 << 20))

    status = WriterLease(store).inspect()

    assert (status.state, status.fence, status.retry_after_s) == ("unknown", 1, 40.0)
    assert status.problem
    assert path.stat().st_size == 2 << 20


def test_a_look_at_ones_own_hold_says_held(tmp_path: Path) -> None:
    lease = WriterLease(tmp_path / "store", ttl=LONG)
    with lease.acquire():
        assert lease.inspect().state == "held"
    assert lease.inspect().state == "free"
    assert lease.inspect().fence == 1, "the fence never starts again"
