"""Databases for the fence: each kind that it knows, behind one fixture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.capabilities import NEEDS_MARIADB, NEEDS_PGBOUNCER, NEEDS_POSTGRESQL
from tests.helpers.servers import MariaDB, PgBouncer, PostgreSQL
from tests.sql.databases import Database

SQLITE = pytest.param("sqlite")
POSTGRESQL = pytest.param("postgresql", marks=NEEDS_POSTGRESQL)
POOLED = pytest.param("pooled", marks=[NEEDS_POSTGRESQL, NEEDS_PGBOUNCER])
MARIADB = pytest.param("mariadb", marks=NEEDS_MARIADB)


def opened(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A new database of *kind*; its server is started if it is the first."""
    if kind == "sqlite":
        return Database(kind, f"sqlite:///{tmp_path / 'app.db'}")
    if kind == "mariadb":
        mariadb: MariaDB = request.getfixturevalue("mariadb")
        return Database(kind, mariadb.database())
    postgresql: PostgreSQL = request.getfixturevalue("postgresql")
    url = postgresql.database()
    if kind == "pooled":
        pgbouncer: PgBouncer = request.getfixturevalue("pgbouncer")
        url = pgbouncer.before(url)
    return Database(kind, url)


@pytest.fixture(params=[SQLITE, POSTGRESQL, POOLED, MARIADB])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database in which nothing is yet; by default of every kind."""
    database = opened(request.param, request, tmp_path)
    yield database
    database.close()


@pytest.fixture
def database(empty: Database) -> Database:
    """One with a document and its scope."""
    empty.prepare()
    return empty
