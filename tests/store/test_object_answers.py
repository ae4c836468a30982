"""Every answer of a bucket is landed, lost or unknown, and never guessed."""

from __future__ import annotations

import io
import threading

import pytest

from tenure.errors import StoreCannotLockError, StoreError, StoreUnavailableError
from tests.helpers.object_server import Fault, ObjectServer
from tests.store.buckets import PATIENCE_S, PREFIX, credentials, opened, server

__all__ = ["credentials", "server"]

KEY = "lease/1"

# What may happen to one request, and whether it is applied.
UNCLEAR = {
    "reply lost": lambda fault: fault.lose_reply(),
    "dropped before": lambda fault: fault.drop(),
    "500 and applied": lambda fault: fault.answer(500, applied=True),
    "500 and not applied": lambda fault: fault.answer(500),
    "503 and applied": lambda fault: fault.answer(503, "SlowDown", applied=True),
    "503": lambda fault: fault.answer(503, "SlowDown"),
    "408 and applied": lambda fault: fault.answer(408, "RequestTimeout", applied=True),
    "400 that means 408": lambda fault: fault.answer(400, "RequestTimeout"),
    "429": lambda fault: fault.answer(429, "TooManyRequests", retry_after="1"),
    "silence after": lambda fault: fault.delay_reply(60),
    "late": lambda fault: fault.delay(1.2 * PATIENCE_S),
}


def script(name: str, fault: Fault) -> Fault:
    UNCLEAR[name](fault)
    return fault


@pytest.mark.parametrize("fault", UNCLEAR)
def test_a_create_that_met_a_fault_once_has_won(server: ObjectServer, fault: str) -> None:
    script(fault, server.on("create"))
    created = opened(server).create(KEY, b"ours")
    assert (created.won, created.data) == (True, b"ours")
    assert server.objects[PREFIX + KEY].data == b"ours"


@pytest.mark.parametrize("fault", UNCLEAR)
def test_a_create_that_met_a_fault_and_a_winner_has_lost(server: ObjectServer, fault: str) -> None:
    theirs = opened(server)

    def go_first() -> None:
        theirs.create(KEY, b"theirs")

    server.on("create").run(go_first)
    script(fault, server.on("create", nth=1))
    created = opened(server).create(KEY, b"ours")
    assert (created.won, created.data) == (False, b"theirs")


@pytest.mark.parametrize("fault", UNCLEAR)
def test_a_replace_that_met_a_fault_once_has_been_applied(server: ObjectServer, fault: str) -> None:
    store = opened(server)
    store.create(KEY, b"1")
    found = store.read(KEY)
    assert found is not None
    script(fault, server.on("replace"))
    version = store.replace(KEY, b"2", found.version)
    after = store.read(KEY)
    assert after is not None
    assert (after.data, after.version) == (b"2", version)


@pytest.mark.parametrize("fault", ["reply lost", "500 and not applied", "429", "silence after"])
def test_a_fault_that_stays_leaves_nobody_able_to_tell(server: ObjectServer, fault: str) -> None:
    script(fault, server.on("create", nth=0))
    with pytest.raises(StoreUnavailableError) as caught:
        opened(server).create(KEY, b"ours")
    assert caught.value.applied is None


def test_a_store_that_is_not_there_was_sent_nothing(server: ObjectServer) -> None:
    store = opened(server)
    server.close()
    with pytest.raises(StoreUnavailableError, match="cannot be reached") as caught:
        store.create(KEY, b"ours")
    assert caught.value.applied is False


def test_a_409_with_nothing_stored_is_not_taken_for_a_winner(server: ObjectServer) -> None:
    """B76: S3 says so to a create that raced with a delete, and obstore calls it "already exists"."""
    server.on("create").answer(409, "ConditionalRequestConflict")
    assert opened(server).create(KEY, b"ours").won


def test_a_409_for_ever_is_no_winner_either(server: ObjectServer) -> None:
    server.on("create", nth=0).answer(409, "ConditionalRequestConflict")
    with pytest.raises(StoreUnavailableError) as caught:
        opened(server).create(KEY, b"ours")
    assert caught.value.applied is False


def test_a_409_to_a_replace_is_tried_again(server: ObjectServer) -> None:
    store = opened(server)
    store.create(KEY, b"1")
    found = store.read(KEY)
    assert found is not None
    server.on("replace").answer(409, "ConditionalRequestConflict")
    assert store.replace(KEY, b"2", found.version) is not None


def test_a_replace_whose_reply_was_lost_and_that_somebody_overwrote_is_unknown(server: ObjectServer) -> None:
    """B5: one record that everybody writes keeps no history."""
    store, other = opened(server), opened(server)
    store.create(KEY, b"1")
    found = store.read(KEY)
    assert found is not None

    def overwrite() -> None:
        ours = other.read(KEY)
        assert ours is not None
        assert ours.data == b"ours"
        other.replace(KEY, b"theirs", ours.version)

    server.on("replace").lose_reply()
    server.on("replace", nth=2).run(overwrite)
    with pytest.raises(StoreUnavailableError) as caught:
        store.replace(KEY, b"ours", found.version)
    assert caught.value.applied is None


@pytest.mark.parametrize(("status", "code"), [(200, ""), (404, "NoSuchKey"), (412, "PreconditionFailed"), (304, "")])
def test_a_replace_of_a_key_that_is_gone_makes_no_record(server: ObjectServer, status: int, code: str) -> None:
    """B78: the answers differ, and one server makes the key."""
    store = opened(server)
    if status != 200:
        server.on("replace").answer(status, code)
    assert store.replace(KEY, b"2", "1" if server.dialect == "gs" else '"0"') is None
    assert not server.objects


