"""A store in a database: what the contract does not say."""

from __future__ import annotations

import gc
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text

from tenure._store._records import MAX_SIZE_BYTES
from tenure._store._sql import SqlStore
from tenure.errors import StoreError, StoreUnavailableError
from tests.helpers import databases
from tests.helpers.capabilities import NEEDS_MARIADB, NEEDS_POSTGRESQL, NEEDS_STRACE
from tests.helpers.processes import ROOT
from tests.helpers.proxy import Proxy
from tests.helpers.servers import APP, PASSWORD, STRANGER, MariaDB, PostgreSQL, Server, as_user
from tests.store.children import child, children, traced


@pytest.fixture(params=databases.EVERY)
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    return databases.urls(request.param, request, tmp_path)


@pytest.fixture
def url(new_url: Callable[[], str]) -> str:
    return new_url()


@pytest.fixture
def store(url: str) -> SqlStore:
    return SqlStore(url)


def run(store: SqlStore, statement: str, **values: object) -> None:
    """As an operator would, with the store's own table in place of `{t}`."""
    if store._file is not None:
        store._file.touch()
    with store._engine().connect() as connection:
        connection.execute(text(statement.format(t=store._records.name)), values)


def count(store: SqlStore) -> list[str]:
    """Every statement that the store sends from now on."""
    sent: list[str] = []

    @event.listens_for(store._engine(), "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement.split(maxsplit=1)[0])

    return sent


# The table


def test_whoever_comes_first_makes_the_table_however_many_come_at_once(new_url: Callable[[], str]) -> None:
    for _ in range(3):
        url, together = new_url(), threading.Barrier(6)

        def create(number: int, url: str = url, together: threading.Barrier = together) -> bool:
            store = SqlStore(url)
            together.wait(30)
            return store.create(f"lease/{number}", b"x").won

        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(create, range(6)))
        assert len(list(SqlStore(url).list())) == 6


def test_six_processes_make_one_table(url: str) -> None:
    with children(6, url) as makers:
        for number, maker in enumerate(makers):
            maker.tell("create", f"lease/{number}", "x")
        assert [maker.answer()["result"]["won"] for maker in makers] == [True] * 6
    assert len(list(SqlStore(url).list())) == 6


def test_two_tables_in_one_database_are_two_stores(new_url: Callable[[], str]) -> None:
    one = new_url()
    other = f"{one}?table=other" if one.startswith("sqlite") else new_url()
    SqlStore(one).create("lease/1", b"one")
    assert SqlStore(other).read("lease/1") is None
    assert SqlStore(other).create("lease/1", b"other").won
    found = SqlStore(one).read("lease/1")
    assert found is not None
    assert found.data == b"one"


def test_another_table_of_that_name_is_left_alone(store: SqlStore) -> None:
    run(store, "CREATE TABLE {t} (name VARCHAR(10))")
    for operation in (lambda: store.create("lease/1", b"x"), lambda: store.read("lease/1"), lambda: list(store.list())):
        with pytest.raises(StoreError, match=r"store=`") as refused:
            operation()
        assert refused.value.hint is not None
        assert "table" in refused.value.hint


def test_a_row_that_is_too_large_is_never_read(store: SqlStore) -> None:
    store.create("lease/1", b"x")
    run(store, "UPDATE {t} SET data = :data", data=b"x" * (MAX_SIZE_BYTES + 1))
    for operation in (lambda: store.read("lease/1"), lambda: store.create("lease/1", b"y")):
        with pytest.raises(StoreError, match="larger than any record"):
            operation()


def test_a_text_that_an_operator_put_there_is_read_as_bytes(tmp_path: Path) -> None:
    """SQLite keeps whatever it is given, whatever the column says."""
    store = SqlStore(f"sqlite:{tmp_path / 'a.db'}")
    store.create("lease/1", b"x")
    run(store, "UPDATE {t} SET data = 'grün'")
    found = store.read("lease/1")
    assert found is not None
    assert found.data == "grün".encode()


def test_the_same_bytes_are_another_version(store: SqlStore) -> None:
    """Or a writer could not tell its own write from somebody else's."""
    store.create("lease/beat/1", b"x")
    first = store.read("lease/beat/1")
    assert first is not None
    second = store.replace("lease/beat/1", b"x", first.version)
    assert second not in (None, first.version)


