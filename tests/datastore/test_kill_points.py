"""
Killed between any two steps: nothing acknowledged is missing, nothing is there twice, and nobody's work is lost.

Each scene is played again and again, and killed each time one passage later, until it comes to its end.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenure import Datastore
from tests.datastore import scenes
from tests.datastore.test_checkout import files
from tests.helpers.capabilities import NEEDS_LINUX_PROC
from tests.helpers.processes import Agent

pytestmark = NEEDS_LINUX_PROC

PUBLISHING = ("publish.written", "publish.synced", "publish.linked")
LEASING = ("lease.looked", "lease.lifeline", "lease.claimed", "lease.started", "lease.releasing")
LOGGING = ("log.looked", "log.sealed", "log.putting", "log.put")
RESTORING = ("checkout.restored", "checkout.cleaned", "checkout.cleared")
LANDING = ("outbox.landing", "outbox.put", "outbox.landed")
# What each scene passes; that these are all there are, tests/house/test_fail_points.py sees to.
SCENES = {
    "write": (
        *PUBLISHING,
        *LEASING,
        *LOGGING,
        "log.snapshot",
        "outbox.prepared",
        "checkout.noted",
        "checkout.put",
        "checkout.stored",
        "checkout.recorded",
        "checkout.applied",
        "checkout.discarded",
        "checkout.moved",
    ),
    "catch_up": ("checkout.applied",),
    "retain": (
        *PUBLISHING,
        *LOGGING,
        "log.snapshot",
        "log.floor",
        "retention.collected",
        "retention.condemned",
        "retention.deleted",
    ),
    "recover": (*PUBLISHING, *LEASING, "log.looked", "log.sealed", *RESTORING),
    "recover what was prepared": (*PUBLISHING, *LEASING, *LOGGING, *LANDING, "checkout.applied", *RESTORING),
    "recover what has landed": (*LANDING, "checkout.applied", *RESTORING),
    "recover what moved on": (*LANDING, "checkout.applied", "checkout.moved", *RESTORING),
    "recover what was never committed": ("checkout.moved", *RESTORING),
    "recover what was put back": RESTORING,
    "recover a recovery": ("log.looked", "log.sealed", "checkout.moved", *RESTORING),
}
# How the writer died that is recovered from.
DEATHS = {
    "recover": ["checkout.noted=kill"],
    "recover what was prepared": ["log.putting=kill"],
    "recover what has landed": ["log.put=kill"],
    "recover what moved on": ["outbox.prepared=kill"],
    "recover what was never committed": ["checkout.put=kill@8"],
    "recover what was put back": ["checkout.discarded=kill"],
    "recover a recovery": ["checkout.put=kill@8"],
}


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    with Agent(TENURE_CACHE="") as started:
        yield started


@dataclass(frozen=True)
class Before:
    """What a process left that was killed."""

    files: dict[str, bytes]
    prepared: dict[str, int | None]
    # Whatever the outbox has heard of, decided or not.
    begun: set[str]
    acknowledged: list[str]


def left_by(place: Path) -> Before:
    with scenes.opened(place) as checkout:
        prepared = {
            entry.commit_id: entry.slot for state in ("prepared", "landing") for entry in checkout.outbox.entries(state)
        }
        if prepared:
            assert checkout._workspace.log.floor <= min(slot for slot in prepared.values() if slot is not None)
        begun = {entry.commit_id for entry in checkout.outbox.entries()}
    return Before(files(place / "checkout"), prepared, begun, scenes.acknowledged(place))


def landed(place: Path) -> Counter[str]:
    lines = Datastore(place / "data").log()
    return Counter(line.id for line in lines if line.kind == "commit" and line.message is None)


def newest(place: Path) -> dict[str, bytes]:
    datastore = Datastore(place / "data")
    return {found.name: datastore.read(found.name) for found in datastore.files()}


def committed(place: Path) -> set[bytes]:
    """Everything that any version contains which is still kept."""
    datastore = Datastore(place / "data")
    versions = [line.slot for line in datastore.log()]
    return {datastore.read(found.name, at=slot) for slot in versions for found in datastore.files(at=slot)}


def set_aside(checkout: Path) -> set[bytes]:
    own = checkout / ".tenure"
    kept = [path for name in ("interrupted", "aside") for path in (own / name).rglob("*")]
    return {path.read_bytes() for path in kept if path.is_file()}


def put_right(place: Path, *, retained: bool = False) -> None:
    """Be the next writer, and hold what it finds and makes of it against the promise."""
    before = left_by(place)
    with scenes.opened(place) as checkout:
        checkout.recover()
        after = landed(place)
        assert checkout.outbox.undecided_floor() is None
        conflicted = {entry.commit_id for entry in checkout.outbox.entries("conflicted")}
        assert list(checkout._workspace.marker.runs()) == []
        assert not checkout.recover(), "there is nothing left to be put right"
    if not retained:
        assert set(before.acknowledged) <= set(after), "an acknowledged commit is missing"
    assert set(after.values()) <= {1}, "a commit is there twice"
    assert before.prepared.keys() <= after.keys() | conflicted, "a prepared commit was dropped"
    assert not conflicted & after.keys()
    assert after.keys() <= {*before.acknowledged, *before.begun}, "something landed that nobody had prepared"
    assert files(place / "checkout") == newest(place)
    uncommitted = set(before.files.values()) - committed(place)
    assert uncommitted <= set_aside(place / "checkout"), "somebody's work is lost"
    own = place / "checkout" / ".tenure"
    assert list(own.glob("writer.*")) + list(own.glob("underway.*")) + list((own / "tmp").glob("*")) == []
    assert list(Datastore(place / "data").verify()) == []
    with scenes.opened(place, "fresh") as fresh:
        fresh.catch_up()
    assert files(place / "fresh") == newest(place)


def die_first(agent: Agent, place: Path, scene: str, death: str) -> None:
    scenes.prepare(place)
    assert agent.ask("play", scene="write", place=str(place), points=death) == signal.SIGKILL
    if scene == "recover what moved on":
        scenes.move_on(place)
    if scene == "recover a recovery":
        assert agent.ask("play", scene="recover", place=str(place), points="checkout.moved=kill") == signal.SIGKILL


def cases() -> Iterator[tuple[str, str, str]]:
    for scene, points in SCENES.items():
        for death in DEATHS.get(scene, [""]):
            for point in points:
                yield scene, death, point


@pytest.mark.parametrize(("scene", "death", "point"), list(cases()))
def test_whoever_is_killed_there_is_put_right_by_the_next_one(
    agent: Agent, tmp_path: Path, scene: str, death: str, point: str
) -> None:
    """B90, B93, B97. The scenes of recovery say that it can be cut off at every step, and is not taken for done."""
    name = scene.split(maxsplit=1)[0]
    for passage in range(1, 100):
        place = tmp_path / str(passage)
        place.mkdir()
        if death:
            die_first(agent, place, scene, death)
        else:
            scenes.prepare(place)
        ended = agent.ask("play", scene=name, place=str(place), points=f"{point}=kill@{passage}")
        put_right(place, retained=scene == "retain")
        if not ended:
            assert passage > 1, "the scene does not pass there"
            return
        assert ended == signal.SIGKILL
    raise AssertionError("it never ends")


@pytest.mark.parametrize("passage", [1, 2])
def test_a_catch_up_that_was_killed_is_simply_done_again(agent: Agent, tmp_path: Path, passage: int) -> None:
    """With what somebody had changed by hand."""
    scenes.prepare(tmp_path)
    ended = agent.ask("play", scene="catch_up", place=str(tmp_path), points=f"checkout.applied=kill@{passage}")
    assert ended == (signal.SIGKILL if passage == 1 else 0)
    with scenes.opened(tmp_path, "reader") as reader:
        assert reader.catch_up().recovered is None
    assert files(tmp_path / "reader") == newest(tmp_path)
    assert b"changed by hand" in set_aside(tmp_path / "reader")
