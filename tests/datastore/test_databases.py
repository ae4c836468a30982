"""The datastore in a database: the same files, by changing a URL."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenure import Datastore, WriterBusyError
from tests.helpers import databases
from tests.helpers.processes import Agent

BIG = os.urandom(1_200_000)


@pytest.fixture(params=databases.EVERY)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return databases.urls(request.param, request, tmp_path)()


def test_what_one_checkout_commits_another_one_gets(url: str, tmp_path: Path) -> None:
    datastore = Datastore.create(url)
    with datastore.checkout(tmp_path / "here") as here, datastore.checkout(tmp_path / "there") as there:
        with here.writer() as writer:
            writer.put("a/small", b"small")
            writer.put("big", BIG)
            first = writer.commit("both")
            writer.put("big", BIG[::-1])
            writer.commit("reversed")
        assert there.catch_up().files == 2
        assert (there.path / "big").read_bytes() == BIG[::-1]
        assert first is not None
        assert datastore.read("big", at=first.slot) == BIG
        here.retain(keep=1)
        assert here.retain(keep=1).deleted == 1
        assert list(datastore.verify()) == []


def test_a_dead_writer_is_replaced_at_once_and_its_files_are_put_right(url: str, tmp_path: Path) -> None:
    with Datastore.create(url).checkout(tmp_path / "here") as checkout:
        with checkout.writer() as writer:
            writer.put("f", b"committed")
            writer.commit()
        with Agent() as agent:
            agent.ask("open_checkout", store=url, path=str(checkout.path))
            assert "kind" not in agent.ask("write")
            agent.ask("put", name="f", data="under way")
            with pytest.raises(WriterBusyError):
                checkout.catch_up()
            agent.kill()
            agent.process.wait()
        assert len(checkout.recover().interrupted) == 1
        assert (checkout.path / "f").read_bytes() == b"committed"
