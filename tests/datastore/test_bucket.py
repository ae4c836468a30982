"""The datastore on a bucket: the same, and what a commit costs in requests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tenure import Datastore
from tests.helpers.object_server import ObjectServer
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
