"""The lease on a bucket: what it costs in requests, and how it passes between machines."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure import FencedError, StoreUnavailableError, WriterBusyError, WriterLease
from tenure._lease import _keys, _sight
from tenure.testing import ManualClock
from tests.helpers import holders, processes
from tests.helpers.capabilities import NEEDS_LINUX_PROC, NEEDS_MOUNT, NEEDS_NETWORK_NAMESPACE
from tests.helpers.namespaces import with_text_over
from tests.helpers.object_server import ENVIRONMENT, Call, ObjectServer
from tests.helpers.scripts import Script
from tests.lease.stores import LONG
from tests.store.buckets import PREFIX, credentials, opened, server

__all__ = ["credentials", "server"]

CLAIM, BEAT = PREFIX + _keys.claim(1), PREFIX + _keys.beat(1)


def patient(server: ObjectServer, **options: Any) -> WriterLease:
    """A lease whose pulse does not beat by itself."""
    return WriterLease(opened(server, patience_s=5), **{"clock": ManualClock(), "ttl": LONG, **options})


def plant(server: ObjectServer, key: str, data: bytes) -> None:
    """Write *data* as somebody else would, whatever is there."""
    with server._lock:
        server._store(PREFIX + key, data)


def kinds(calls: list[Call]) -> dict[str, int]:
    return dict(Counter(call.operation for call in calls))


# Costs.


def test_the_first_acquire_is_three_requests(server: ObjectServer) -> None:
    with server.counted() as calls:
        hold = patient(server).acquire()
    assert kinds(calls) == {"list": 2, "create": 1}
    hold.release()


def test_an_acquire_after_a_release_is_four_requests_and_a_release_is_one(server: ObjectServer) -> None:
    for fence in range(1, 4):
        with server.counted() as acquired:
            hold = patient(server).acquire()
        hold.renew()
        with server.counted() as released:
            hold.release()
        assert hold.fence == fence
        assert len(acquired) <= 4, acquired
        assert kinds(released) == {"replace": 1}


def test_a_release_without_a_renewal_before_is_one_request_too(server: ObjectServer) -> None:
    hold = patient(server).acquire()
    with server.counted() as calls:
        hold.release()
    assert kinds(calls) == {"create": 1}


def test_a_renewal_of_the_pulse_is_one_request(server: ObjectServer) -> None:
    hold = WriterLease(opened(server, patience_s=5), ttl=3.0).acquire()
    with server.counted() as calls:
        processes.until(lambda: server.count("replace", prefix=BEAT) >= 3, "the pulse does not beat")
    hold.release()
    assert kinds(calls) == {"create": 1, "replace": 3}


def test_a_check_is_two_requests(server: ObjectServer) -> None:
    hold = patient(server).acquire()
    with server.counted() as calls:
        hold.check()
    assert kinds(calls) == {"list": 1, "read": 1}


def test_a_poll_of_a_waiter_is_one_request(server: ObjectServer) -> None:
    """A look now and then sees the rest: see `_GLANCES`."""
    plant(server, _keys.claim(1), holders.claim(1, holder=None, ttl=100.0, skew=0.0))
    clock = ManualClock()
    with server.counted() as calls, pytest.raises(WriterBusyError):
        patient(server, clock=clock).acquire(timeout=40.0)
    looks = sum(call.operation == "list" for call in calls)
    polls = sum(call.key == BEAT for call in calls)
    assert polls >= 30
    assert looks <= 1 + polls / _sight._GLANCES
    assert len(calls) == looks + polls + 1, "and its claim is read once"


@pytest.mark.parametrize(("taken", "lists"), [(400, 2), (600, 3), (20_000, 16)])
def test_a_lease_that_was_taken_often_is_not_listed_as_a_whole(server: ObjectServer, taken: int, lists: int) -> None:
    """Claims and heartbeats stay. A list brings 1,000 of them, and on Azure more."""
    with server._lock:
        for fence in range(1, taken + 1):
            server._store(PREFIX + _keys.claim(fence), b"{}")
            server._store(PREFIX + _keys.beat(fence), b"{}")
    plant(server, _keys.claim(taken), holders.claim(taken))
    plant(server, _keys.beat(taken), holders.beat(7, state="released"))
    with server.counted() as calls:
        hold = patient(server).acquire()
    assert hold.fence == taken + 1
    assert kinds(calls)["list"] <= lists
    hold.release()


@pytest.mark.parametrize("gap", [range(0), range(5, 2000), range(1500, 3999), range(1, 4000)])
def test_the_highest_fence_is_found_whatever_was_removed(server: ObjectServer, gap: range) -> None:
    with server._lock:
        for fence in set(range(1, 4001)) - set(gap):
            server._store(PREFIX + _keys.claim(fence), b"{}")
    plant(server, _keys.claim(4000), holders.claim(4000))
    assert patient(server).inspect().fence == 4000


def test_a_renewal_ends_well_before_the_next_one_is_due(server: ObjectServer) -> None:
    """However long an operation may take otherwise: two requests that hang, within a sixth of the ttl."""
    hold = WriterLease(opened(server, patience_s=5), ttl=6.0).acquire()
    swapped: Any = hold._tenancy._pulse
    assert swapped._swapped._store.attempt_s == 0.5
    server.on("create", "replace", prefix=BEAT, nth=0).delay_reply(60)
    with pytest.raises(StoreUnavailableError) as caught:
        hold.renew()
    assert caught.value.applied is None
    assert server.count("create", prefix=BEAT) <= 3
    server.heal()
    hold.renew()
    assert hold.state == "held"
    hold.release()


def test_a_holder_that_was_replaced_after_silence_is_told(server: ObjectServer) -> None:
    """It was only slow: what it hears at its next renewal is not a list, but its heartbeat in another's words."""
    slow = patient(server, ttl=1.0, skew=0.0)
    hold = slow.acquire()
    claim: Any = hold._tenancy.claim
    # As on another machine: nobody can judge it, and this process does not know it for its own.
    foreign = holders.claim(1, holder=None, nonce=claim.nonce, ttl=1.0, skew=0.0)
    plant(server, _keys.claim(1), foreign)
    clock = ManualClock()
    from tenure._lease import _tenancy

    own = _tenancy._registry.pop(claim.nonce)
    assert patient(server, clock=clock).acquire(timeout=30.0).fence == 2
    pulse: Any = own._pulse
    with server.counted() as calls:
        assert not pulse._beat(look=False)
    assert "list" not in kinds(calls)


