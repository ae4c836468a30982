"""
As `stalled_writer`, for files: takes the lease, loads the tree, stalls, and appends to what it has in memory.

Run as `python -m tests.sql.stalled_files DIRECTORY URL`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from sqlalchemy import create_engine

from tenure import WriterLease
from tenure.sql import FileStorage, StaleEpochError
from tests.sql.databases import SCOPE
from tests.sql.stalled_writer import SKEW, TTL, say


def main() -> None:
    directory, url = sys.argv[1:]
    hold = WriterLease(directory, ttl=TTL, skew=SKEW, host_id="a", host_id_is_unique=True).acquire()
    options = {"connect_args": {"prepare_threshold": None}} if "psycopg" in url else {}
    files = FileStorage(create_engine(url, **options)).open(SCOPE)
    say(files.read("a.txt").decode())
    sys.stdin.readline()
    # No hold=...: the lease is not asked, as in a program that does not know what happened.
    edit = files.edit()
    steps: tuple[Callable[[], None], ...] = (
        lambda: edit.append("a.txt", b"+A"),
        lambda: edit.__exit__(None, None, None),
    )
    for step in steps:
        try:
            step()
        except StaleEpochError:
            say("stale")
        else:
            say("done")
    files.reload()
    say(files.read("a.txt").decode())
    files.append("a.txt", b"+A")
    say(files.read("a.txt").decode())
    hold.release()


if __name__ == "__main__":
    main()