def test_a_list_of_many_pages_is_whole(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure._store._sql._PAGE", 7)
    keys = sorted(f"log/{number}" for number in range(50))
    for key in keys:
        store.create(key, b"x")
    assert list(store.list("log/")) == keys
    assert list(store.list("log/", after=keys[13])) == keys[14:]


# What it costs


def test_each_operation_is_one_statement(store: SqlStore) -> None:
    store.create("lease/0", b"x")
    sent = count(store)
    assert store.create("lease/1", b"x").won
    found = store.read("lease/1", durable=True)
    assert found is not None
    store.replace("lease/1", b"y", found.version)
    assert store.replace("lease/1", b"y", found.version) is None
    store.delete("lease/1")
    assert sent == ["INSERT", "SELECT", "UPDATE", "UPDATE", "DELETE"]


def test_a_loser_asks_once_more(store: SqlStore) -> None:
    store.create("lease/1", b"x")
    sent = count(store)
    assert not store.create("lease/1", b"y").won
    assert sent == ["INSERT", "SELECT"]


@NEEDS_STRACE
def test_a_create_in_a_file_syncs_its_directory_last(tmp_path: Path) -> None:
    """The journal's removal is the commit, and could be undone by a power cut until its directory is synced."""
    with child(f"sqlite:{tmp_path / 'a.db'}") as one:
        one.ask("create", "lease/0", "x")
        with traced(one, "-e", "trace=fsync,fdatasync,unlink", "-y") as trace:
            assert one.ask("create", "lease/1", "x")["result"]["won"]
    assert "unlink(" in trace.lines[-2]
    assert f"<{tmp_path}>" in trace.lines[-1]


@NEEDS_POSTGRESQL
def test_a_create_is_durable_where_commits_are_answered_early(postgresql: PostgreSQL) -> None:
    url = postgresql.database()
    name = url.rpartition("/")[2]
    postgresql.execute(
        f"ALTER DATABASE {name} SET synchronous_commit = off",
        # Nobody else flushes it meanwhile.
        "ALTER SYSTEM SET wal_writer_delay = '10s'",
        "SELECT pg_reload_conf()",
    )
    try:
        store = SqlStore(url)
        store.create("lease/0", b"x")
        with store._engine().connect() as connection:
            assert connection.scalar(text("SHOW synchronous_commit")) == "off"
            flushed = 0
            for number in range(1, 20):
                store.create(f"lease/{number}", b"x")
                statement = text("SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()")
                flushed += bool(connection.scalar(statement))
            # Not each time, since the server writes things of its own; never, if it were answered early.
            assert flushed > 10
    finally:
        postgresql.execute("ALTER SYSTEM RESET wal_writer_delay", "SELECT pg_reload_conf()")


# Many processes


@pytest.mark.timeout(1200)
def test_of_sixteen_processes_one_wins_each_round_and_all_agree(url: str, tmp_path: Path) -> None:
    # A tenth of a directory's: each round is two requests of each racer, or a turn at one lock. `make soak` has all of them.
    rounds = int(os.environ.get("TENURE_RACE_ROUNDS", "100"))
    barrier = tmp_path / "barrier"
    barrier.write_bytes(bytes(8 * 16))
    with children(16, url) as racers:
        for number, racer in enumerate(racers):
            racer.tell("race", 16, number, rounds, str(barrier))
        by_racer = [racer.answer()["result"] for racer in racers]
    for outcomes in zip(*by_racer, strict=True):
        winners = [f"racer {number}" for number, (won, _) in enumerate(outcomes) if won]
        assert len(winners) == 1
        assert {text for _, text in outcomes} == set(winners)
    assert len(list(SqlStore(url).list("lease/"))) == rounds


def test_a_forked_child_uses_no_connection_of_its_parents(store: SqlStore) -> None:
    store.create("lease/1", b"one")
    inherited = connection_of(store)
    pid = os.fork()
    if pid == 0:
        found = store.read("lease/1")
        os._exit(0 if found is not None and connection_of(store) is not inherited else 1)
    # At the same moment, on the connection that the child has inherited.
    for _ in range(20):
        assert store.read("lease/1") is not None
    assert connection_of(store) is inherited
    assert os.waitpid(pid, 0)[1] == 0


def connection_of(store: SqlStore) -> Any:
    """The driver's connection that the next operation will use."""
    proxied = store._engine().raw_connection()
    raw = proxied.driver_connection
    proxied.close()
    return raw


def test_a_store_that_nobody_has_any_more_leaves_no_connection_behind(url: str) -> None:
    store = SqlStore(url)
    store.create("lease/1", b"x")
    pool = store._engine().pool
    assert pool.checkedin() == 1  # type: ignore[attr-defined]
    driver = connection_of(store)
    del store
    gc.collect()
    with pytest.raises(Exception, match=r"."):  # each driver has its own for what is closed
        driver.cursor().execute("SELECT 1")


# Lost on the way


@pytest.fixture(params=databases.SERVED)
def served(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Server, str]:
    server: Server = request.getfixturevalue(request.param)
    return server, databases.urls(request.param, request, tmp_path)()


@pytest.fixture
def proxied(served: tuple[Server, str]) -> Iterator[tuple[Proxy, SqlStore, SqlStore]]:
    """A store behind a proxy, and the same one without."""
    server, url = served
    with Proxy(server.port) as proxy:
        store = SqlStore(proxy.before(url))
        store.create("lease/0", b"zero")
        yield proxy, store, SqlStore(url)
        store._engine().dispose()


@pytest.mark.parametrize("loss", ["request", "answer"])
def test_a_create_whose_answer_is_lost_is_known_for_ours(proxied: tuple[Proxy, SqlStore, SqlStore], loss: Any) -> None:
    """B74: the second try meets the first one, and must not take it for somebody else's."""
    proxy, store, direct = proxied
    fault = proxy.lose(loss, b"INSERT INTO")
    assert store.create("lease/1", b"one").won
    assert fault.happened.is_set()
    found = direct.read("lease/1")
    assert found is not None
    assert found.data == b"one"


def test_a_create_that_lost_while_its_answer_was_lost_says_so(proxied: tuple[Proxy, SqlStore, SqlStore]) -> None:
    proxy, store, direct = proxied
    direct.create("lease/1", b"same bytes")
    proxy.lose("answer", b"INSERT INTO")
    created = store.create("lease/1", b"same bytes")
    assert (created.won, created.data) == (False, b"same bytes")


@pytest.mark.parametrize("loss", ["request", "answer"])
def test_a_replace_whose_answer_is_lost_is_known_for_ours(proxied: tuple[Proxy, SqlStore, SqlStore], loss: Any) -> None:
    proxy, store, direct = proxied
    before = store.read("lease/0")
    assert before is not None
    proxy.lose(loss, b"UPDATE")
    version = store.replace("lease/0", b"one", before.version)
    found = direct.read("lease/0")
    assert found is not None
    assert (found.data, found.version) == (b"one", version)


def test_a_replace_that_was_overwritten_before_its_answer_was_known_says_that_nobody_can_tell(
    proxied: tuple[Proxy, SqlStore, SqlStore],
) -> None:
    proxy, store, direct = proxied
    before = store.read("lease/0")
    assert before is not None
    fault = proxy.lose("answer", b"UPDATE")

    @event.listens_for(store._engine(), "before_cursor_execute")
    def overwrite(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found = direct.read("lease/0") if fault.happened.is_set() else None
        if found is not None and found.data == b"one":
            direct.replace("lease/0", b"two", found.version)

    with pytest.raises(StoreUnavailableError) as unclear:
        store.replace("lease/0", b"one", before.version)
    assert unclear.value.applied is None


def test_a_reading_whose_answer_is_lost_is_asked_again(proxied: tuple[Proxy, SqlStore, SqlStore]) -> None:
    proxy, store, _ = proxied
    proxy.lose("answer", b"SELECT CASE")
    found = store.read("lease/0")
    assert found is not None
    proxy.lose("answer", b"ORDER BY")
    assert list(store.list()) == ["lease/0"]
    proxy.lose("answer", b"DELETE FROM")
    store.delete("lease/0")
    assert list(store.list()) == []


def test_a_connection_that_was_closed_meanwhile_is_replaced(proxied: tuple[Proxy, SqlStore, SqlStore]) -> None:
    """B81: a restarted server, a pooler, a firewall: a connection has an age, a lease has none."""
    proxy, store, _ = proxied
    for number in range(1, 4):
        proxy.cut()
        assert store.create(f"lease/{number}", b"x").won
    assert proxy.count() >= 4


def test_a_server_that_stays_silent_is_cut_off_and_the_outcome_stays_open(
    proxied: tuple[Proxy, SqlStore, SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("_sql_address", "_sql_psycopg"):
        monkeypatch.setattr(f"tenure._store.{place}.REQUEST_S", 0.3)
    monkeypatch.setattr("tenure._store._sql._PATIENCE_S", 1.0)
    proxy, _, direct = proxied
    store = SqlStore(proxy.before(direct.url))
    store.read("lease/0")
    proxy.lose("every answer", b"INSERT INTO", times=1000)
    with pytest.raises(StoreUnavailableError) as unclear:
        store.create("lease/1", b"one")
    assert unclear.value.applied is None
    found = direct.read("lease/1")
    assert found is not None
    assert found.data == b"one"
    store._engine().dispose()


def test_a_server_that_is_down_is_unavailable_and_nothing_was_applied(served: tuple[Server, str]) -> None:
    _, url = served
    with Proxy(1) as nowhere:
        store = SqlStore(nowhere.before(url.replace(f":{_port(url)}/", ":1/")))
        for operation in (
            lambda: store.create("lease/1", b"x"),
            lambda: store.read("lease/1"),
            lambda: list(store.list()),
        ):
            with pytest.raises(StoreUnavailableError) as down:
                operation()
            assert down.value.applied is False
            assert down.value.hint is not None


def _port(url: str) -> str:
    return url.partition("@")[2].partition(":")[2].partition("/")[0]


# Refused


@NEEDS_POSTGRESQL
def test_whoever_may_not_make_the_table_is_told_what_is_needed(postgresql: PostgreSQL) -> None:
    url = postgresql.database()
    store = SqlStore(as_user(STRANGER, url))
    with pytest.raises(StoreError, match="permission denied") as refused:
        store.create("lease/1", b"x")
    assert not isinstance(refused.value, StoreUnavailableError)
    assert refused.value.hint is not None
    assert "INSERT" in refused.value.hint


@NEEDS_POSTGRESQL
def test_whoever_may_not_read_the_table_is_told_what_is_needed(postgresql: PostgreSQL) -> None:
    url = postgresql.database()
    SqlStore(url).create("lease/1", b"x")
    with pytest.raises(StoreError, match="permission denied"):
        SqlStore(as_user(STRANGER, url)).read("lease/1")


@NEEDS_POSTGRESQL
def test_a_database_that_takes_no_writes_for_now_is_named_so(postgresql: PostgreSQL) -> None:
    """A replica, or a server that has failed over."""
    url = postgresql.database()
    SqlStore(url).create("lease/1", b"x")
    postgresql.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_read_only = on")
    store = SqlStore(url)
    assert store.read("lease/1") is not None
    with pytest.raises(StoreUnavailableError, match="25006") as refused:
        store.create("lease/2", b"x")
    assert refused.value.applied is False


@NEEDS_MARIADB
def test_a_wrong_password_is_told_without_being_shown(mariadb: MariaDB) -> None:
    url = mariadb.database().replace(PASSWORD, "close-barley")
    with pytest.raises(StoreError, match="Access denied") as refused:
        SqlStore(url).create("lease/1", b"x")
    assert not isinstance(refused.value, StoreUnavailableError)
    assert "barley" not in f"{refused.value} {refused.value.hint} {refused.value.__cause__}"
    assert APP in str(refused.value)


def test_no_record_is_shown_in_an_error(store: SqlStore) -> None:
    run(store, "CREATE TABLE {t} (name VARCHAR(10))")
    with pytest.raises(StoreError) as refused:
        store.create("lease/1", b"a-secret-of-the-records")
    assert "secret" not in f"{refused.value} {refused.value.__cause__}"


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.write_bytes(b"my diary, which is longer than a header" * 10)
    store = SqlStore(f"sqlite:{file}")
    with pytest.raises(StoreError, match="file is not a database"):
        store.create("lease/1", b"x")
    assert file.read_bytes() == b"my diary, which is longer than a header" * 10


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot make a database") as refused:
        SqlStore(f"sqlite:{tmp_path / 'absent' / 'a.db'}").create("lease/1", b"x")
    assert refused.value.hint is not None


def test_a_file_that_somebody_keeps_locked_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure._store._sql_address.REQUEST_S", 0.2)
    url = f"sqlite:{tmp_path / 'a.db'}"
    store, other = SqlStore(url), SqlStore(url)
    store.create("lease/1", b"x")
    with other._engine().connect() as connection:
        connection.execute(text("BEGIN EXCLUSIVE"))
        with pytest.raises(StoreUnavailableError, match="database is locked") as refused:
            store.create("lease/2", b"x")
        connection.execute(text("ROLLBACK"))
    assert refused.value.applied is False
    assert store.create("lease/2", b"x").won


# The manual


@pytest.mark.parametrize("kind", databases.SERVED[::2])
def test_the_table_that_the_manual_has_an_administrator_make_is_the_one(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    page = (ROOT / "docs/how-to/sql-store.md").read_text("utf-8")
    heading = {"postgresql": "PostgreSQL", "mariadb": "MySQL"}[kind]
    (made,) = re.findall(rf"```sql\n-- {heading}.*?\n(CREATE TABLE .*?);$", page, re.MULTILINE | re.DOTALL)
    store = SqlStore(databases.urls(kind, request, tmp_path)())
    run(store, made.replace("tenure_records", "{t}"))
    for key in ("a0", "a/b", "a-b"):
        assert store.create(key, b"x" * MAX_SIZE_BYTES).won
    assert list(store.list()) == ["a-b", "a/b", "a0"]
