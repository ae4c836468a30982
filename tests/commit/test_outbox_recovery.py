"""Landing what others prepared: whose entries, in which order, exactly once, wherever it is cut off."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure import FencedError, Hold, Judgement, ProcessIdentity, StoreUnavailableError, WriterLease, judge_many
from tenure._commit import _standing
from tenure._commit._author import Author
from tenure._commit._outbox import Outbox
from tenure._commit._outbox_recovery import Landing, RecoveryReport
from tenure._commit._outbox_table import OutboxEntry
from tenure._lease import _keys
from tenure._store._memory import MemoryStore
from tests.commit.desk import RECOVERER, WRITER, Desk, writing
from tests.helpers import holders, independent, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE
from tests.helpers.records import OTHER_BOOT, changed, later
from tests.helpers.scripts import Script
from tests.lease.stores import LONG, put

NOBODY = Author(1, holders.NONCE, None)
RECOVERS_MANY = """
import resource, sys
from tenure import WriterLease
from tenure._commit._outbox import Outbox

lease = WriterLease("memory:many")
lease.acquire().release()
sizes = []

def land(entry):
    if entry.slot in (10_000, 60_000):
        sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return "landed"

with lease.acquire() as hold:
    report = Outbox(sys.argv[1]).recover(hold, land)
print(report.landed, report.probes, sizes[1] - sizes[0])
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.outbox.close()


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with Outbox(tmp_path / "outbox.db") as outbox:
        yield outbox


@pytest.fixture
def hold() -> Iterator[Hold]:
    """A hold with fence 2: everybody with fence 1 has been replaced."""
    lease = WriterLease(MemoryStore(), ttl=LONG)
    lease.acquire().release()
    with lease.acquire() as hold:
        yield hold


def prepared(outbox: Outbox, *ids: str) -> None:
    for slot, commit_id in enumerate(ids, 10):
        outbox.prepare(commit_id, b"data", author=NOBODY, slot=slot)


def states(outbox: Outbox) -> dict[str, str]:
    return {entry.commit_id: entry.state for entry in outbox.entries()}


def landed(_: OutboxEntry) -> Landing:
    return "landed"


# Whose entries


@NEEDS_LINUX_PROC
def test_the_entry_of_a_dead_writer_lands(tmp_path: Path, desk: Desk) -> None:
    with writing(tmp_path, 3) as writer:
        writer.kill()
    assert desk.recovered() == RecoveryReport(landed=3, probes=1)
    assert desk.ledger() == ["1-0", "1-1", "1-2"]
    assert desk.recovered() == RecoveryReport()


@NEEDS_LINUX_PROC
def test_the_entry_of_a_zombie_lands(tmp_path: Path, desk: Desk) -> None:
    """The seed's sixth bug: killed, and nobody reaps it."""
    with writing(tmp_path) as writer:
        writer.send(signal.SIGKILL)
        processes.until_state(writer.pid, "Z")
        assert desk.recovered().landed == 1


@NEEDS_LINUX_PROC
@pytest.mark.parametrize("stopped", [False, True])
def test_the_entry_of_a_living_writer_is_skipped_and_lands_once_it_is_dead(
    tmp_path: Path, desk: Desk, stopped: bool
) -> None:
    """
    The seed's second, fourth and fifth bugs: stalled or replaced, it lives; nobody signals it; no floor passes what is skipped.
    """
    with writing(tmp_path) as writer:
        if stopped:
            writer.send(signal.SIGSTOP)
            processes.until_state(writer.pid, "T")
        # An operator breaks the hold, so that there is a next writer at all.
        desk.lease.force_release(desk.lease.inspect().nonce, even_if_alive=True)
        assert desk.recovered() == RecoveryReport(skipped=1, probes=1)
        assert desk.outbox.undecided_floor() == 10
        assert desk.ledger() == []
        assert independent.state(writer.pid) == ("T" if stopped else "S")
        writer.kill()
    assert desk.recovered() == RecoveryReport(landed=1, probes=1)
    assert desk.outbox.undecided_floor() is None


