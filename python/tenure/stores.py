"""
Where leases live: `open_store(url)`, and the protocol every store keeps.

    a path              a directory on this machine, or on one that it mounts
    file:///srv/data    the same, percent-encoded; `file:data` is relative to the current directory
    sqlite:leases.db    a table in a SQLite file; `sqlite:/srv/leases.db` is absolute
    postgresql://app@db.example.org/app     a table in a PostgreSQL database; needs `tenure[postgresql]`
    mysql://app@db.example.org/app          ... in MySQL; `mariadb:` the same; needs `tenure[mysql]`
    memory:NAME         this process's memory, for tests
    s3://bucket/prefix  Amazon S3 and what speaks like it; also gs:// and az://container/prefix; needs `tenure[objects]`

A database has one store in the table `tenure_records`; `?table=NAME` makes room for more. Whatever else stands after the
`?` goes to the driver. Passwords are best left to the driver's own files, and no URL that is shown has one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from tenure._store._protocol import Created, LocalDirectory, Store, Stored, Streams, as_directory, as_streams, within
from tenure.errors import StoreCannotLockError

__all__ = [
    "Created",
    "LocalDirectory",
    "Store",
    "Stored",
    "Streams",
    "as_directory",
    "as_streams",
    "open_store",
    "within",
]

# Two characters at least, as a single letter is a Windows drive; RFC 3986 has the rest.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def open_store(url: str | os.PathLike[str]) -> Store:
    """
    The store at *url*, which is a URL or a plain path. Nothing is made or asked before the first operation.

    A `str` that starts like a URL is one: write `./name:x` (or pass a `pathlib.Path`) for a path with a colon.

    Raises:
        ValueError: the scheme is unknown, or the URL has a part that its scheme does not.
        StoreCannotLockError: this platform cannot have such a store, or lacks a library for it.

    Example:
        >>> open_store("memory:demo").create("lease/1", b"hello").won
        True
    """
    if not isinstance(url, str):
        return _open_directory(os.fsdecode(url))
    match = _SCHEME.match(url)
    if match is None:
        return _open_directory(url)
    opener = _OPENERS.get(match[1].lower())
    if opener is None:
        known = ", ".join(f"{scheme}:" for scheme in sorted(_OPENERS) if "+" not in scheme)
        raise ValueError(f"no store has the scheme {match[1]!r}. known={known}; write ./{url} if it is a path")
    return opener(url, url[match.end() :])


def _open_directory(path: str) -> Store:
    from tenure._store._file import FileStore  # noqa: PLC0415  each store loads its own libraries

    if not path or "\0" in path:
        raise ValueError(f"not a path: {path!r}")
    return FileStore(path)


def _open_file_url(url: str, rest: str) -> Store:
    from urllib.parse import unquote_to_bytes  # noqa: PLC0415  a plain path does not need it

    if "?" in rest or "#" in rest:
        raise ValueError(
            f"a file URL has no query and no fragment: {url!r}. Write %3F for '?' and %23 for '#' in a path"
        )
    if rest.startswith("//"):
        # RFC 8089: an empty host and "localhost" are this machine.
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise ValueError(
                f"a file URL names no host: {url!r}. Write file:///{host}{slash}{path} for an absolute path, "
                f"file:{host}{slash}{path} for a relative one"
            )
        rest = slash + path
    path = os.fsdecode(unquote_to_bytes(rest))
    # Windows' drives: file:///C:/data, as RFC 8089 has it in appendix E.2. On other systems that is no drive.
    return _open_directory(path[1:] if os.path.splitdrive(path[1:])[0] else path)


def _open_memory_url(url: str, rest: str) -> Store:
    from tenure._store._memory import MemoryStore  # noqa: PLC0415  for tests only

    if not re.fullmatch(r"[A-Za-z0-9._-]+", rest):
        raise ValueError(f"a memory store needs a name of letters, digits, '.', '_' and '-': {url!r}")
    return MemoryStore.named(rest)


def _open_sql_url(url: str, rest: str) -> Store:  # noqa: ARG001  as for the others
    try:
        from tenure._store._sql import SqlStore  # noqa: PLC0415  what it needs is an extra
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != "sqlalchemy":
            raise
        raise StoreCannotLockError(
            f"a store in a database needs SQLAlchemy, which is not installed. scheme=`{url.partition(':')[0]}`",
            hint="pip install 'tenure[sql]', or tenure[postgresql] or tenure[mysql]",
        ) from exc
    return SqlStore(url)


def _open_bucket_url(url: str, rest: str) -> Store:  # noqa: ARG001  as for the others
    from tenure._store._object import ObjectStore  # noqa: PLC0415  its client is an extra

    return ObjectStore.at(url)


_OPENERS: dict[str, Callable[[str, str], Store]] = {
    "file": _open_file_url,
    "memory": _open_memory_url,
    "sqlite": _open_sql_url,
    "postgresql": _open_sql_url,
    "postgresql+psycopg": _open_sql_url,
    "mysql": _open_sql_url,
    "mysql+pymysql": _open_sql_url,
    "mariadb": _open_sql_url,
    "mariadb+pymysql": _open_sql_url,
    "s3": _open_bucket_url,
    "gs": _open_bucket_url,
    "az": _open_bucket_url,
}
