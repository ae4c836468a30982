"""SQL stores for tests: each a table of its own, so that one database serves a whole test."""

from __future__ import annotations

import configparser
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import capabilities
from tests.helpers.servers import PASSWORD, Server

_numbers = itertools.count(1)

SERVED = [
    pytest.param("postgresql", marks=capabilities.NEEDS_POSTGRESQL),
    pytest.param("pgbouncer", marks=capabilities.NEEDS_PGBOUNCER),
    pytest.param("mariadb", marks=capabilities.NEEDS_MARIADB),
]
"""The server that a store is on, by the name of its fixture."""
EVERY = ["sqlite", *SERVED]


def without_password(url: str, directory: Path) -> str:
    """*url* as it may be shown; the driver finds the password in *directory*, if it needs one."""
    url = url.replace(f":{PASSWORD}@", "@")
    if url.startswith("postgresql"):
        return url
    options = configparser.ConfigParser()
    options["client"] = {"password": PASSWORD}
    with (directory / "my.cnf").open("w") as file:
        options.write(file)
    return f"{url}?read_default_file={directory / 'my.cnf'}"


def with_new_table(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}table=t{next(_numbers)}"


def urls(kind: str, request: pytest.FixtureRequest, directory: Path) -> Callable[[], str]:
    """Gives the URL of a new, empty store of that *kind*, each time it is called."""
    if kind == "sqlite":
        return lambda: f"sqlite:{directory / f's{next(_numbers)}.db'}"
    server: Server = request.getfixturevalue(kind)
    database = without_password(server.shared, directory)
    return lambda: with_new_table(database)
