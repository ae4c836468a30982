"""The conformance kit passes where it should, and names what each misbehaving store breaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenure._store._file import FileStore
from tenure._store._sql import SqlStore
from tenure.testing import MemoryStore, check_store
from tests.cli.running import tenure
from tests.helpers import databases
from tests.helpers.object_server import ObjectServer
from tests.store.buckets import PREFIX, credentials, opened, server

__all__ = ["credentials", "server"]


def broken(*arguments: Any, **options: Any) -> set[str]:
    return {promise.name for promise in check_store(*arguments, **{"races": 4, **options}) if not promise.kept}


def test_it_passes_on_files(tmp_path: Path) -> None:
    assert broken(lambda: FileStore(tmp_path / "store")) == set()


def test_it_passes_in_memory_with_lost_replies() -> None:
    store = MemoryStore()
    assert broken(lambda: store, lose_reply=lambda: store.on("create", "scratch").lose_reply()) == set()


@pytest.mark.parametrize("kind", databases.EVERY)
def test_it_passes_on_databases(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    url = databases.urls(kind, request, tmp_path)()
    assert broken(lambda: SqlStore(url)) == set()


def test_it_passes_on_buckets_with_lost_replies_and_leaves_nothing(server: ObjectServer) -> None:
    promises = check_store(
        lambda: opened(server, patience_s=5), races=12, lose_reply=lambda: server.on("create").lose_reply()
    )
    assert [promise for promise in promises if not promise.kept] == []
    assert {promise.name for promise in promises} >= {"lost reply, nobody else", "lost reply, another winner"}
    assert not server.objects


CREATE = {"create", "race of creates"}


@pytest.mark.parametrize(
    ("misbehave", "expected"),
    [
        ({"ignores": {"create"}}, CREATE),
        ({"ignores": {"replace"}}, {"replace", "replace of a key that is gone", "race of replaces"}),
        ({"ignores": {"replace-absent"}}, {"replace of a key that is gone"}),
        ({"lists": "empty"}, {"list", "order of a list", "list from the middle"}),
        ({"lists": "stale"}, {"list", "order of a list", "list from the middle"}),
    ],
)
def test_it_names_what_a_store_breaks(server: ObjectServer, misbehave: dict[str, Any], expected: set[str]) -> None:
    for name, value in misbehave.items():
        setattr(server, name, value)
    assert broken(lambda: opened(server, patience_s=5)) == expected


def test_it_names_a_store_whose_client_takes_its_own_success_for_somebody_elses() -> None:
    """What obstore and boto3 report with their own retries: B4."""

    class Lying(MemoryStore):
        lose = False

        def create(self, key: str, data: bytes) -> Any:
            created = super().create(key, data)
            if self.lose:
                self.lose = False
                return type(created)(False, b"somebody else's")
            return created

    store = Lying()
    assert broken(lambda: store, lose_reply=lambda: setattr(store, "lose", True)) == {
        "lost reply, nobody else",
        "lost reply, another winner",
    }


def test_it_names_a_compare_and_swap_made_of_a_read_and_a_write() -> None:
    """B82."""

    class Clobbering(MemoryStore):
        def replace(self, key: str, data: bytes, version: str) -> str | None:
            found = self.read(key)
            if found is None or found.version != version:
                return None
            self.read(key)
            self._records[key] = data
            stored = self.read(key)
            assert stored is not None
            return stored.version

    store = Clobbering()
    # The gap is a few bytecodes wide: made wider, so that it is met each time.
    store.on("read", nth=0).delay(0.001)
    assert broken(lambda: store, races=40) == {"race of replaces"}


# The command.


def doctor(url: str, *options: str) -> dict[str, bool]:
    done = tenure("doctor", "--json", *options, url)
    assert done.returncode == 0, done.stderr
    return {check["name"]: check["ok"] for check in json.loads(done.stdout)["checks"]}


def test_the_doctor_tries_a_bucket_and_leaves_nothing(server: ObjectServer) -> None:
    checks = doctor(server.url())
    assert checks["create"]
    assert checks["race of creates"]
    assert checks["durability"]
    assert not server.objects


def test_the_doctor_names_what_a_bucket_breaks(server: ObjectServer) -> None:
    server.ignores = {"create"}
    checks = doctor(server.url())
    assert {name for name, ok in checks.items() if not ok} >= CREATE


def test_the_doctor_writes_nothing_to_a_prefix_of_others(server: ObjectServer) -> None:
    with server._lock:
        server._store(f"{PREFIX}Holiday.jpg", b"x")
    assert doctor(server.url())["tried"] is False
    assert list(server.objects) == [f"{PREFIX}Holiday.jpg"]


def test_the_doctor_does_not_try_a_bucket_if_it_is_told_so(server: ObjectServer) -> None:
    assert "create" not in doctor(server.url(), "--no-try")
    assert not server.calls


def test_the_doctor_tries_a_directory_only_if_it_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    assert "create" not in doctor(str(tmp_path / "store"))
    assert not list((tmp_path / "store").rglob("*"))
    assert doctor(str(tmp_path / "store"), "--try")["create"]
