"""Content outside the log: whole and right, or not there."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure import RecordError, StoreUnavailableError
from tenure._datastore._blobs import Blobs, Checked, Content, content_of_key
from tenure._store._file import FileStore
from tenure._store._memory import MemoryStore
from tenure.stores import Store

BIG = os.urandom(3 * 512 * 1024 + 17)


def content(data: bytes, fence: int = 1) -> Content:
    return Content(len(data), hashlib.sha256(data).hexdigest(), fence=fence)


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store") if request.param == "file" else MemoryStore()


@pytest.mark.parametrize("data", [b"", b"x", BIG])
def test_what_was_put_is_read(store: Store, data: bytes) -> None:
    blobs, one = Blobs(store), content(data)
    blobs.put(one, io.BytesIO(data))
    with blobs.open(one) as source:
        assert source.read() == data
    assert list(blobs.names()) == [one.key]
    assert content_of_key(one.key) == Content(-1, one.sha256, fence=1)


def test_the_same_content_of_two_writers_lies_under_two_names(store: Store) -> None:
    """A store cannot fence a delete: what an old writer's collector removes, a new writer does not refer to."""
    blobs = Blobs(store)
    for fence in (1, 2):
        blobs.put(content(BIG, fence), io.BytesIO(BIG))
    blobs.delete(content(BIG, 1).key)
    assert list(blobs.names()) == [content(BIG, 2).key]
    with blobs.open(content(BIG, 2)) as source:
        assert source.read() == BIG


def test_nothing_is_visible_of_content_that_was_not_what_it_should_be(store: Store) -> None:
    blobs, one = Blobs(store), content(BIG)
    wrong = Checked(
        io.BytesIO(BIG[:-1] + b"?"), one.size, one.sha256, lambda size, digest: ValueError(f"{size}:{digest}")
    )
    with pytest.raises(ValueError):
        blobs.put(one, wrong)  # type: ignore[arg-type]
    assert not blobs.has(one)


def test_what_was_cut_off_in_the_making_is_named_so_that_it_can_be_collected() -> None:
    store, one = MemoryStore(), content(BIG)
    store.on("create", "blob/", nth=3).fail()
    with pytest.raises(StoreUnavailableError):
        Blobs(store).put(one, io.BytesIO(BIG))
    assert list(Blobs(store).names()) == [one.key]
    Blobs(store).delete(one.key)
    assert list(store.list("blob/")) == []


@pytest.mark.parametrize("data", [BIG + b"more", BIG[:-1], b"", BIG[:-1] + bytes([BIG[-1] ^ 1])])
def test_a_reader_never_reaches_the_end_of_damaged_content(tmp_path: Path, data: bytes) -> None:
    store = FileStore(tmp_path / "store")
    blobs, one = Blobs(store), content(BIG)
    blobs.put(one, io.BytesIO(BIG))
    store.path_of(one.key).chmod(0o600)
    store.path_of(one.key).write_bytes(data)
    with pytest.raises(RecordError, match="damaged"), blobs.open(one) as source:
        source.read()


def test_a_missing_blob_says_which_and_what_to_do(store: Store) -> None:
    with pytest.raises(RecordError, match="missing") as caught:
        Blobs(store).open(content(BIG))
    assert caught.value.key == content(BIG).key
    assert "verify" in (caught.value.hint or "")


def test_a_deleted_blob_is_gone_and_deleting_it_again_is_no_error(store: Store) -> None:
    blobs, one = Blobs(store), content(BIG)
    blobs.put(one, io.BytesIO(BIG))
    blobs.delete(one.key)
    blobs.delete(one.key)
    assert not blobs.has(one)
    assert list(store.list("blob/")) == []


def test_a_blob_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    blobs, one = Blobs(store), content(BIG)
    blobs.put(one, io.BytesIO(BIG))
    before = store.path_of(one.key).stat()
    blobs.put(one, io.BytesIO(BIG))
    assert store.path_of(one.key).stat() == before


@pytest.mark.parametrize(
    "key", ["blob/ab/" + "0" * 64 + "." + "0" * 20, "blob/00/../x", "log/1", "blob/00/" + "0" * 64]
)
def test_what_names_no_blob_is_none(key: str) -> None:
    assert content_of_key(key) is None


_STREAM = """
import hashlib, io, os, resource, sys
from tenure._datastore._blobs import Blobs, Content
from tenure._store._file import FileStore

size = int(sys.argv[2])
class Zeros(io.RawIOBase):
    left = size
    def readable(self): return True
    def read(self, n=-1):
        n = min(n, self.left); self.left -= n
        return bytes(n)
digest = hashlib.sha256()
for _ in range(size >> 20): digest.update(bytes(1 << 20))
blobs, one = Blobs(FileStore(sys.argv[1])), Content(size, digest.hexdigest(), fence=1)
blobs.put(one, Zeros())
with blobs.open(one) as source:
    while source.read(1 << 20): pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """The same holds for 10 GB; `benchmarks/bench_datastore.py` measures it."""

    def peak_kib(size: int) -> int:
        command = [sys.executable, "-c", _STREAM, str(tmp_path / str(size)), str(size)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert peak_kib(256 << 20) < peak_kib(1 << 20) + 8 * 1024
