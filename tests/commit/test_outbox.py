"""The outbox: what a state may become, who may decide it, and what is never forgotten."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, get_args

import pytest

from tenure import ProcessIdentity, RecordError, RecordTooNewError, WriterLease
from tenure._commit._author import Author
from tenure._commit._database import Database
from tenure._commit._outbox import Outbox
from tenure._commit._outbox_table import SCHEMA, VERSION, State
from tenure._store._memory import MemoryStore
from tests.helpers.holders import NONCE
from tests.lease.stores import LONG

GOLDEN = Path(__file__).parents[1] / "golden" / "outbox-v1.db"
NOBODY = Author(1, NONCE, None)
OTHER = Author(2, NONCE, None)


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with Outbox(tmp_path / "outbox.db") as outbox:
        yield outbox


def prepared(outbox: Outbox, *ids: str, slot: int | None = None) -> None:
    for commit_id in ids:
        assert outbox.prepare(commit_id, b"data", author=NOBODY, slot=slot) == "prepared"


def state(outbox: Outbox, commit_id: str) -> State | None:
    entry = outbox.get(commit_id)
    return None if entry is None else entry.state


def ids(outbox: Outbox, state: State | None = None) -> list[str]:
    return [entry.commit_id for entry in outbox.entries(state)]


def bring_to(outbox: Outbox, wanted: State) -> None:
    """An entry called "one" in the state *wanted*; in `landing` by fence 5."""
    prepared(outbox, "one")
    if wanted == "withdrawn":
        assert outbox.withdraw("one")
    elif wanted != "prepared":
        assert outbox.mark_landing("one", 5)
        if wanted != "landing":
            assert outbox.settle("one", wanted, fence=5)


def test_an_entry_says_all_that_was_prepared(tmp_path: Path, outbox: Outbox) -> None:
    with WriterLease(MemoryStore(), ttl=LONG).acquire() as hold:
        outbox.prepare("one", b"\x00data", author=hold, slot=12)
        author = Author.from_hold(hold)
    with Outbox(tmp_path / "outbox.db") as again:
        (entry,) = again.entries()
    assert (entry.commit_id, entry.data, entry.slot, entry.state) == ("one", b"\x00data", 12, "prepared")
    assert entry.author == author
    assert entry.author.identity == ProcessIdentity.current()
    assert (entry.landing_fence, entry.note) == (None, None)
    assert entry.prepared_at


Step = Callable[[Outbox], bool]
STEPS: dict[str, Step] = {
    "landed": lambda outbox: outbox.landed("one"),
    "withdraw": lambda outbox: outbox.withdraw("one"),
    "mark by 4": lambda outbox: outbox.mark_landing("one", 4),
    "mark by 5": lambda outbox: outbox.mark_landing("one", 5),
    "mark by 6": lambda outbox: outbox.mark_landing("one", 6),
    "settle by 4": lambda outbox: outbox.settle("one", "landed", fence=4),
    "settle by 5": lambda outbox: outbox.settle("one", "conflicted", fence=5),
    "settle by 6": lambda outbox: outbox.settle("one", "landed", fence=6),
    "forget": lambda outbox: outbox.forget("one"),
}
# From each state, what each step makes of it; whatever is not named is refused and changes nothing.
BECOMES: dict[State, dict[str, State | None]] = {
    "prepared": {
        "landed": "landed",
        "withdraw": "withdrawn",
        "mark by 4": "landing",
        "mark by 5": "landing",
        "mark by 6": "landing",
    },
    "landing": {"landed": "landed", "mark by 6": "landing", "settle by 5": "conflicted"},
    "landed": {"landed": "landed", "forget": None},
    "withdrawn": {"withdraw": "withdrawn", "forget": None},
    "conflicted": {"forget": None},
}


@pytest.mark.parametrize("before", get_args(State))
@pytest.mark.parametrize("step", STEPS)
def test_a_state_becomes_what_it_may_and_nothing_else(outbox: Outbox, before: State, step: str) -> None:
    bring_to(outbox, before)
    allowed = BECOMES[before]
    assert STEPS[step](outbox) is (step in allowed)
    assert state(outbox, "one") == allowed.get(step, before)


def test_an_entry_that_is_not_here_is_nobodys(outbox: Outbox) -> None:
    for step, do in STEPS.items():
        assert do(outbox) is False, step


def test_a_withdrawal_and_a_landing_exclude_each_other(tmp_path: Path, outbox: Outbox) -> None:
    names = [str(number) for number in range(40)]
    prepared(outbox, *names)
    told: dict[str, list[bool]] = {"withdraw": [], "mark": []}
    start = threading.Barrier(2)

    def race(who: str, step: Callable[[Outbox, str], bool]) -> None:
        with Outbox(tmp_path / "outbox.db") as own:
            start.wait()
            told[who] = [step(own, name) for name in names]

    threads = [
        threading.Thread(target=race, args=("withdraw", Outbox.withdraw)),
        threading.Thread(target=race, args=("mark", lambda own, name: own.mark_landing(name, 9))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sorted(pair) for pair in zip(told["withdraw"], told["mark"], strict=True)] == [[False, True]] * 40


def test_the_same_commit_again_is_the_same_entry_by_whoever_prepared_it_last(outbox: Outbox) -> None:
    outbox.prepare("one", b"data", author=NOBODY, slot=4)
    assert outbox.prepare("one", b"data", author=OTHER, slot=7) == "prepared"
    (entry,) = outbox.entries()
    assert (entry.author, entry.slot) == (OTHER, 7)


@pytest.mark.parametrize("before", ["landing", "landed", "conflicted"])
def test_the_same_commit_again_is_told_what_became_of_it(outbox: Outbox, before: State) -> None:
    bring_to(outbox, before)
    assert outbox.prepare("one", b"data", author=OTHER) == before
    assert state(outbox, "one") == before


def test_an_id_does_not_stand_for_two_commits(outbox: Outbox) -> None:
    prepared(outbox, "one")
    with pytest.raises(ValueError, match="stands for another commit already: 'one'"):
        outbox.prepare("one", b"other data", author=NOBODY)
    assert [entry.data for entry in outbox.entries()] == [b"data"]


def test_an_id_that_was_withdrawn_is_free_for_another_try(outbox: Outbox) -> None:
    bring_to(outbox, "withdrawn")
    prepared(outbox, "two")
    assert outbox.prepare("one", b"other data", author=OTHER, slot=3) == "prepared"
    assert [(entry.commit_id, entry.data) for entry in outbox.entries()] == [("two", b"data"), ("one", b"other data")]


@pytest.mark.parametrize("commit_id", ["", "two words", "-x", "x" * 101, "ünder"])
def test_an_id_that_is_none_is_refused(outbox: Outbox, commit_id: str) -> None:
    with pytest.raises(ValueError, match="not an id of a commit"):
        outbox.prepare(commit_id, b"data", author=NOBODY)


def test_the_floor_is_the_lowest_slot_of_what_is_not_decided(outbox: Outbox) -> None:
    """B94: ids are not commit order, and neither is the order of preparing."""
    assert outbox.undecided_floor() is None
    outbox.prepare("b", b"", author=NOBODY, slot=11)
    outbox.prepare("a", b"", author=NOBODY, slot=10)
    outbox.prepare("without", b"", author=NOBODY)
    assert outbox.undecided_floor() == 10
    outbox.landed("b")
    assert outbox.undecided_floor() == 10
    outbox.mark_landing("a", 5)
    assert outbox.undecided_floor() == 10
    outbox.settle("a", "conflicted", fence=5)
    assert outbox.undecided_floor() is None


def test_a_writer_stands_there_once(tmp_path: Path, outbox: Outbox) -> None:
    prepared(outbox, *map(str, range(20)))
    outbox.prepare("other", b"", author=OTHER)
    with sqlite3.connect(tmp_path / "outbox.db") as connection:
        assert connection.execute("SELECT count(*) FROM outbox_writer").fetchone() == (2,)
    connection.close()


def test_entries_are_counted_by_their_state(outbox: Outbox) -> None:
    bring_to(outbox, "conflicted")
    prepared(outbox, "two", "three")
    assert [outbox.count(state) for state in get_args(State)] == [2, 0, 0, 0, 1]


def test_housekeeping_keeps_what_is_undecided_what_is_conflicted_and_the_newest(outbox: Outbox) -> None:
    prepared(outbox, "undecided", "taken", "conflict", "w", *map(str, range(5)))
    outbox.mark_landing("taken", 5)
    outbox.mark_landing("conflict", 5)
    outbox.settle("conflict", "conflicted", fence=5, note="it moved")
    outbox.withdraw("w")
    for number in range(5):
        outbox.landed(str(number))
    assert outbox.forget_decided(keep=2) == 4
    assert ids(outbox) == ["undecided", "taken", "conflict", "3", "4"]
    assert [entry.note for entry in outbox.entries("conflicted")] == ["it moved"]
    assert outbox.forget_decided() == 2
    assert outbox.forget("conflict")
    assert ids(outbox) == ["undecided", "taken"]


def test_housekeeping_forgets_writers_of_whom_nothing_is_left(tmp_path: Path, outbox: Outbox) -> None:
    prepared(outbox, "one")
    outbox.prepare("two", b"", author=OTHER)
    outbox.landed("one")
    outbox.forget_decided()
    (entry,) = outbox.entries()
    assert entry.author == OTHER
    prepared(outbox, "three")
    assert [entry.author for entry in outbox.entries()] == [OTHER, NOBODY]


def test_others_write_while_entries_are_read(tmp_path: Path, outbox: Outbox) -> None:
    prepared(outbox, *map(str, range(10)))
    reading = outbox.entries()
    next(reading)
    with Outbox(tmp_path / "outbox.db") as other:
        prepared(other, "late")
    assert [entry.commit_id for entry in reading] == [*map(str, range(1, 10)), "late"]


def test_it_can_live_in_somebody_elses_database(tmp_path: Path) -> None:
    """So that an entry and the author's own rows are written together, or not at all."""
    own = "CREATE TABLE IF NOT EXISTS own (text TEXT)"
    with Database(tmp_path / "all.db", schema=own, version=1) as database:
        outbox = Outbox(database)

        def both() -> None:
            with database.transaction():
                database.change("INSERT INTO own VALUES ('x')")
                prepared(outbox, "one")
                raise KeyError

        with pytest.raises(KeyError):
            both()
        assert (ids(outbox), database.execute("SELECT * FROM own")) == ([], [])
        prepared(outbox, "two")
        outbox.close()
        assert ids(Outbox(database)) == ["two"]


