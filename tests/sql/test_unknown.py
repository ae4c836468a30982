# ruff: noqa: PT012  what is raised at the end of a block depends on all that was done in it
"""A COMMIT whose answer is lost, a connection that dies, a lease that is lost: applied, not applied, or nobody knows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from tenure import FencedError
from tenure.sql import (
    Applied,
    CommitToken,
    CommitUnknownError,
    EpochFence,
    FenceError,
    LeaseLostAppliedError,
    NotApplied,
    PinError,
    ScopeLostError,
    StaleEpochError,
    Unknown,
)
from tests.helpers.processes import until
from tests.helpers.proxy import Fault, Loss, Proxy
from tests.helpers.servers import SUPERUSER, as_user
from tests.sql.conftest import MARIADB, POOLED, POSTGRESQL, SQLITE
from tests.sql.databases import BASE, SCOPE, STORE, Database, Writer
from tests.sql.waiting import InThread, waiting_for_a_lock

SERVED = [POSTGRESQL, POOLED, MARIADB]
served = pytest.mark.parametrize("empty", SERVED, indirect=True)
RECONNECTS = pytest.mark.filterwarnings("ignore:The 'reconnect' argument:DeprecationWarning")


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with Proxy(database.port) as proxy:
        yield proxy


def behind(database: Database, proxy: Proxy) -> Writer:
    return Writer(EpochFence(database.engine(proxy.before(database.url)))).load()


def commit_and_lose(writer: Writer, proxy: Proxy, loss: Loss) -> tuple[CommitUnknownError, Fault]:
    """What a writer is told whose COMMIT is lost, or its answer."""
    fault: list[Fault] = []
    with pytest.raises(CommitUnknownError) as unknown:
        writer.append("+A", before_commit=lambda: fault.append(proxy.lose(loss, b"COMMIT")))
    return unknown.value, fault[0]


@served
def test_a_commit_whose_answer_is_lost_is_unknown_and_was_applied(database: Database, proxy: Proxy) -> None:
    a = behind(database, proxy)
    error, _ = commit_and_lose(a, proxy, "answer")
    assert (error.applied, error.retry, error.http_status) == (None, "never", 503)

    state = database.fence().resolve(error.token)
    assert isinstance(state, Applied)
    assert database.body() == "base+A"
    a.pin, a.body = state.pin, "base+A"
    a.append("+A2")
    assert database.body() == "base+A+A2", "and the answer has the pin for what follows"


@served
def test_a_commit_that_never_arrived_is_unknown_and_was_not_applied(database: Database, proxy: Proxy) -> None:
    a = behind(database, proxy)
    error, _ = commit_and_lose(a, proxy, "request")
    assert database.fence().resolve(error.token) == NotApplied()
    assert database.body() == BASE
    a.append("+again")
    assert database.body() == "base+again"


@served
def test_while_one_waits_for_an_answer_that_never_comes_others_can_know_it(database: Database, proxy: Proxy) -> None:
    """Half open: the server has committed, and the connection looks alive."""
    a = behind(database, proxy)
    fault: list[Fault] = []
    tokens: list[CommitToken] = []

    def work() -> None:
        with a.fence.write(a.pin) as tx:
            tx.execute(STORE, {"id": SCOPE, "body": "base+A"})
            tokens.append(tx.token)
            fault.append(proxy.lose("every answer", b"COMMIT"))

    waiting = InThread(work)
    until(lambda: bool(fault) and fault[0].happened.is_set(), "COMMIT was not sent")
    assert isinstance(database.fence().resolve(tokens[0]), Applied)
    proxy.cut()
    assert isinstance(waiting.end(), CommitUnknownError)


@served
def test_whoever_comes_after_does_not_make_an_unknown_commit_look_applied(database: Database, proxy: Proxy) -> None:
    """After pin 1 an epoch of 2 may be mine or somebody else's. The nonce in the ledger tells."""
    error, _ = commit_and_lose(behind(database, proxy), proxy, "request")
    Writer(database.fence()).load().append("+B")
    assert database.epoch() == error.token.epoch
    assert database.fence().resolve(error.token) == NotApplied()


@served
def test_an_applied_one_stays_applied_however_far_others_have_gone(database: Database, proxy: Proxy) -> None:
    error, _ = commit_and_lose(behind(database, proxy), proxy, "answer")
    b = Writer(database.fence()).load()
    for _ in range(3):
        b.append("+B")
    assert isinstance(database.fence().resolve(error.token), Applied)


