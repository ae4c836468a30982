"""What a process does with a datastore before it is killed; `tests.helpers.dying` plays it, `test_kill_points` cleans up."""

from __future__ import annotations

import os
from pathlib import Path

from tenure import Checkout, Datastore

# Larger than what travels inline, and each its own.
BIG = {name: name.encode() * 4000 for name in ("one", "two", "three", "four")}


def opened(place: Path, name: str = "checkout") -> Checkout:
    return Datastore(place / "data").checkout(place / name)


def acknowledged(place: Path) -> list[str]:
    """The ids of the commits that have returned."""
    path = place / "acknowledged"
    return path.read_text("utf-8").split() if path.exists() else []


def _acknowledge(place: Path, commit_id: str) -> None:
    fd = os.open(place / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, commit_id.encode() + b"\n")
    os.close(fd)


def prepare(place: Path) -> None:
    """A checkout with committed files, one that is a version behind, and one that is two."""
    Datastore.create(place / "data")
    with opened(place) as checkout, checkout.writer() as writer:
        writer.put("kept", b"kept")
        writer.put("small", b"small 1")
        writer.put("big", BIG["one"])
        writer.put("gone", b"gone")
        writer.commit(id="base")
        _acknowledge(place, "base")
    with opened(place, "reader") as reader:
        reader.catch_up()
    (place / "reader" / "kept").write_bytes(b"changed by hand")
    elsewhere(place)


def elsewhere(place: Path) -> None:
    """Another checkout's writer commits, and finds nothing of the first one's to put right."""
    with opened(place, "elsewhere") as checkout, checkout.writer() as writer:
        writer.put("kept", BIG["four"])
        writer.put("small", b"small 2")
        writer.delete("gone")
        writer.put("there", b"there")
        if writer.commit(id="elsewhere"):
            _acknowledge(place, "elsewhere")


def move_on(place: Path) -> None:
    """Somebody else changes what the first one had prepared to change."""
    with opened(place, "elsewhere") as checkout, checkout.writer() as writer:
        writer.put("small", b"moved on")
        writer.commit(id="moved-on")
        _acknowledge(place, "moved-on")


def write(place: Path) -> None:
    """Two commits, a snapshot, and changes that are given up."""
    with opened(place) as checkout, checkout.writer() as writer:
        writer.put("small", b"small 3")
        writer.put("big", BIG["two"])
        writer.put("dir/new", b"new")
        writer.delete("there")
        writer.commit(id="first")
        _acknowledge(place, "first")
        writer.put("small", b"small 4")
        writer.put("dir/new", BIG["three"])
        writer.commit(id="second")
        _acknowledge(place, "second")
        writer.snapshot()
        writer.put("small", b"never committed, small")
        writer.put("other", b"never committed, other")


def recover(place: Path) -> None:
    with opened(place) as checkout:
        checkout.recover()


def catch_up(place: Path) -> None:
    with opened(place, "reader") as checkout:
        checkout.catch_up()


def retain(place: Path) -> None:
    """What the first pass condemns, the second deletes."""
    with opened(place) as checkout, checkout.writer() as writer:
        # From here on nobody needs what it was.
        writer.put("big", b"small now")
        writer.commit(id="first")
        _acknowledge(place, "first")
        writer.retain(keep=1)
        writer.retain(keep=1)