def test_a_newer_file_says_upgrade_and_a_foreign_one_is_kept(tmp_path: Path) -> None:
    newer, foreign = tmp_path / "newer.db", tmp_path / "foreign.db"
    Database(newer, schema=SCHEMA, version=VERSION + 1).close()
    foreign.write_bytes(b"something else" * 1000)
    with pytest.raises(RecordTooNewError, match="a newer tenure wrote this database"):
        Outbox(newer)
    with pytest.raises(RecordError):
        Outbox(foreign)
    assert foreign.read_bytes() == b"something else" * 1000


def test_a_file_of_the_first_version_is_read(tmp_path: Path) -> None:
    shutil.copy(GOLDEN, tmp_path / "outbox.db")
    with Outbox(tmp_path / "outbox.db") as outbox:
        found = {entry.commit_id: entry for entry in outbox.entries()}
        assert outbox.undecided_floor() == 41
        assert outbox.mark_landing("prepared-1", 9)
    states: list[tuple[str, str]] = [(name, entry.state) for name, entry in found.items()]
    assert states == [
        ("prepared-1", "prepared"),
        ("landing-1", "landing"),
        ("landed-1", "landed"),
        ("withdrawn-1", "withdrawn"),
        ("conflicted-1", "conflicted"),
    ]
    entry = found["conflicted-1"]
    assert (entry.data, entry.slot, entry.landing_fence, entry.note) == (b"\x00\x01data", 45, 8, "a.txt has moved")
    assert entry.author.fence == 7
    assert isinstance(entry.author.identity, ProcessIdentity)


@pytest.mark.parametrize("record", [None, "", "{", "[]", '{"fence":7}'])
def test_a_writer_that_cannot_be_read_is_nobody_and_its_entry_stays(
    tmp_path: Path, outbox: Outbox, record: Literal["", "{"] | None
) -> None:
    prepared(outbox, "one")
    with sqlite3.connect(tmp_path / "outbox.db") as connection:
        if record is None:
            connection.execute("DELETE FROM outbox_writer")
        else:
            connection.execute("UPDATE outbox_writer SET record = ?", [record])
    connection.close()
    (entry,) = outbox.entries()
    assert entry.author == Author(None, None, None)