# Lists that lie.


@pytest.mark.parametrize("how", ["empty", "stale"])
def test_a_list_without_a_claim_that_is_there_is_no_free_lease(server: ObjectServer, how: Any) -> None:
    patient(server).acquire().release()
    server.remember_what_is_there()
    other = patient(server).acquire()
    server.lists = how
    with pytest.raises(StoreUnavailableError, match="lacks a claim that is there"):
        patient(server).acquire()
    server.lists = "all"
    other.check()


def test_a_holder_is_not_current_by_a_list_that_lies(server: ObjectServer) -> None:
    hold = patient(server).acquire()
    server.lists = "empty"
    with pytest.raises(StoreUnavailableError):
        hold.check()
    server.lists = "all"
    hold.check()


def test_a_list_without_order_is_put_in_order(server: ObjectServer) -> None:
    server.lists = "unordered"
    for fence in range(1, 5):
        hold = patient(server).acquire()
        assert hold.fence == fence
        hold.release()


def test_an_emptied_store_is_a_free_lease_again(server: ObjectServer) -> None:
    lease = patient(server)
    lease.acquire().release()
    server.objects.clear()
    assert lease.acquire().fence == 1


# Heartbeats.


def test_a_clone_of_the_holder_loses_at_its_next_renewal(server: ObjectServer) -> None:
    """Of two copies of one virtual machine, the second to beat is refused."""
    first = patient(server).acquire()
    first.renew()
    pulse: Any = first._tenancy._pulse
    found = opened(server).read(_keys.beat(1))
    assert found is not None
    from tenure._lease._beat import encode

    opened(server).replace(_keys.beat(1), encode(pulse._claim.nonce, 2, "held"), found.version)
    with pytest.raises(FencedError):
        first.renew()


@pytest.mark.parametrize("beaten", [True, False])
def test_a_replaced_holder_hears_of_it_by_its_heartbeat_alone(server: ObjectServer, beaten: bool) -> None:
    """Also if it had not beaten yet. No list tells it: the renewals of a pulse are one request each."""
    heard = threading.Event()
    lease = WriterLease(opened(server, patience_s=5), ttl=3.0, on_lost=lambda _: heard.set())
    hold = lease.acquire()
    if beaten:
        hold.renew()
    operator = patient(server)
    operator.force_release(operator.inspect().nonce, even_if_alive=True)
    with server.counted() as calls:
        assert heard.wait(30)
    assert hold.state == "lost"
    assert "list" not in kinds(calls)


def test_a_deleted_claim_is_not_resurrected_by_its_holder(server: ObjectServer) -> None:
    """B78, and a lifecycle rule that removes what is old."""
    hold = patient(server).acquire()
    hold.renew()
    server.objects.clear()
    with pytest.raises(StoreUnavailableError):
        hold.check()
    hold.release()
    assert not server.objects


def test_a_renewal_whose_reply_is_lost_is_a_renewal(server: ObjectServer) -> None:
    hold = patient(server).acquire()
    for _ in range(3):
        server.on("create", "replace", prefix=BEAT).lose_reply()
        hold.renew()
    assert hold.state == "held"
    hold.release()


def test_an_acquire_whose_replies_are_all_lost_once_is_an_acquire(server: ObjectServer) -> None:
    """B74: the second try met the first, and was told that somebody holds the lease."""
    for operation in ("list", "read", "create"):
        server.on(operation).lose_reply()
    hold = patient(server).acquire()
    assert hold.fence == 1
    hold.check()


