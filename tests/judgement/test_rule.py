"""The one rule: an admissible lifeline decides both ways, then the word "released", then the identity; else nobody knows."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure import Judgement, ProcessIdentity, Verdict, WriterBusyError, WriterLease, judge
from tenure._judgement import LIFELINE_FREE, LIFELINE_HELD, RELEASED, Asker
from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_IDENTITY
from tests.helpers.records import OTHER_BOOT, OTHER_HOST, OTHER_NONCE, changed, later
from tests.lease.stores import LONG

pytestmark = NEEDS_IDENTITY

MINE = ProcessIdentity.current().to_json()
HOLDERS: dict[str, str | None] = {
    "alive": MINE,
    "gone": changed(later(later(MINE, "start"), "uniq"), nonce=OTHER_NONCE),
    "another boot": changed(MINE, boot=OTHER_BOOT, nonce=OTHER_NONCE),
    "another host": changed(MINE, host=OTHER_HOST, nonce=OTHER_NONCE),
    "no identity": None,
    "not understood": '{"v": 1}',
    "newer": changed(MINE, v=2),
}
BY_IDENTITY = {
    "alive": Verdict.ALIVE,
    "gone": Verdict.GONE,
    "another boot": Verdict.UNKNOWN,
    "another host": Verdict.UNKNOWN,
    "no identity": Verdict.UNKNOWN,
    "not understood": Verdict.UNKNOWN,
    "newer": Verdict.UNKNOWN,
}


def expected(name: str, lifeline: bool | None, released: bool) -> Judgement:
    """The rule once more, in the words of the design."""
    if lifeline is True:
        return LIFELINE_HELD
    if lifeline is False:
        return LIFELINE_FREE
    return RELEASED if released else judge(HOLDERS[name])


@pytest.mark.parametrize(
    ("name", "lifeline", "released"), list(itertools.product(HOLDERS, [True, False, None], [True, False]))
)
def test_the_rule_for_every_combination_of_evidence(name: str, lifeline: bool | None, released: bool) -> None:
    found = Asker().judge(HOLDERS[name], lifeline=lifeline, released=released)

    assert found == expected(name, lifeline, released)
    if lifeline is None and not released:
        assert found.verdict is BY_IDENTITY[name]


def test_what_the_three_own_verdicts_are() -> None:
    assert (LIFELINE_HELD.verdict, LIFELINE_HELD.reason, LIFELINE_HELD.evidence) == (
        Verdict.ALIVE,
        "lifeline_held",
        "lifeline",
    )
    assert (LIFELINE_FREE.verdict, LIFELINE_FREE.reason, LIFELINE_FREE.evidence) == (
        Verdict.GONE,
        "lifeline_free",
        "lifeline",
    )
    assert (RELEASED.verdict, RELEASED.reason, RELEASED.evidence) == (Verdict.GONE, "released", "beat")


def test_nothing_at_all_is_unknown_and_never_gone() -> None:
    assert Asker().judge(None).verdict is Verdict.UNKNOWN


def test_the_operators_word_about_this_host_reaches_the_identity() -> None:
    """B06: another boot proves a reboot only where the operator vouches for the host id."""
    mine = ProcessIdentity.current(host_id="db-1").to_json()
    rebooted = changed(mine, boot=OTHER_BOOT, nonce=OTHER_NONCE)

    assert Asker("db-1", host_id_is_unique=True).judge(rebooted).verdict is Verdict.GONE
    assert Asker("db-1", host_id_is_unique=False).judge(rebooted).verdict is Verdict.UNKNOWN
    assert Asker().judge(rebooted).verdict is Verdict.UNKNOWN
    assert Asker("db-1").me().host == "db-1"


def _by_inspect(store: Path) -> tuple[str, str]:
    judgement = WriterLease(store).inspect().judgement
    assert judgement is not None
    return judgement.verdict.value, judgement.reason


def _by_acquire(store: Path) -> Judgement | None:
    """What a refusal rests on; None if it was granted."""
    try:
        hold = WriterLease(store, ttl=LONG).acquire()
    except WriterBusyError as busy:
        return busy.judgement
    hold.release()
    return None


def _agrees(granted_or_refused: Judgement | None, said: tuple[str, str]) -> bool:
    if granted_or_refused is None:
        return said[0] == "gone"
    return (granted_or_refused.verdict.value, granted_or_refused.reason) == said


def _by_status(store: Path) -> tuple[str, str]:
    said = subprocess.run(
        [sys.executable, "-m", "tenure", "status", "--json", str(store)],
        check=True,
        capture_output=True,
        text=True,
        cwd=processes.ROOT,
    )
    fields = json.loads(said.stdout)
    return fields["verdict"], fields["reason"]


def _by_the_command_judge(store: Path) -> tuple[str, str]:
    """Judges the claim's holder alone, so it can be compared only where there is no lifeline."""
    said = subprocess.run(
        [sys.executable, "-m", "tenure", "judge", "--json", str(store / "lease" / f"{1:020d}")],
        check=False,
        capture_output=True,
        text=True,
        cwd=processes.ROOT,
    )
    fields = json.loads(said.stdout)
    return fields["verdict"], fields["reason"]


@pytest.mark.parametrize("name", ["gone", "another boot", "another host", "no identity", "not understood", "newer"])
def test_every_consumer_says_the_same_of_one_record(tmp_path: Path, name: str) -> None:
    """B09: the manager judged a pid by one rule and its child by another, over the same file."""
    record = HOLDERS[name]
    holders.plant(tmp_path, holders.claim(holder=None if record is None else json.loads(record)))
    first = _by_inspect(tmp_path)

    assert _by_status(tmp_path) == first
    assert _by_the_command_judge(tmp_path) == first
    assert _agrees(_by_acquire(tmp_path), first)
    assert first[0] == BY_IDENTITY[name].value


@pytest.mark.parametrize(
    ("maker", "said"),
    [
        (holders.holding, ("alive", "lifeline_held")),
        (holders.stopped, ("alive", "lifeline_held")),
        (holders.executed, ("gone", "lifeline_free")),
        (holders.zombie, ("gone", "lifeline_free")),
    ],
)
def test_every_consumer_says_the_same_of_one_process(
    tmp_path: Path, maker: Callable[[Path], object], said: tuple[str, str]
) -> None:
    """B09, with real holders; one that became another program is alive by its identity, and its hold is over."""
    store = tmp_path / "store"
    with maker(store):  # type: ignore[attr-defined]
        assert [_by_inspect(store), _by_status(store)] == [said] * 2
        assert _agrees(_by_acquire(store), said)