def test_an_answer_that_comes_too_late_is_not_waited_for(server: ObjectServer) -> None:
    """The first request arrives after the second has won: it is refused, as any other would be."""
    late = server.on("create")
    late.delay(1.2 * PATIENCE_S)
    store = opened(server)
    assert store.create(KEY, b"ours").won
    assert late.met.wait(5)
    assert server.count("create") == 2


def test_a_request_delivered_again_after_collection_makes_a_ghost_and_no_second_winner(server: ObjectServer) -> None:
    server.on("create").repeat()
    store = opened(server)
    assert store.create(KEY, b"ours").won
    store.delete(KEY)
    assert store.create(KEY, b"theirs").won
    assert server.deliver_again()[0] in (409, 412)
    found = store.read(KEY)
    assert found is not None
    assert found.data == b"theirs"


def test_reading_and_listing_are_tried_again(server: ObjectServer) -> None:
    store = opened(server)
    store.create(KEY, b"ours")
    server.on("read").drop()
    server.on("list").answer(503, "SlowDown")
    found = store.read(KEY)
    assert found is not None
    assert found.data == b"ours"
    assert list(store.list()) == [KEY]


def test_a_delete_whose_reply_was_lost_is_a_delete(server: ObjectServer) -> None:
    store = opened(server)
    store.create(KEY, b"ours")
    server.on("delete").lose_reply()
    store.delete(KEY)
    assert not server.objects


def test_an_operation_ends_within_two_attempts(server: ObjectServer) -> None:
    """Each of them hangs: no third one is begun, since it would not fit."""
    server.on("create", nth=0).delay_reply(60)
    with pytest.raises(StoreUnavailableError):
        opened(server, patience_s=0.2).create(KEY, b"ours")
    assert server.count("create") <= 2


def test_a_store_within_seconds_divides_them(server: ObjectServer) -> None:
    store = opened(server, patience_s=5)
    assert store.within(1.0).attempt_s == 0.5
    assert store.within(100.0) is store


@pytest.mark.parametrize("lost", ["reply lost", "500 and applied", "503 and applied"])
def test_of_a_thousand_lost_replies_none_makes_a_winner_a_loser(server: ObjectServer, lost: str) -> None:
    """Two writers for each key; every reply of a create is lost once, to whichever of them comes first."""
    rounds = 112  # 3 dialects x 3 faults x 112 keys = 1,008
    told: dict[str, list[tuple[str, bool, bytes]]] = {}
    for number in range(rounds):
        script(lost, server.on("create", prefix=f"{PREFIX}lease/{number:04d}"))
    start = threading.Barrier(2)

    def write(name: str) -> None:
        store = opened(server, patience_s=5)
        told[name] = []
        for number in range(rounds):
            start.wait(30)
            created = store.create(f"lease/{number:04d}", name.encode())
            told[name].append((name, created.won, created.data))

    threads = [threading.Thread(target=write, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, outcomes in enumerate(zip(told["first"], told["second"], strict=True)):
        stored = server.objects[f"{PREFIX}lease/{number:04d}"].data
        assert [name for name, won, _ in outcomes if won] == [stored.decode()]
        assert {data for _, _, data in outcomes} == {stored}


# What no trying again helps, and what the message must say. Nothing was written, and the lease was not robbed.
FINAL = [
    (404, "NoSuchBucket", "no such bucket"),
    (404, "ContainerNotFound", "no such bucket"),
    (403, "AccessDenied", "may not do that"),
    (403, "AuthorizationPermissionMismatch", "may not do that"),
    (400, "ExpiredToken", "credentials have expired"),
    (403, "SignatureDoesNotMatch", "does not accept these credentials"),
    (403, "InvalidAccessKeyId", "does not accept these credentials"),
    (401, "", "does not accept these credentials"),
    (403, "RequestTimeTooSkewed", "clock is too far"),
    (400, "AuthorizationHeaderMalformed", "another region"),
    (301, "PermanentRedirect", "another region"),
]


@pytest.mark.parametrize(("status", "code", "words"), FINAL)
def test_bad_input_is_told_at_once_with_bucket_and_key_before_anything_is_written(
    server: ObjectServer, status: int, code: str, words: str
) -> None:
    server.on("read", "list", "create", nth=0).answer(status, code)
    with pytest.raises(StoreError, match=words) as caught:
        opened(server, proven=False).create(KEY, b"ours")
    error = caught.value
    assert not isinstance(error, StoreUnavailableError)
    assert f"store=`{server.dialect}://bucket/team/store`" in str(error)
    assert error.hint
    assert error.applied is False
    assert len(server.calls) == 1
    assert not server.objects


def test_read_only_credentials_can_look_and_are_refused_before_the_first_write(server: ObjectServer) -> None:
    server.on("create", "replace", "put", nth=0).answer(403, "AccessDenied")
    store = opened(server, proven=False)
    assert store.read(KEY) is None
    assert list(store.list()) == []
    with pytest.raises(StoreError, match="may not do that"):
        store.create(KEY, b"ours")
    assert not server.objects


def test_a_store_that_does_not_know_conditions_cannot_lock(server: ObjectServer) -> None:
    server.on("create", nth=0).answer(501, "NotImplemented")
    with pytest.raises(StoreCannotLockError, match="conditional"):
        opened(server, proven=False).create(KEY, b"ours")


def test_a_record_that_nobody_of_us_wrote_is_not_read_whole(server: ObjectServer) -> None:
    store = opened(server)
    store.put_stream(KEY, io.BytesIO(b"x" * (2 << 20)))
    with pytest.raises(StoreError, match="larger than any record"):
        store.read(KEY)
