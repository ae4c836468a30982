"""Whom a database does not let in, or not do what a store needs: an error for good, which says what to look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tenure._cli import _app
from tenure._store._sql import SqlStore
from tenure.errors import StoreError, StoreUnavailableError
from tests.cli.running import tenure
from tests.helpers.capabilities import NEEDS_MARIADB, NEEDS_MOUNT, NEEDS_POSTGRESQL
from tests.helpers.servers import APP, PASSWORD, STRANGER, MariaDB, PostgreSQL, as_user
from tests.store.children import child, read_only

LOGIN, DATABASE, RIGHTS, TLS = "check user and password", "make the database first", "needs SELECT, INSERT", "of TLS"
Change = Callable[[str], str]


def refused(url: str, hint: str) -> str:
    """What is said, by the store and by the command, of *url*, where nothing can be made."""
    store = SqlStore(url)
    with pytest.raises(StoreError) as error:
        store.create("lease/1", b"x")
    assert not isinstance(error.value, StoreUnavailableError), "who tries again fares no better"
    assert error.value.applied is False
    assert hint in (error.value.hint or "")
    assert store.url in str(error.value), "user and host"
    assert _app.run(["run", url, "--", "true"]) == 1
    said = f"{error.value} {error.value.hint} {error.value.__cause__}"
    assert "barley" not in said
    assert "sesame" not in said
    return said


def user(name: str) -> Change:
    return lambda url: as_user(name, url)


def database(name: str) -> Change:
    return lambda url: f"{url.rpartition('/')[0]}/{name}"


def password(word: str) -> Change:
    return lambda url: url.replace(PASSWORD, word)


@pytest.fixture(scope="module")
def strict(postgresql: PostgreSQL) -> PostgreSQL:
    """With users and a database that not everybody may enter."""
    postgresql.execute(
        "CREATE ROLE careful LOGIN PASSWORD 'open-sesame'",
        "CREATE ROLE banned LOGIN",
        "CREATE ROLE sleeper",
        "CREATE DATABASE closed",
        "REVOKE CONNECT ON DATABASE closed FROM PUBLIC",
    )
    postgresql.lets_in("careful", "scram-sha-256")
    postgresql.lets_in("banned", "reject")
    return postgresql


@NEEDS_POSTGRESQL
@pytest.mark.parametrize(
    ("changes", "words", "hint"),
    [
        ([user("careful"), password("close-barley")], 'password authentication failed for user "careful"', LOGIN),
        ([user("careful"), lambda url: url.replace(f":{PASSWORD}", "")], "no password supplied", LOGIN),
        ([user("absent")], 'role "absent" does not exist', LOGIN),
        ([user("sleeper")], 'role "sleeper" is not permitted to log in', LOGIN),
        ([user("banned")], "pg_hba.conf rejects", LOGIN),
        ([database("closed")], "permission denied for database", LOGIN),
        ([database("absent")], 'database "absent" does not exist', DATABASE),
        ([user(STRANGER)], "permission denied for schema", RIGHTS),
        ([lambda url: f"{url}?sslmode=require"], "does not support SSL", TLS),
        ([lambda url: f"{url}?options=-c%20nonsense=1"], "unrecognized configuration parameter", "after the `?`"),
    ],
)
def test_postgresql_says_no(
    strict: PostgreSQL, monkeypatch: pytest.MonkeyPatch, changes: list[Change], words: str, hint: str
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    url = strict.database()
    for change in changes:
        url = change(url)
    said = refused(url, hint)
    assert words in said


@NEEDS_POSTGRESQL
def test_postgresql_says_no_to_whom_the_table_is_not_granted(postgresql: PostgreSQL) -> None:
    url = postgresql.database()
    SqlStore(url).create("lease/0", b"x")
    assert "permission denied for table" in refused(as_user(STRANGER, url), RIGHTS)


@pytest.fixture(scope="module")
def choosy(mariadb: MariaDB) -> MariaDB:
    """With users who may not do everything."""
    mariadb.execute(
        f"CREATE USER poor IDENTIFIED BY '{PASSWORD}'",
        "GRANT SELECT ON `t%`.* TO poor",
        f"CREATE USER locked IDENTIFIED BY '{PASSWORD}' ACCOUNT LOCK",
        f"CREATE USER private IDENTIFIED BY '{PASSWORD}' REQUIRE SSL",
    )
    return mariadb


@NEEDS_MARIADB
@pytest.mark.parametrize(
    ("change", "number", "hint"),
    [
        (password("close-barley"), 1045, LOGIN),
        (user("private"), 1045, LOGIN),
        (user("locked"), 4151, LOGIN),
        (database("mysql"), 1044, LOGIN),
        (database("t_absent"), 1049, DATABASE),
        (user("poor"), 1142, RIGHTS),
        (lambda url: f"{url}?ssl_verify_cert=true", 2026, TLS),
    ],
)
def test_mariadb_says_no(choosy: MariaDB, change: Change, number: int, hint: str) -> None:
    said = refused(change(choosy.database()), hint)
    assert f"errno=`{number}`" in said


@NEEDS_MARIADB
def test_mariadb_takes_no_writes_for_now(mariadb: MariaDB) -> None:
    url = mariadb.database()
    SqlStore(url).create("lease/1", b"x")
    mariadb.execute("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(StoreUnavailableError, match="1290") as refused:
            SqlStore(url).create("lease/2", b"x")
        assert _app.run(["run", url, "--", "true"]) == 75
    finally:
        mariadb.execute("SET GLOBAL read_only = 0")
    assert "name the server that takes writes" in (refused.value.hint or "")
    assert APP in str(refused.value)


@NEEDS_MOUNT
def test_a_sqlite_file_that_may_only_be_read_is_no_store_to_write(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    SqlStore(url).create("lease/0", b"x")
    with child(url, prefix=read_only(tmp_path)) as reader:
        said = reader.ask("create", "lease/1", "x")
    assert (said["error"], said["applied"]) == ("StoreError", False)
    assert "owner and mode" in said["hint"]
    assert tenure("run", url, "--", "true", prefix=read_only(tmp_path)).returncode == 1
    assert tenure("status", url, prefix=read_only(tmp_path)).returncode == 0