def test_an_acquire_is_refused_by_another_winner_however_the_reply_was_lost(server: ObjectServer) -> None:
    server.on("create", prefix=CLAIM).run(lambda: plant(server, _keys.claim(1), holders.claim(1)))
    server.on("create", prefix=CLAIM).lose_reply()
    with pytest.raises(WriterBusyError) as busy:
        patient(server).acquire()
    assert busy.value.fence == 1


def test_a_409_to_every_contender_is_no_busy_lease(server: ObjectServer) -> None:
    """B76: all were told that a holder exists, and none did."""
    server.on("create", nth=0).answer(409, "ConditionalRequestConflict")
    with pytest.raises(StoreUnavailableError):
        WriterLease(opened(server), clock=ManualClock()).acquire()


# Two machines: two boots, two host ids, two network namespaces, two homes. The bucket is all they share.

TTL, SKEW = 3.0, 1.0

WRITER = f"""
    import socket, threading
    from tenure import FencedError, WriterBusyError, WriterLease
    path, url = sys.argv[1:]
    port = int(url.partition("127.0.0.1%3A")[2].partition("&")[0].partition("%2F")[0])
    # The network of this machine: one cable, to the bucket.
    listener = socket.create_server(("127.0.0.1", port))
    def pump(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
    def accept():
        while True:
            near, _ = listener.accept()
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(path)
            except OSError:
                near.close()
                continue
            for pair in ((near, far), (far, near)):
                threading.Thread(target=pump, args=pair, daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    lease = WriterLease(url, ttl={TTL}, skew={SKEW}, on_lost=lambda hold: print("lost", hold.fence))
    for line in sys.stdin:
        do, _, timeout = line.strip().partition(" ")
        try:
            if do == "acquire":
                hold = lease.acquire(timeout=float(timeout))
                print("fence", hold.fence)
            if do == "check":
                hold.check()
                print("current")
        except WriterBusyError as busy:
            print("busy", busy.judgement.verdict.value)
        except FencedError as fenced:
            print("fenced", fenced.current)
"""


@pytest.fixture
def machines(server: ObjectServer, tmp_path: Path) -> Iterator[Callable[[str, str], tuple[Script, Callable[[], None]]]]:
    """Makes a machine, and what cuts its network."""
    made: list[Any] = []

    def make(name: str, boot: str) -> tuple[Script, Callable[[], None]]:
        path = tmp_path / f"{name}.sock"
        cut = server.listen_at(path)
        over = with_text_over("/proc/sys/kernel/random/boot_id", boot + "\n")
        prefix = (*over.__enter__(), "unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
        home = str(tmp_path / name)
        script = Script(
            WRITER, path, server.url(), prefix=prefix, TENURE_CACHE=home, TENURE_HOST_ID=name, **ENVIRONMENT
        )
        made.extend([script.__enter__(), over])
        return script, cut

    yield make
    for one in made:
        one.__exit__(None, None, None)


@NEEDS_LINUX_PROC
@NEEDS_MOUNT
@NEEDS_NETWORK_NAMESPACE
@pytest.mark.parametrize("server", ["s3"], indirect=True)
def test_the_lease_passes_to_another_machine_after_ttl_and_skew_and_never_while_it_is_renewed(
    machines: Callable[[str, str], tuple[Script, Callable[[], None]]],
) -> None:
    """A foreign identity is judged by time and the fence alone."""
    (first, cut), (second, _) = (
        machines("first", "11111111-0d7e-4b61-9a3c-6e2f8b4d7c10"),
        machines("second", "22222222-0d7e-4b61-9a3c-6e2f8b4d7c10"),
    )
    assert first.ask("acquire 20") == "fence 1"
    # Longer than it would take to rob a silent one.
    assert second.ask(f"acquire {2 * (TTL + SKEW)}") == "busy unknown"
    assert first.ask("check") == "current"

    cut()

    assert second.ask("acquire 60") == "fence 2"
    assert second.ask("check") == "current"


@NEEDS_LINUX_PROC
@NEEDS_MOUNT
@NEEDS_NETWORK_NAMESPACE
@pytest.mark.parametrize("server", ["s3"], indirect=True)
def test_a_killed_holder_of_another_machine_is_replaced_after_ttl_and_skew(
    machines: Callable[[str, str], tuple[Script, Callable[[], None]]], server: ObjectServer, tmp_path: Path
) -> None:
    boot = "11111111-0d7e-4b61-9a3c-6e2f8b4d7c10"
    first, _ = machines("first", boot)
    assert first.ask("acquire 20") == "fence 1"
    first.kill()
    stored = json.loads(server.objects[CLAIM].data)
    assert stored["holder"]["boot"] == boot
    # From here its boot is another one: the lifeline in its home is not believed, and its pid is a stranger's.
    with pytest.raises(WriterBusyError) as busy:
        WriterLease(opened(server, patience_s=5)).acquire()
    assert busy.value.judgement.verdict.value == "unknown"
    assert WriterLease(opened(server, patience_s=5)).acquire(timeout=60).fence == 2
