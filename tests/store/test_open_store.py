"""From a URL or a path to a store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore
from tenure.stores import open_store
from tests.helpers.capabilities import NEEDS_POSIX_PATHS


def _root(url: str | os.PathLike[str]) -> str:
    store = open_store(url)
    assert isinstance(store, FileStore)
    return str(store.path_of("x").parent)


@NEEDS_POSIX_PATHS
@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("/srv/data", "/srv/data"),
        ("file:///srv/data", "/srv/data"),
        ("file:/srv/data", "/srv/data"),
        ("file://localhost/srv/data", "/srv/data"),
        ("FILE:///srv/data", "/srv/data"),
        ("file:///srv/a%20b%3F%25", "/srv/a b?%"),
        ("/srv/a%20b", "/srv/a%20b"),
        ("/srv/a:b", "/srv/a:b"),
        ("/srv/a?b#c", "/srv/a?b#c"),
        (Path("/srv/s3:x"), "/srv/s3:x"),
        ("file:///srv/%FF", "/srv/\udcff"),
    ],
)
def test_a_path_is_found(url: str | os.PathLike[str], root: str) -> None:
    assert _root(url) == root


@pytest.mark.parametrize("url", ["data", "file:data", "./data", Path("data")])
def test_a_relative_path_is_relative_to_here(
    url: str | os.PathLike[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _root(url) == str(tmp_path / "data")


def test_a_path_with_a_colon_is_written_with_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _root("./s3:x") == str(tmp_path / "s3:x")


def test_a_drive_letter_is_no_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(_root("C:/data")).name == "data"


@NEEDS_POSIX_PATHS
@pytest.mark.parametrize("path", ["/srv/data", "/srv/a b?#%", "/srv/ä", "/srv/\udcff"])
def test_the_url_of_a_directory_opens_it_again(path: str) -> None:
    store = FileStore(path)
    assert store.url.isascii()
    assert _root(store.url) == path


@pytest.mark.parametrize("url", ["ftp://host/x", "azure://b", "sqlite3:x.db", "postgres://h/d", "oracle://h", "x1:y"])
def test_an_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(ValueError, match=r"known=.*file:, .*memory:, .*s3:, .*sqlite:"):
        open_store(url)


@pytest.mark.parametrize("url", ["file://server/share", "file://data"])
def test_a_host_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="names no host"):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    ["", "file:", "file://", "file:///a?mode=ro", "file:///a#b", "file:///a%00b", "a\0b", "memory:", "memory:a/b"],
)
def test_what_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        open_store(url)


def test_a_memory_store_is_the_one_of_that_name() -> None:
    store = open_store("memory:opened")
    assert store is MemoryStore.named("opened")
    assert store.url == "memory:opened"


def test_opening_makes_nothing(tmp_path: Path) -> None:
    open_store(tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_importing_the_door_loads_no_store() -> None:
    script = (
        "import sys, tenure.stores; "
        "print([m for m in ('urllib.request', 'tenure._store._file', 'tenure._store._memory') "
        "if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
