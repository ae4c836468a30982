"""What the lease promises wherever there are processes: another one lives, ends, or is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import ProcessIdentity, Verdict, WriterBusyError, WriterLease, judge
from tenure._lease import _keys
from tenure._lifeline import Place, asked
from tenure._store._file import FileStore
from tests.helpers.capabilities import NEEDS_IDENTITY
from tests.helpers.scripts import Script
from tests.lease.beats import until_beaten

pytestmark = NEEDS_IDENTITY

_HOLDS = """
import tenure
hold = tenure.WriterLease(sys.argv[1]).acquire()
print(tenure.ProcessIdentity.current().to_json())
if input() == "release":
    hold.release()
    print("released")
    input()
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def holder(store: Path) -> Iterator[Script]:
    with Script(_HOLDS, store) as script:
        yield script


def test_a_living_holder_is_not_replaced(store: Path, holder: Script) -> None:
    record = holder.says()
    with pytest.raises(WriterBusyError) as caught:
        WriterLease(store).acquire()
    assert caught.value.judgement.verdict is Verdict.ALIVE
    assert judge(record).verdict is Verdict.ALIVE


def test_a_killed_holder_is_replaced_at_once(store: Path, holder: Script) -> None:
    record = holder.says()
    holder.kill()
    with WriterLease(store).acquire() as hold:
        assert hold.fence == 2
    assert judge(record).verdict is Verdict.GONE


def test_a_released_lease_is_free_while_its_process_lives(store: Path, holder: Script) -> None:
    record = holder.says()
    holder.tell("release")
    assert holder.says() == "released"
    with WriterLease(store).acquire() as hold:
        assert hold.fence == 2
    assert judge(record).verdict is Verdict.ALIVE


def test_a_waiter_gets_the_lease_when_its_holder_dies(store: Path, holder: Script) -> None:
    holder.says()
    waiter = Script("import tenure\nprint('waits')\nprint(tenure.WriterLease(sys.argv[1]).acquire(60).fence)\n", store)
    with waiter:
        assert waiter.says() == "waits"
        holder.kill()
        assert waiter.says() == "2"


def test_another_process_is_identified_as_it_identifies_itself(holder: Script) -> None:
    theirs = ProcessIdentity.from_json(holder.says())
    seen = ProcessIdentity.of(theirs.pid)
    assert (seen.start, seen.uniq, seen.boot, seen.ns) == (theirs.start, theirs.uniq, theirs.boot, theirs.ns)


def test_a_hold_beats_by_itself(store: Path) -> None:
    with WriterLease(store, ttl=0.3).acquire():
        until_beaten(store, 2)


def test_a_lifeline_shows_to_others_until_its_process_ends(store: Path, holder: Script) -> None:
    holder.says()
    claim = json.loads((store / _keys.claim(1)).read_bytes())
    key, place = _keys.lifeline(claim["nonce"]), Place.from_record(claim["lifeline"])
    assert place is not None, "the temporary directory is on a file system without local locks"
    assert asked(FileStore(store), key, place) is True

    holder.kill()

    assert asked(FileStore(store), key, place) is False
