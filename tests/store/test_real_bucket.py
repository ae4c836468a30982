"""The conformance kit and the lease on a real bucket, where one is named: see docs/how-to/test-on-your-bucket.md."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from tenure import WriterLease
from tenure._store._object import ObjectStore
from tenure.testing import check_store
from tests.helpers.capabilities import NEEDS_BUCKET

pytestmark = NEEDS_BUCKET


@pytest.fixture
def url() -> Iterator[str]:
    """A prefix of its own, emptied afterwards."""
    base, question, query = os.environ["TENURE_TEST_BUCKET"].partition("?")
    url = f"{base.rstrip('/')}/{uuid.uuid4().hex}{question}{query}"
    yield url
    store = ObjectStore.at(url)
    for key in list(store.list_anything("")):
        store.delete_anything(key)


def test_a_real_bucket_keeps_every_promise(url: str) -> None:
    races = int(os.environ.get("TENURE_TEST_RACES", "50"))
    promises = check_store(lambda: ObjectStore.at(url), races=races)
    assert [promise for promise in promises if not promise.kept] == []


def test_a_lease_on_a_real_bucket_passes_from_hold_to_hold(url: str) -> None:
    for fence in range(1, 4):
        with WriterLease(url).acquire() as hold:
            assert hold.fence == fence
            hold.renew()
            hold.check()