def test_while_it_is_undecided_the_answer_is_unknown_and_not_no(database: Database) -> None:
    """A plain read would see the old value, and take "not yet" for "never"."""
    a = Writer(database.fence()).load()
    with a.fence.write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        token = tx.token
        resolver = EpochFence(database.engine(connect_args={"timeout": 0.2} if database.kind == "sqlite" else {}))
        assert resolver.resolve(token, timeout=0.2) == Unknown("undecided")
    assert resolver.resolve(token) == Applied(tx.committed_pin)  # type: ignore[arg-type]


@served
def test_the_resolver_waits_for_the_one_that_is_undecided(database: Database) -> None:
    a = Writer(database.fence()).load()
    answers: list[object] = []
    with a.fence.write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        token = tx.token
        resolver = database.fence()
        waiting = InThread(lambda: answers.append(resolver.resolve(token, timeout=30)))
        if database.family == "postgresql":
            until(waiting_for_a_lock(database, database.engine()), "nobody waits")
    assert waiting.end() is None
    assert answers == [Applied(tx.committed_pin)]  # type: ignore[arg-type]


def test_a_ledger_that_was_pruned_does_not_answer_no(database: Database) -> None:
    a = Writer(database.fence()).load()
    with a.fence.write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        token = tx.token
    with database.engine().begin() as connection:
        connection.execute(text("UPDATE tenure_commit SET at = '2001-01-01 00:00:00'"))
    assert a.fence.prune(3600) == 2
    assert a.fence.resolve(token) == Unknown("pruned")


def test_a_young_entry_is_not_pruned_and_a_scope_never_is(database: Database) -> None:
    assert database.fence().prune(3600) == 0
    pin = Writer(database.fence()).load().pin
    database.fence().destroy(pin)
    database.fence().prune(0)
    assert database.epoch() == 2


def test_a_token_from_elsewhere_is_refused(database: Database) -> None:
    with pytest.raises(PinError, match="made elsewhere"):
        database.fence().resolve(CommitToken(SCOPE, 1, "0" * 32, "1" * 32))


@served
def test_a_database_that_cannot_be_asked_is_no_answer(database: Database, proxy: Proxy) -> None:
    a = behind(database, proxy)
    error, _ = commit_and_lose(a, proxy, "answer")
    proxy.__exit__(None, None, None)
    assert a.fence.resolve(error.token, timeout=1) == Unknown("unreachable")


# A connection that dies before COMMIT: nothing is durable, nothing reconnects, and the next one is clean.


@served
@pytest.mark.parametrize("swallow", [False, True])
def test_a_connection_that_dies_in_between_leaves_nothing(database: Database, proxy: Proxy, swallow: bool) -> None:
    a = behind(database, proxy)
    connections = proxy.count()
    tx = a.fence.write(a.pin)
    with pytest.raises(ScopeLostError) as lost, tx:
        tx.execute(STORE, {"id": SCOPE, "body": "first"})
        proxy.cut()
        with contextlib.suppress(SQLAlchemyError) if swallow else contextlib.nullcontext():
            tx.execute(STORE, {"id": SCOPE, "body": "second"})
        assert swallow
        for _ in range(2):
            with pytest.raises(FenceError):
                tx.execute(STORE, {"id": SCOPE, "body": "third"})
    assert lost.value.applied is False
    assert proxy.count() == connections, "nobody has reconnected inside"
    assert (database.body(), database.epoch()) == (BASE, 1)
    a.append("+A")
    assert database.body() == "base+A"


@served
def test_a_connection_that_dies_before_the_fence_has_passed_keeps_the_pin_good(
    database: Database, proxy: Proxy
) -> None:
    a = behind(database, proxy)
    proxy.lose("answer", b"tenure_fence")
    with pytest.raises(ScopeLostError) as lost:
        a.append("+A")
    assert (lost.value.applied, lost.value.retry) == (False, "same")
    a.append("+A")
    assert database.body() == "base+A"


@pytest.mark.parametrize("empty", [POSTGRESQL, POOLED], indirect=True)
def test_a_backend_that_an_administrator_ends_has_committed_nothing(database: Database) -> None:
    a = Writer(database.fence()).load()
    ending = text("SELECT pg_terminate_backend(:pid)")
    with pytest.raises(ScopeLostError), a.fence.write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "first"})
        pid = tx.scalar(text("SELECT pg_backend_pid()"))
        with database.engine(as_user(SUPERUSER, database.url)).connect() as other:
            other.execute(ending, {"pid": pid})
        tx.execute(STORE, {"id": SCOPE, "body": "second"})
    assert (database.body(), database.epoch()) == (BASE, 1)


