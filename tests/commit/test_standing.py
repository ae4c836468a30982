"""Where the writer of a record stands, and what follows from it: one answer for all who ask."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tenure import Judgement, ProcessIdentity, WriterLease, judge_many
from tenure._commit import _standing
from tenure._commit._author import Author
from tenure._commit._standing import TABLE, Standings, treatment
from tenure._lease import _keys
from tenure._lease._claim import Claim
from tenure._store._memory import MemoryStore
from tenure.testing import ManualClock
from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_PID_NAMESPACE
from tests.helpers.records import OTHER_BOOT, OTHER_NONCE, changed, later
from tests.lease.stores import LONG, put

GOLDEN = Path(__file__).parents[1] / "golden" / "author-v1.json"
Maker = Callable[[Path], contextlib.AbstractContextManager[processes.Agent]]


def author_of_claim(store: Path, fence: int = 1) -> Author:
    """The author that the holder of *fence* in the directory *store* writes."""
    key = _keys.claim(fence)
    claim = Claim.decode(key, (store / key).read_bytes())
    return Author(claim.fence, claim.nonce, claim.holder)


def named(record: str | None, fence: int | None = 1, nonce: str = holders.NONCE) -> Author:
    """An author with the identity *record*."""
    return Author(fence, nonce, None if record is None else ProcessIdentity.from_json(record))


def nobody_known(clock: ManualClock) -> WriterLease:
    """A lease whose only claim names somebody whom nobody here can judge."""
    store = MemoryStore()
    put(store, _keys.claim(1), holders.claim(1))
    return WriterLease(store, clock=clock)


def wait(lease: WriterLease, clock: ManualClock, seconds: float) -> None:
    """Watch *lease* for *seconds*."""
    lease.inspect()
    for _ in range(int(seconds)):
        clock.advance(1.0)
        lease.inspect()


@NEEDS_LINUX_PROC
@pytest.mark.parametrize(
    ("maker", "state", "reason"),
    [
        (holders.holding, "alive", "lifeline_held"),
        (holders.stopped, "alive", "lifeline_held"),
        (holders.leader_exited, "alive", "lifeline_held"),
        (holders.zombie, "gone", "lifeline_free"),
        (holders.reaped, "gone", "lifeline_free"),
        # The process lives and the hold does not.
        (holders.executed, "gone", "lifeline_free"),
    ],
)
def test_the_lifeline_of_its_claim_decides(tmp_path: Path, maker: Maker, state: str, reason: str) -> None:
    store = tmp_path / "store"
    with maker(store):
        standing = Standings(WriterLease(store)).of(author_of_claim(store))
        assert (standing.state, standing.judgement.reason) == (state, reason)


@NEEDS_LINUX_PROC
def test_the_lifeline_of_an_earlier_fence_decides_too(tmp_path: Path) -> None:
    """A replaced writer is proven gone or alive by what its own claim leads to, not by the number above it."""
    store = tmp_path / "store"
    with holders.holding(store) as agent:
        author = author_of_claim(store)
        holders.plant(store, holders.claim(2), key=_keys.claim(2))
        assert Standings(WriterLease(store)).of(author).state == "alive"
        agent.kill()
        agent.process.wait(processes.PATIENCE)
        assert Standings(WriterLease(store)).of(author).state == "gone"


@NEEDS_PID_NAMESPACE
def test_a_writer_in_another_pid_namespace_is_judged_by_its_lifeline(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with holders.in_own_pid_namespace(store):
        assert Standings(WriterLease(store)).of(author_of_claim(store)).state == "alive"


@NEEDS_PID_NAMESPACE
def test_a_number_that_nobody_has_here_proves_nothing_about_another_pid_namespace(tmp_path: Path) -> None:
    """The seed's first bug: equal host names, another pid namespace, the pid not found locally."""
    with processes.Agent() as ended:
        absent = ended.pid
    record = changed(ProcessIdentity.current().to_json(), ns="4026539999", ns_id=None, uniq=None, pid=absent)
    lease = nobody_known(ManualClock())
    assert Standings(lease).of(named(record)).state == "waiting"


