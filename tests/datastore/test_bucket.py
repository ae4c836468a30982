"""The datastore on a bucket: the same, and what a commit costs in requests."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from tenure import Datastore
from tests.helpers.capabilities import NEEDS_CABLES, NEEDS_LINUX_PROC, NEEDS_MOUNT
from tests.helpers.networks import Machine, machines
from tests.helpers.object_server import ENVIRONMENT, ObjectServer
from tests.helpers.scripts import Script
from tests.store.buckets import PREFIX, credentials, opened, server

__all__ = ["credentials", "server"]

BIG = b"0123456789" * 5000


def test_what_one_machine_commits_another_one_gets(server: ObjectServer, tmp_path: Path) -> None:
    data = Datastore.create(opened(server, patience_s=5))
    with data.checkout(tmp_path / "here") as here, data.checkout(tmp_path / "there") as there:
        with here.writer() as writer:
            writer.put("a/small", b"small")
            writer.put("big", BIG)
            writer.commit("both")
        there.catch_up()
        assert (there.path / "a/small").read_bytes() == b"small"
        assert (there.path / "big").read_bytes() == BIG
        assert list(data.verify()) == []


def test_a_commit_is_one_request_and_one_for_each_blob(server: ObjectServer, tmp_path: Path) -> None:
    data = Datastore.create(opened(server, patience_s=5))
    with data.checkout(tmp_path / "here") as here, here.writer() as writer:
        writer.put("first", b"x")
        writer.commit()
        writer.put("second", b"small")
        with server.counted() as calls:
            writer.commit()
        assert Counter(call.operation for call in calls) == {"create": 1}
        assert calls[0].key.startswith(f"{PREFIX}log/")
        writer.put("big", BIG)
        with server.counted() as calls:
            writer.commit()
        assert Counter(call.operation for call in calls) == {"create": 2}


def test_a_commit_whose_reply_is_lost_lands_once(server: ObjectServer, tmp_path: Path) -> None:
    data = Datastore.create(opened(server, patience_s=5))
    with data.checkout(tmp_path / "here") as here, here.writer() as writer:
        for number in range(5):
            writer.put(f"file-{number}", b"x")
            server.on("create", prefix=f"{PREFIX}log/").lose_reply()
            writer.commit(f"commit {number}")
    assert [line.message for line in data.log() if line.message] == [f"commit {number}" for number in range(5)]


@pytest.mark.parametrize("server", ["s3"], indirect=True)
def test_a_large_file_says_how_far_it_is_in_both_directions(server: ObjectServer, tmp_path: Path) -> None:
    data, large = Datastore.create(opened(server, patience_s=5)), bytes(20 << 20)
    said: list[tuple[int, int]] = []
    with data.checkout(tmp_path / "here") as here, here.writer() as writer:
        writer.put("small", b"small")
        writer.put("big", BIG)
        writer.put("large", large)
        writer.commit(progress=lambda done, total: said.append((done, total)))
    assert server.count("part") == 3
    assert said == sorted(said)
    assert len(said) == 4, "after each part"
    assert said[-1] == (len(BIG) + len(large), len(BIG) + len(large))

    said.clear()
    with data.open("large", progress=lambda done, total: said.append((done, total))) as content:
        assert content.read() == large
    assert said == sorted(said)
    assert len(said) > 10
    assert said[-1] == (len(large), len(large))


@pytest.mark.parametrize("server", ["s3"], indirect=True)
def test_several_parts_of_a_large_file_are_on_their_way_at_once(server: ObjectServer, tmp_path: Path) -> None:
    data = Datastore.create(opened(server, patience_s=5))
    together = threading.Barrier(2)
    # One alone would wait in vain.
    server.on("part", nth=0).run(lambda: (together.wait(30), None)[1])
    with data.checkout(tmp_path / "here") as here, here.writer() as writer:
        writer.put("large", bytes(32 << 20))
        writer.commit()
    assert server.count("part") == 4
    assert not together.broken


# Two machines, which share the bucket and nothing else.

AT_WORK = """
    from tenure import Datastore, Error
    url, place = sys.argv[1:]
    checkout = Datastore(url, ttl=1.0, skew=0.25).checkout(place)
    for line in sys.stdin:
        do, *rest = line.split()
        try:
            if do == "begin":
                writer = checkout.writer(timeout=float(rest[0]))
                print("fence", writer.fence)
            if do == "commit":
                writer.put(rest[0], rest[0].encode())
                print("slot", writer.commit(id=rest[0]).slot)
            if do == "end":
                writer.close()
                print("ended")
            if do == "recover":
                print("landed", checkout.recover(timeout=float(rest[0])).outbox.landed)
        except Error as error:
            print(error.kind)
"""


def at_work(machine: Machine, host: str, url: str, place: Path, **environment: str) -> Script:
    """A process on *machine*, which its operator calls *host*."""
    home = str(place / f"home-{host}")
    named = {"TENURE_HOST_ID": host, "TENURE_CACHE": home, **ENVIRONMENT, **environment}
    return Script(AT_WORK, url, place / host, prefix=machine.prefix, **named)


@NEEDS_LINUX_PROC
@NEEDS_MOUNT
@NEEDS_CABLES
@pytest.mark.parametrize("returns", ["as it was", "rebooted"])
def test_what_a_dead_machine_had_prepared_lands_once_when_it_is_back_and_disturbs_nobody(
    tmp_path: Path, returns: str
) -> None:
    with machines("first", "second", "rebooted") as (address, made), ObjectServer(host=address) as server:
        first, second, rebooted = made
        url = f"{server.url()}&timeout=2"
        data = Datastore.create(url)
        with at_work(first, "first", url, tmp_path, TENURE_FAILPOINTS="outbox.prepared=kill@2") as dies:
            assert dies.ask("begin 0") == "fence 1"
            assert dies.ask("commit before").startswith("slot")
            dies.tell("commit late")
            dies.process.wait(60)
        with (
            at_work(second, "second", url, tmp_path) as other,
            at_work(first if returns == "as it was" else rebooted, "first", url, tmp_path) as back,
        ):
            # Nobody there can judge the dead one: after ttl + skew.
            assert other.ask("begin 60") == "fence 2"
            assert other.ask("commit between").startswith("slot")
            assert back.ask("recover 0") == "writer_busy"
            assert other.ask("commit meanwhile").startswith("slot")
            assert other.ask("end") == "ended"
            assert back.ask("recover 60") == "landed 1"
            assert back.ask("recover 60") == "landed 0"
            assert other.ask("begin 60") == "fence 5"
        assert [line.id for line in data.log() if line.kind == "commit"] == ["before", "between", "meanwhile", "late"]
        assert data.read("late") == b"late"
