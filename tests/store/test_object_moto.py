"""
The wire as somebody else's server understands it: conformance alone, since that one checks and writes in two steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.stores import open_store
from tests.helpers import object_server
from tests.helpers.capabilities import NEEDS_MOTO

pytestmark = NEEDS_MOTO


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    for name, value in object_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        import urllib.request

        # No bucket comes with it, and making one takes no signature there.
        request = urllib.request.Request(f"{endpoint}/bucket", method="PUT", data=b"")
        urllib.request.urlopen(request, timeout=30).close()
        yield f"s3://bucket/team?endpoint={endpoint}&region=us-east-1&allow_http=true"
    finally:
        server.stop()


def test_a_store_on_moto_keeps_its_promises_to_one_writer(url: str) -> None:
    from tenure.testing import check_store

    promises = check_store(lambda: open_store(url), races=1, writers=1)
    assert [promise for promise in promises if not promise.kept] == []


def test_a_missing_bucket_is_told(url: str) -> None:
    with pytest.raises(OSError, match="no such bucket"):
        open_store(url.replace("s3://bucket", "s3://another")).create("lease/1", b"x")