@pytest.mark.parametrize("empty", [POSTGRESQL], indirect=True)
def test_whoever_was_too_long_idle_in_a_transaction_has_committed_nothing(database: Database) -> None:
    fence = EpochFence(database.engine(connect_args={"options": "-c idle_in_transaction_session_timeout=100"}))
    pin = Writer(fence).load().pin
    watching = database.engine()
    with pytest.raises((ScopeLostError, CommitUnknownError)) as lost, fence.write(pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "first"})
        pid, token = tx.scalar(text("SELECT pg_backend_pid()")), tx.token

        def is_gone() -> bool:
            with watching.connect() as connection:
                return not connection.scalar(text("SELECT count(*) FROM pg_stat_activity WHERE pid = :p"), {"p": pid})

        until(is_gone, "the server does not end it")
    assert lost.value.retry in ("reload", "never")
    assert database.fence().resolve(token) == NotApplied()
    assert (database.body(), database.epoch()) == (BASE, 1)


@RECONNECTS
@pytest.mark.parametrize("empty", [MARIADB], indirect=True)
def test_a_driver_that_reconnects_by_itself_is_found_out(database: Database) -> None:
    """The second half would be committed alone, without the fence."""
    a = Writer(database.fence()).load()
    with pytest.raises(FenceError, match="no longer the one"), a.fence.write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "first"})
        raw = tx.connection.connection.driver_connection
        raw._force_close()  # type: ignore[union-attr]
        raw.ping(reconnect=True)  # type: ignore[union-attr]
        tx.execute(STORE, {"id": SCOPE, "body": "second"})
    assert (database.body(), database.epoch()) == (BASE, 1)


@RECONNECTS
@pytest.mark.parametrize("empty", [MARIADB], indirect=True)
def test_also_at_commit(database: Database) -> None:
    a = Writer(database.fence()).load()
    with pytest.raises(CommitUnknownError), a.fence.write(a.pin) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "first"})
        raw, token = tx.connection.connection.driver_connection, tx.token
        raw._force_close()  # type: ignore[union-attr]
        raw.ping(reconnect=True)  # type: ignore[union-attr]
        raw.query("UPDATE doc SET body = 'second'")  # type: ignore[union-attr]
    assert database.fence().resolve(token) == NotApplied()
    assert (database.body(), database.epoch()) == (BASE, 1)


@pytest.mark.parametrize("empty", [POSTGRESQL, MARIADB], indirect=True)
def test_a_pool_that_recycles_its_connections_changes_nothing(database: Database) -> None:
    engine: Engine = database.engine(pool_size=1, max_overflow=0, pool_recycle=0)
    a = Writer(EpochFence(engine)).load()
    for number in range(5):
        a.append(f"+{number}")
    assert database.body() == "base+0+1+2+3+4"


# The lease beside it.


class Lease:
    """A hold that is lost when a test says so."""

    def __init__(self) -> None:
        self.state = "held"

    def check(self) -> None:
        if self.state == "lost":
            raise FencedError("lost", ours=1, current=2)


def test_a_lease_lost_before_commit_rolls_back(database: Database) -> None:
    a, lease = Writer(database.fence()).load(), Lease()
    with pytest.raises(FencedError) as lost, a.fence.write(a.pin, hold=lease) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
        lease.state = "lost"
    assert lost.value.applied is False
    assert not isinstance(lost.value, StaleEpochError)
    assert (database.body(), database.epoch()) == (BASE, 1)


def test_a_lease_lost_after_commit_says_that_it_was_applied(database: Database) -> None:
    lease = Lease()

    def lose(_: object) -> None:
        lease.state = "lost"

    fence = database.fence(publish=lose)
    pin = Writer(fence).load().pin
    with pytest.raises(LeaseLostAppliedError) as lost, fence.write(pin, hold=lease) as tx:
        tx.execute(STORE, {"id": SCOPE, "body": "x"})
    assert (lost.value.applied, lost.value.retry) == (True, "never")
    assert tx.committed_pin is not None
    assert (database.body(), database.epoch()) == ("x", 2)


@pytest.mark.parametrize("empty", [SQLITE], indirect=True)
def test_a_real_hold_will_do(database: Database) -> None:
    from tenure import WriterLease

    a = Writer(database.fence()).load()
    with WriterLease("memory:hold-for-the-fence").acquire() as hold:
        with a.fence.write(a.pin, hold=hold) as tx:
            tx.execute(STORE, {"id": SCOPE, "body": "x"})
    assert database.body() == "x"