def test_one_that_let_go_is_gone_though_its_process_lives(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with holders.holding(store) as agent:
        author = author_of_claim(store)
        assert agent.ask("release_hold") == "ok"
        standing = Standings(WriterLease(store)).of(author)
    assert (standing.state, standing.judgement.reason) == ("gone", "released")


@NEEDS_LINUX_PROC
@pytest.mark.parametrize(
    ("maker", "state"),
    [
        (processes.sleeping, "alive"),
        (processes.stopped, "alive"),
        (processes.leader_exited, "alive"),
        (processes.zombie, "gone"),
        (processes.reaped, "gone"),
    ],
)
def test_without_a_claim_the_process_decides(maker: Any, state: str) -> None:
    """Its claim was collected, or there never was one."""
    with maker() as subject:
        assert Standings().of(named(subject.record)).state == state
        assert Standings(WriterLease(MemoryStore())).of(named(subject.record, fence=None)).state == state


@NEEDS_LINUX_PROC
def test_a_stranger_with_its_number_is_not_the_writer() -> None:
    """Pid reuse, the seed's fifth bug: the number lives, the writer does not."""
    with processes.sleeping() as subject:
        reused = later(later(subject.record, "start"), "uniq")
        assert Standings().of(named(reused)).state == "gone"
        assert Standings().of(named(subject.record)).state == "alive"


def test_a_claim_of_somebody_else_does_not_speak_for_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with holders.holding(store):
        held = author_of_claim(store)
        standing = Standings(WriterLease(store)).of(Author(held.fence, OTHER_NONCE, None))
    assert (standing.state, standing.judgement.reason) == ("waiting", "no_identity")


def test_the_claim_says_who_it_was_where_the_record_does_not() -> None:
    """An older record, without an identity, under a claim that has one."""
    store = MemoryStore()
    with WriterLease(store, ttl=LONG).acquire() as hold:
        assert Standings(WriterLease(store)).of(Author(hold.fence, hold.nonce, None)).state == "alive"


@pytest.mark.parametrize("record", [None, changed(ProcessIdentity.current().to_json(), boot=OTHER_BOOT, host=None)])
def test_one_that_nobody_can_judge_is_over_after_ttl_and_skew_and_not_before(record: str | None) -> None:
    """Older records: without an identity there is only time and the fence. Both sides of ttl + skew, 30 + 10 s."""
    clock = ManualClock()
    lease = nobody_known(clock)
    wait(lease, clock, 39)
    standing = Standings(lease).of(named(record))
    assert standing.state == "waiting"
    assert standing.retry_after_s == pytest.approx(1.0)
    wait(lease, clock, 1)
    assert Standings(lease).of(named(record)).state == "over"


def test_one_that_nobody_can_judge_is_over_once_it_is_replaced() -> None:
    lease = nobody_known(ManualClock())
    put(lease.store, _keys.claim(2), holders.claim(2))  # type: ignore[arg-type]
    assert Standings(lease).of(named(None)).state == "over"
    assert Standings(lease).of(named(None, fence=2)).state == "waiting"


def test_a_fence_of_ones_own_replaces_the_lower_ones_without_a_look() -> None:
    assert Standings(fence=8).of(named(None, fence=7)).state == "over"
    assert Standings(fence=8).of(named(None, fence=8)).state == "waiting"


@pytest.mark.parametrize("fence", [None, 9])
def test_one_without_a_fence_or_with_one_that_no_claim_took_is_never_over_by_itself(fence: int | None) -> None:
    clock = ManualClock()
    lease = nobody_known(clock)
    wait(lease, clock, 60)
    standing = Standings(lease).of(named(None, fence=fence))
    assert (standing.state, standing.retry_after_s) == ("waiting", None)


def test_this_process_is_gone_as_an_author_once_its_hold_is_over() -> None:
    """In memory there is no lifeline; the process lives on, and a record of its old hold must not block anybody."""
    lease = WriterLease(MemoryStore(), ttl=LONG)
    hold = lease.acquire()
    author = Author.from_hold(hold)
    assert Standings().of(author).state == "alive"
    hold.release()
    standing = Standings().of(author)
    assert (standing.state, standing.judgement.reason) == ("gone", "released")


@NEEDS_LINUX_PROC
def test_a_process_that_became_another_program_has_not_what_the_one_before_had() -> None:
    """By number and start time it is the same process, and it holds nothing of what it wrote down before."""
    judges = (
        "import sys, json; from tenure._commit._standing import *\n"
        "print(Standings().of(Author.from_record(json.loads(sys.argv[1]))).state)"
    )
    writes = (
        "import sys, os, json; from tenure._commit._author import Author\n"
        "record = json.dumps(Author.without_hold().to_record())\n"
        f"os.execv(sys.executable, [sys.executable, '-c', {judges!r}, record])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", writes], cwd=processes.ROOT / "python", capture_output=True, text=True, check=True
    )
    assert ran.stdout == "gone\n"


