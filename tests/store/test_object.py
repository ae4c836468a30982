"""A bucket as a store: its URL, its proof, its lists, its blobs, and what must not be seen in a message."""

from __future__ import annotations

import io
import os
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tenure._store import _object_probe
from tenure._store._object import ObjectStore
from tenure.errors import StoreCannotLockError, StoreError, StoreUnavailableError
from tenure.stores import as_directory, as_streams, open_store
from tests.helpers.object_server import SECRET, ObjectServer
from tests.helpers.scripts import ran
from tests.store.buckets import PREFIX, credentials, opened, server

__all__ = ["credentials", "server"]

KEY = "lease/1"
MARKER = f"{PREFIX}.tenure/proven-"


# URLs.


def test_a_url_is_opened_without_a_request(server: ObjectServer) -> None:
    store = open_store(server.url())
    assert isinstance(store, ObjectStore)
    assert as_directory(store) is None
    assert as_streams(store) is store
    assert not server.calls


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://", "not the name of a bucket"),
        ("s3://b", "not the name of a bucket"),
        ("s3://user:pw@bucket/x", "no user"),
        ("s3://bucket/x#y", "fragment"),
        ("s3://bucket/a/../b", "not a prefix"),
        ("s3://bucket/a b", "not a prefix"),
        ("s3://bucket/x?region=a&region=b", "twice"),
        ("s3://bucket/x?timeout=soon", "timeout must be"),
        ("s3://bucket/x?timeout=0", "timeout must be"),
        ("s3://bucket/x?endpoint=http://user:hunter2@host", "no place for a password"),
    ],
)
def test_a_malformed_url_is_refused_with_a_reason(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "option",
    [
        "secret_access_key",
        "AWS_SECRET_ACCESS_KEY",
        "session_token",
        "account_key",
        "access_key",
        "sas_key",
        "sas_token",
        "token",
        "bearer_token",
        "client_secret",
        "service_account_key",
        "sse_customer_key_base64",
        "encryption_key",
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(option: str) -> None:
    """A URL is logged, shown by `status`, and kept in the history of a shell."""
    with pytest.raises(ValueError, match="no place for a secret") as caught:
        open_store(f"s3://bucket/x?{option}={SECRET}")
    assert SECRET not in str(caught.value)


def test_options_are_those_of_the_client_and_wrong_ones_are_told(server: ObjectServer) -> None:
    with pytest.raises(StoreError, match="does not take this configuration"):
        open_store(f"{server.url()}&no_such_option=1").read(KEY)
    assert not server.calls


def test_without_the_extra_it_says_which(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(StoreError) as caught:
        open_store(server.url()).read(KEY)
    assert "tenure[objects]" in str(caught.value.hint)


# What must not be seen.


@pytest.mark.parametrize(("status", "code"), [(403, "SignatureDoesNotMatch"), (500, "InternalError"), (400, "Odd")])
def test_no_secret_is_in_an_error_nor_in_its_traceback(server: ObjectServer, status: int, code: str) -> None:
    server.on("create", nth=0).answer(status, code)
    store = opened(server, patience_s=0.1)
    # In a thread of its own, where no exception is being handled but ours: the context is the point.
    with ThreadPoolExecutor(1) as apart:
        error = apart.submit(store.create, KEY, b"x").exception()
    assert isinstance(error, StoreError)
    said = "".join(traceback.format_exception(error))
    assert error.__cause__ is not None
    assert error.__context__ is None or error.__context__ is error.__cause__
    assert SECRET not in said
    assert "?" not in said.replace("`?", ""), "a query may hold a signature"


# The proof.


def test_a_store_is_proven_once_and_then_known_to_everybody(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_object_probe, "_proven", set())
    opened(server, proven=False).create(KEY, b"x")
    assert {key.split("-")[0] + "-" for key in server.objects if key != PREFIX + KEY} == {MARKER}
    with server.counted() as calls:
        opened(server, proven=False).create("lease/2", b"x")
    assert [call.operation for call in calls] == ["create"]
    # Another process has the marker alone.
    monkeypatch.setattr(_object_probe, "_proven", set())
    with server.counted() as calls:
        opened(server, proven=False).create("lease/3", b"x")
    assert [call.operation for call in calls] == ["read", "create"]


def test_reading_proves_nothing_and_writes_nothing(server: ObjectServer) -> None:
    store = opened(server, proven=False)
    assert store.read(KEY) is None
    assert list(store.list()) == []
    assert server.count("create", "replace", "put", "delete") == 0


@pytest.mark.parametrize(
    ("ignored", "words"),
    [
        ({"create"}, "ignores create-if-absent"),
        ({"create", "replace"}, "ignores create-if-absent"),
        ({"replace"}, "keeps create-if-absent but ignores compare-and-swap"),
        ({"replace-absent"}, "keeps create-if-absent but ignores compare-and-swap"),
    ],
)
def test_a_store_that_ignores_a_condition_is_refused_by_name(
    server: ObjectServer, ignored: set[Any], words: str
) -> None:
    server.ignores = ignored
    with pytest.raises(StoreCannotLockError, match=words) as caught:
        opened(server, proven=False).create(KEY, b"x")
    assert f"store=`{server.dialect}://bucket/team/store`" in str(caught.value)
    assert server.endpoint in str(caught.value)
    assert not server.objects, "no scratch is left, and nothing else was written"


def test_a_store_that_refuses_every_compare_and_swap_is_refused(server: ObjectServer) -> None:
    server.on("replace", nth=0).answer(412, "PreconditionFailed")
    with pytest.raises(StoreCannotLockError, match="refuses every compare-and-swap"):
        opened(server, proven=False).create(KEY, b"x")


def test_the_proof_survives_lost_replies(server: ObjectServer) -> None:
    for operation in ("read", "list", "create", "replace", "delete"):
        server.on(operation).lose_reply()
    assert opened(server, proven=False).create(KEY, b"x").won


def test_a_prefix_that_holds_something_else_is_refused_before_anything_is_written(server: ObjectServer) -> None:
    with server._lock:
        server._store(f"{PREFIX}Holiday.jpg", b"x")
    before = dict(server.objects)
    with pytest.raises(StoreError, match="holds something else") as caught:
        opened(server, proven=False).create(KEY, b"x")
    assert "Holiday.jpg" in str(caught.value)
    assert server.objects == before


def test_a_prefix_whose_marker_was_cleaned_away_is_still_ours(server: ObjectServer) -> None:
    """A lifecycle rule removes what is old, and nothing is older than the marker."""
    with server._lock:
        server._store(f"{PREFIX}{KEY}", b"x")
    assert opened(server, proven=False).create("lease/2", b"x").won


def test_a_store_at_the_root_of_a_bucket_works(server: ObjectServer) -> None:
    store = open_store(server.url(""))
    store.create(KEY, b"x")
    assert list(store.list()) == [KEY]


# Lists.


def test_what_others_keep_there_is_no_key(server: ObjectServer) -> None:
    store = opened(server)
    store.create(KEY, b"x")
    with server._lock:
        server._store(f"{PREFIX}UPPER", b"x")
        server._store(f"{PREFIX}.tenure/probe/1", b"x")
        server._store("team/store-of-others/lease/2", b"x")
    assert list(store.list()) == [KEY]


def test_a_long_list_comes_page_by_page_and_no_further_than_it_is_read() -> None:
    with ObjectServer("s3") as server:
        store = opened(server, patience_s=5)
        keys = [f"log/{number:04d}" for number in range(2500)]
        with server._lock:
            for key in keys:
                server._store(PREFIX + key, b"x")
        with server.counted() as calls:
            assert list(store.list("log/")) == keys
        assert len(calls) == 3
        with server.counted() as calls:
            assert next(store.list("log/", after=keys[1999])) == keys[2000]
        assert len(calls) == 1


@pytest.mark.parametrize("page", [1, 7, 1000])
def test_a_list_without_order_is_put_in_order(page: int) -> None:
    with ObjectServer("s3", page=page) as server:
        server.lists = "unordered"
        store = opened(server, patience_s=5)
        keys = sorted(f"log/{number}" for number in range(30))
        for key in keys:
            store.create(key, b"x")
        assert list(store.list()) == keys
        assert list(store.list("log/", after=keys[10])) == keys[11:]


# Blobs.


@pytest.mark.parametrize("size", [0, 1, 5 << 20, (8 << 20) - 1, 8 << 20, 20 << 20])
def test_a_blob_of_any_size_is_read_back(server: ObjectServer, size: int) -> None:
    store = opened(server, patience_s=20)
    content = os.urandom(1 << 16) * (size // (1 << 16)) + b"x" * (size % (1 << 16))
    assert store.put_stream("blob/1", io.BytesIO(content))
    assert not store.put_stream("blob/1", io.BytesIO(content)), "it is there already"
    found = store.get_stream("blob/1")
    assert found is not None
    with found:
        assert found.read() == content


def test_an_absent_blob_is_none(server: ObjectServer) -> None:
    assert opened(server).get_stream("blob/1") is None


def test_a_large_blob_goes_in_parts(server: ObjectServer) -> None:
    opened(server, patience_s=20).put_stream("blob/1", io.BytesIO(b"x" * (20 << 20)))
    assert server.count("part") == 3
    assert server.count("complete") == 1


def test_a_blob_whose_source_fails_is_not_there(server: ObjectServer) -> None:
    class Failing(io.RawIOBase):
        left = 20 << 20

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            if self.left <= 0:
                raise OSError(5, "the disk is damaged")
            self.left -= len(buffer)
            return len(buffer)

    with pytest.raises(OSError, match="damaged"):
        opened(server, patience_s=20).put_stream("blob/1", io.BufferedReader(Failing(), 1 << 20))
    assert not server.objects


def test_a_blob_survives_lost_replies(server: ObjectServer) -> None:
    store = opened(server, patience_s=20)
    server.on("create").lose_reply()
    store.put_stream("blob/small", io.BytesIO(b"small"))
    server.on("part").answer(500)
    store.put_stream("blob/large", io.BytesIO(b"x" * (20 << 20)))
    assert server.objects[f"{PREFIX}blob/small"].data == b"small"
    assert len(server.objects[f"{PREFIX}blob/large"].data) == 20 << 20


# Processes.


def test_a_forked_child_is_told_instead_of_hanging() -> None:
    """The client's threads are not there, and a request would wait for them for ever."""
    with ObjectServer("s3") as server:
        said = ran(
            """
            from tenure.errors import StoreError
            from tenure.stores import open_store
            store = open_store(sys.argv[1])
            store.create("lease/1", b"x")
            if os.fork() == 0:
                try:
                    store.read("lease/1")
                except StoreError as error:
                    print(error.hint)
                os._exit(0)
            os.wait()
            """,
            server.url(),
        )
    assert "fork before the first use" in said


def test_an_unreachable_store_is_unavailable_and_not_empty(server: ObjectServer) -> None:
    store = opened(server, patience_s=0.2)
    server.close()
    with pytest.raises(StoreUnavailableError):
        list(store.list())
    with pytest.raises(StoreUnavailableError):
        store.read(KEY)