@NEEDS_PID_NAMESPACE
def test_the_entry_of_a_living_writer_in_another_pid_namespace_is_skipped(tmp_path: Path, desk: Desk) -> None:
    """The seed's first bug: the same host name, and a pid that nobody has here."""
    with Script(WRITER, tmp_path, 1, prefix=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")) as writer:
        assert writer.says() == "1"
        desk.lease.force_release(desk.lease.inspect().nonce, even_if_alive=True)
        assert desk.recovered() == RecoveryReport(skipped=1, probes=1)


@NEEDS_LINUX_PROC
def test_a_stranger_with_the_number_of_a_dead_writer_does_not_keep_its_entry(outbox: Outbox, hold: Hold) -> None:
    """The seed's fifth bug, pid reuse: it lands on the first recovery."""
    with processes.sleeping() as stranger:
        record = later(later(stranger.record, "start"), "uniq")
        author = Author(1, holders.NONCE, ProcessIdentity.from_json(record))
        outbox.prepare("one", b"data", author=author, slot=3)
        assert outbox.recover(hold, landed).landed == 1


def test_an_older_entry_without_an_identity_lands_once_its_fence_is_replaced(outbox: Outbox, hold: Hold) -> None:
    prepared(outbox, "one")
    elsewhere = changed(ProcessIdentity.current().to_json(), boot=OTHER_BOOT, host=None)
    outbox.prepare("two", b"data", author=Author(1, holders.NONCE, ProcessIdentity.from_json(elsewhere)))
    # As one would be that was prepared under the very hold that recovers, by somebody whom nobody can judge.
    outbox.prepare("three", b"data", author=Author(hold.fence, holders.NONCE, None))
    assert outbox.recover(hold, landed) == RecoveryReport(landed=2, skipped=1, probes=3)
    assert states(outbox) == {"one": "landed", "two": "landed", "three": "prepared"}


def test_ones_own_entries_are_left_to_oneself(outbox: Outbox, hold: Hold) -> None:
    outbox.prepare("mine", b"data", author=hold)
    assert outbox.recover(hold, landed) == RecoveryReport(skipped=1, probes=1)


# What landing answers


def test_each_answer_is_written_down(outbox: Outbox, hold: Hold) -> None:
    prepared(outbox, "landed", "conflicted", "explained", "undecided")
    answers: dict[str, Landing] = {
        "landed": "landed",
        "conflicted": "conflicted",
        "explained": ("conflicted", "a.txt has moved"),
        "undecided": ("undecided", "no answer yet"),
    }
    report = outbox.recover(hold, lambda entry: answers[entry.commit_id])
    assert report == RecoveryReport(landed=1, conflicted=2, undecided=1, probes=1)
    assert states(outbox) == {
        "landed": "landed",
        "conflicted": "conflicted",
        "explained": "conflicted",
        "undecided": "landing",
    }
    assert [entry.note for entry in outbox.entries("conflicted")] == [None, "a.txt has moved"]
    assert [entry.note for entry in outbox.entries("landing")] == ["no answer yet"]
    assert outbox.undecided_floor() == 13


def test_landing_is_told_all_that_was_prepared_and_is_marked_before(outbox: Outbox, hold: Hold) -> None:
    prepared(outbox, "one")

    def land(entry: OutboxEntry) -> Landing:
        assert (entry.data, entry.slot, entry.author) == (b"data", 10, NOBODY)
        assert (entry.state, entry.landing_fence) == ("landing", hold.fence)
        assert outbox.get("one") == entry
        assert outbox.withdraw("one") is False
        return "landed"

    assert outbox.recover(hold, land).landed == 1


def test_an_answer_that_is_none_is_refused_and_decides_nothing(outbox: Outbox, hold: Hold) -> None:
    prepared(outbox, "one")
    with pytest.raises(ValueError, match="landing must answer"):
        outbox.recover(hold, lambda entry: None)  # type: ignore[arg-type, return-value]
    assert states(outbox) == {"one": "landing"}


def failing(error: Exception, at: str) -> Callable[[OutboxEntry], Landing]:
    def land(entry: OutboxEntry) -> Landing:
        if entry.commit_id == at:
            raise error
        return "landed"

    return land


@pytest.mark.parametrize(
    "error",
    [FencedError("replaced", ours=2, current=3), StoreUnavailableError("no answer")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_stops_everybody_stops_with_the_earlier_ones_settled(
    outbox: Outbox, hold: Hold, error: Exception
) -> None:
    """B96: what failed and what was not tried is undecided, and never below the floor."""
    prepared(outbox, "one", "two", "three")
    with pytest.raises(type(error)):
        outbox.recover(hold, failing(error, "two"))
    assert states(outbox) == {"one": "landed", "two": "landing", "three": "landing"}
    assert outbox.undecided_floor() == 11
    # The same hold tries again what it has marked itself.
    assert outbox.recover(hold, landed).landed == 2


def test_an_entry_that_can_never_land_keeps_nobody_else_from_landing(outbox: Outbox, hold: Hold) -> None:
    prepared(outbox, "one", "two", "three")
    report = outbox.recover(hold, failing(KeyError("no such field"), "two"))
    assert report == RecoveryReport(landed=2, undecided=1, probes=1)
    entry = outbox.get("two")
    assert entry is not None
    assert (entry.state, entry.note) == ("landing", "KeyError: 'no such field'")
    assert outbox.undecided_floor() == 11


def test_ctrl_c_stops_with_the_earlier_ones_settled(outbox: Outbox, hold: Hold) -> None:
    prepared(outbox, "one", "two")

    def land(entry: OutboxEntry) -> Landing:
        if entry.commit_id == "two":
            raise KeyboardInterrupt
        return "landed"

    with pytest.raises(KeyboardInterrupt):
        outbox.recover(hold, land)
    assert states(outbox) == {"one": "landed", "two": "landing"}


# Replaced meanwhile


def test_a_replaced_hold_recovers_nothing(outbox: Outbox) -> None:
    store = MemoryStore()
    hold = WriterLease(store, ttl=LONG).acquire()
    put(store, _keys.claim(2), holders.claim(2))
    outbox.prepare("one", b"", author=Author(None, None, None))
    with pytest.raises(FencedError):
        outbox.recover(hold, landed)
    assert states(outbox) == {"one": "prepared"}
    hold.release()


def test_one_that_is_replaced_while_it_lands_settles_nothing_of_its_successor(outbox: Outbox, hold: Hold) -> None:
    prepared(outbox, "one")

    def land(entry: OutboxEntry) -> Landing:
        # The successor takes it on, and finds that it conflicts.
        assert outbox.mark_landing("one", hold.fence + 1)
        return "landed"

    outbox.recover(hold, land)
    entry = outbox.get("one")
    assert entry is not None
    assert (entry.state, entry.landing_fence) == ("landing", hold.fence + 1)


def test_what_a_higher_fence_has_marked_is_not_landed(outbox: Outbox, hold: Hold) -> None:
    prepared(outbox, "one")
    outbox.mark_landing("one", hold.fence + 1)
    assert outbox.recover(hold, failing(AssertionError(), "one")) == RecoveryReport(probes=1)


def test_what_a_lower_fence_has_marked_lands(outbox: Outbox, hold: Hold) -> None:
    """B97: claimed, then died; recovery must look at those too."""
    prepared(outbox, "one")
    outbox.mark_landing("one", hold.fence - 1)
    assert outbox.recover(hold, landed).landed == 1


def test_what_comes_late_lands_whatever_its_place(outbox: Outbox, hold: Hold) -> None:
    """B94: an entry with a lower place that becomes visible after a higher one was decided."""
    outbox.prepare("eleven", b"", author=NOBODY, slot=11)
    assert outbox.recover(hold, landed).landed == 1
    outbox.prepare("ten", b"", author=NOBODY, slot=10)
    assert outbox.undecided_floor() == 10
    assert outbox.recover(hold, landed).landed == 1


def test_nothing_that_failed_or_was_not_tried_is_below_the_floor(outbox: Outbox, hold: Hold) -> None:
    """B96: places interleaved over two writers, in another order than they were prepared; the first attempt fails."""
    for slot in (14, 12, 10):
        outbox.prepare(f"a{slot}", b"", author=NOBODY, slot=slot)
    for slot in (11, 13):
        outbox.prepare(f"b{slot}", b"", author=Author(hold.fence, holders.NONCE, None), slot=slot)
    with pytest.raises(StoreUnavailableError):
        outbox.recover(hold, failing(StoreUnavailableError("no answer"), "a14"))
    assert outbox.undecided_floor() == 10
    assert outbox.recover(hold, landed).landed == 3
    assert outbox.undecided_floor() == 11


# Cut off


@NEEDS_LINUX_PROC
def test_a_writer_that_dies_once_an_entry_is_prepared_has_prepared_it(tmp_path: Path, desk: Desk) -> None:
    with Script(WRITER, tmp_path, 5, TENURE_FAILPOINTS="outbox.prepared=kill@3") as writer:
        assert writer.ends()[0] == -signal.SIGKILL
    assert desk.recovered().landed == 3


@NEEDS_LINUX_PROC
@pytest.mark.parametrize(
    ("point", "before", "again"),
    [
        ("outbox.landing=kill", 0, 4),
        ("outbox.put=kill@1", 1, 4),
        ("outbox.put=kill@3", 3, 4),
        ("outbox.landed=kill", 4, 0),
    ],
)
def test_a_recovery_that_is_killed_is_carried_on_and_each_entry_lands_once(
    tmp_path: Path, desk: Desk, point: str, before: int, again: int
) -> None:
    """B97: between claim and landing, between landing and settling."""
    with writing(tmp_path, 4) as writer:
        writer.kill()
    with Script(RECOVERER, tmp_path, TENURE_FAILPOINTS=point) as recoverer:
        assert recoverer.ends()[0] == -signal.SIGKILL
    assert len(desk.ledger()) == before
    assert desk.recovered().landed == again
    assert desk.ledger() == ["1-0", "1-1", "1-2", "1-3"]
    assert set(states(desk.outbox).values()) == {"landed"}


@NEEDS_LINUX_PROC
def test_a_recovery_that_stalls_is_overtaken_and_what_it_says_later_changes_nothing(tmp_path: Path, desk: Desk) -> None:
    with writing(tmp_path, 2) as writer:
        writer.kill()
    with Script(RECOVERER, tmp_path, TENURE_FAILPOINTS="outbox.landing=stop") as stalled:
        processes.until_state(stalled.pid, "T")
        desk.lease.force_release(desk.lease.inspect().nonce, even_if_alive=True)
        assert desk.recovered().landed == 2
        stalled.send(signal.SIGCONT)
        stalled.ends()
    assert desk.ledger() == ["1-0", "1-1"]
    assert {entry.landing_fence for entry in desk.outbox.entries()} == {4}


# Many


def many(outbox: Outbox, entries: int, writers: int) -> None:
    """*entries* by *writers* that are gone, written as fast as SQLite can."""
    identity = json.loads(ProcessIdentity.current().to_json())
    dead = [identity | {"pid": 2**30 + number, "nonce": f"{number:032x}"} for number in range(writers)]
    records = [
        json.dumps({"fence": "1", "nonce": f"{number:032x}", "identity": record}) for number, record in enumerate(dead)
    ]
    assert outbox._owned is not None
    outbox._owned.executemany("INSERT INTO outbox_writer (id, record) VALUES (?, ?)", enumerate(records))
    outbox._owned.change(
        "WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < ?)"
        " INSERT INTO outbox_entry (commit_id, writer, slot, state, data)"
        " SELECT 'c' || n, n % ?, n, 'prepared', zeroblob(200) FROM counted",
        (entries, writers),
    )


def test_a_writer_is_judged_once_however_many_entries_it_has(
    outbox: Outbox, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def counting(records: Iterable[Any], **options: Any) -> list[Judgement]:
        records = list(records)
        asked.extend(records)
        return judge_many(records, **options)

    monkeypatch.setattr(_standing, "judge_many", counting)
    many(outbox, 5000, 50)
    progress: list[tuple[int, int]] = []
    report = outbox.recover(hold, landed, progress=lambda done, total: progress.append((done, total)))
    assert report == RecoveryReport(landed=5000, probes=50)
    assert len(asked) == 50
    assert progress == [(done, 5000) for done in range(1000, 5001, 1000)]


def test_a_hundred_thousand_entries_are_landed_in_memory_that_does_not_grow(tmp_path: Path) -> None:
    """50 writers, 50 probes; half of the entries lie there in a process that has seen the other half already."""
    with Outbox(tmp_path / "outbox.db") as outbox:
        many(outbox, 100_000, 50)
    # With more patience than a script gets: a busy machine takes its time for this.
    said = subprocess.run(
        [sys.executable, "-c", RECOVERS_MANY, str(tmp_path / "outbox.db")],
        cwd=processes.ROOT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=110,
    ).stdout
    landed_count, probes, grown_kib = map(int, said.split())
    assert (landed_count, probes) == (100_000, 50)
    # Half of the entries' data alone would be 10 MB.
    assert grown_kib < 2048


def test_a_page_is_found_without_a_look_at_what_is_decided(outbox: Outbox) -> None:
    """So that a recovery costs what is undecided, and not what the outbox remembers."""
    assert outbox._owned is not None
    plan = outbox._owned.execute(
        "EXPLAIN QUERY PLAN SELECT * FROM outbox WHERE number > ? AND state IN ('prepared', 'landing')"
        " ORDER BY number LIMIT ?",
        (0, 1),
    )
    assert any("outbox_undecided" in row[-1] for row in plan), plan
    plan = outbox._owned.execute(
        "EXPLAIN QUERY PLAN SELECT min(slot) FROM outbox_entry WHERE state IN ('prepared', 'landing')"
    )
    assert any("outbox_floor" in row[-1] for row in plan), plan