def test_a_forked_child_takes_the_parent_for_alive() -> None:
    hold = WriterLease(MemoryStore(), ttl=LONG).acquire()
    author = Author.from_hold(hold)
    pid = os.fork()
    if pid == 0:
        os._exit(3 if Standings().of(author).state == "alive" else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    hold.release()


def test_a_writer_is_judged_once_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def counting(records: Iterable[Any], **options: Any) -> list[Judgement]:
        records = list(records)
        asked.extend(records)
        return judge_many(records, **options)

    monkeypatch.setattr(_standing, "judge_many", counting)
    authors = [named(ProcessIdentity.current().to_json(), fence) for fence in range(1, 51)]
    standings = Standings()
    standings.learn(authors * 10)
    standings.learn(authors)
    assert {standings.of(author).state for author in authors * 10} == {"gone"}
    assert (len(asked), standings.probes) == (50, 50)


def test_the_table_says_what_each_of_the_five_does() -> None:
    """Whoever is not proven gone keeps its temporary files; whoever may live keeps everything."""
    rows = {state: (row.lease, row.catch_up, row.marker, row.outbox, row.temp_files) for state, row in TABLE.items()}
    assert rows == {
        "gone": ("take", "after_recovery", "interrupted", "land", "remove"),
        "alive": ("busy", "refused", "live", "skip", "keep"),
        "waiting": ("busy", "refused", "live", "skip", "keep"),
        "over": ("take", "under_own_claim", "interrupted", "land", "keep"),
    }
    assert treatment(Standings().of(named(None))) is TABLE["waiting"]


def test_an_author_is_written_as_its_golden_record_is() -> None:
    golden = GOLDEN.read_text("utf-8")
    author = Author.from_record(json.loads(golden))
    assert author.fence == 7
    assert isinstance(author.identity, ProcessIdentity)
    assert json.dumps(author.to_record(), separators=(",", ":")) + "\n" == golden


@pytest.mark.parametrize(
    "record",
    [
        None,
        7,
        [],
        {},
        {"fence": 7, "nonce": 7, "identity": 7},
        {"fence": "-1", "nonce": "../../etc", "identity": []},
        {"fence": "9" * 20, "nonce": "G" * 32, "identity": "me"},
        {"fence": "٣", "nonce": "a" * 33},
        {"fence": "0"},
    ],
)
def test_what_cannot_be_understood_of_an_author_is_left_out(record: object) -> None:
    assert Author.from_record(record) == Author(None, None, None)


def test_an_identity_that_cannot_be_understood_is_kept_and_explains_itself() -> None:
    record = {"fence": "7", "nonce": holders.NONCE, "identity": {"v": 99, "soul": "yes"}, "colour": "red"}
    author = Author.from_record(record)
    standing = Standings().of(author)
    assert (standing.state, standing.judgement.reason) == ("waiting", "version")
    assert author.to_record()["identity"] == {"v": 99, "soul": "yes"}
