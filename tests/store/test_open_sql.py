"""From a URL to a store in a database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure._store._sql import SqlStore
from tenure.errors import StoreCannotLockError
from tenure.stores import open_store


def _shown(url: str) -> str:
    store = open_store(url)
    assert isinstance(store, SqlStore)
    return store.url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:/srv/a.db", "sqlite:/srv/a.db"),
        ("sqlite:////srv/a.db", "sqlite:/srv/a.db"),
        ("SQLITE:/srv/a.db", "sqlite:/srv/a.db"),
        ("sqlite:/srv/a%20b%3F%25.db", "sqlite:/srv/a%20b%3F%25.db"),
        ("sqlite:/srv/%FF.db", "sqlite:/srv/%FF.db"),
        ("sqlite:/srv/a.db?table=other", "sqlite:/srv/a.db?table=other"),
        ("sqlite:/srv/a.db?table=tenure_records", "sqlite:/srv/a.db"),
        ("postgresql://app@db/app", "postgresql+psycopg://app@db/app"),
        ("postgresql+psycopg://app@db:6432/app?table=other", "postgresql+psycopg://app@db:6432/app?table=other"),
        ("postgresql://app@db/app?sslmode=require&table=t", "postgresql+psycopg://app@db/app?sslmode=require&table=t"),
        ("mysql://app@db/app", "mysql+pymysql://app@db/app"),
        ("mariadb://app@db/app", "mariadb+pymysql://app@db/app"),
    ],
)
def test_a_database_is_found_and_shown_in_one_way(url: str, shown: str) -> None:
    assert _shown(url) == shown
    assert _shown(shown) == shown


def test_a_relative_path_is_relative_to_here_and_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:a.db")
    monkeypatch.chdir("/")
    store.create("lease/1", b"one")
    assert (tmp_path / "a.db").exists()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:open-sesame@db/app",
        "postgresql://app@db/app?password=open-sesame",
        "postgresql://app@db/app?sslpassword=open-sesame",
        "mysql://app:open-sesame@db/app",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    store = open_store(url)
    assert "sesame" not in store.url
    assert "sesame" not in repr(store)


@pytest.mark.parametrize("url", ["postgresql://app:open-sesame@db:x/app", "mysql:app:open-sesame@db", "postgresql:app"])
def test_what_is_no_database_url_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="Write ") as refused:
        open_store(url)
    assert "sesame" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:",
        "sqlite://",
        "sqlite::memory:",
        "sqlite:///:memory:",
        "sqlite://host/a.db",
        "sqlite:a.db#b",
        "sqlite:a%00.db",
        "sqlite:a.db?mode=ro",
        "sqlite:a.db?table=",
        "sqlite:a.db?table=A",
        "sqlite:a.db?table=a-b",
        "sqlite:a.db?table=a&table=b",
        "sqlite:a.db?table=" + 64 * "a",
        "postgresql://db",
        "postgresql://db/a?table=a;drop",
        "postgresql://db/a?table=a&table=b",
    ],
)
def test_what_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        open_store(url)


def test_three_slashes_are_refused_as_they_mean_two_things() -> None:
    with pytest.raises(ValueError, match=r"sqlite:a\.db for a relative path, sqlite:/a\.db for an absolute one"):
        open_store("sqlite:///a.db")


def test_opening_and_looking_make_nothing(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path / 'a.db'}")
    assert store.read("lease/1") is None
    assert list(store.list()) == []
    assert store.replace("lease/1", b"x", "0") is None
    store.delete("lease/1")
    assert list(tmp_path.iterdir()) == []


def test_a_database_file_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_store(f"sqlite:{tmp_path / 'a.db'}").create("lease/1", b"one")
    finally:
        os.umask(before)
    assert (tmp_path / "a.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("url", "missing", "hint"),
    [
        ("sqlite:a.db", "sqlalchemy", "tenure[sql]"),
        ("postgresql://h/d", "psycopg", "tenure[postgresql]"),
        ("mysql://h/d", "pymysql", "tenure[mysql]"),
        ("mariadb://h/d", "pymysql", "tenure[mysql]"),
    ],
)
def test_a_missing_library_is_named_with_what_brings_it(url: str, missing: str, hint: str) -> None:
    script = f"""
import sys
sys.modules[{missing!r}] = None
from tenure.errors import StoreCannotLockError
from tenure.stores import open_store
try:
    open_store({url!r})
except StoreCannotLockError as error:
    print(error, error.hint)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "not installed" in said
    assert hint in said
    assert StoreCannotLockError.exit_code == 78


def test_the_door_loads_no_database_library_for_another_store() -> None:
    script = "import sys, tenure; tenure.open_store('memory:a'); print('sqlalchemy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )
