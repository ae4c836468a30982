"""
A writer in a process of its own: takes the lease, loads, stalls, and appends to what it has in memory.

Run as `python -m tests.sql.stalled_writer DIRECTORY URL`; it says what it has done, one word a line, and goes on at each
line of its input.
"""

from __future__ import annotations

import sys

from sqlalchemy import create_engine

from tenure import WriterLease
from tenure.sql import EpochFence, StaleEpochError
from tests.sql.databases import SCOPE, STORE, Writer

TTL, SKEW = 0.5, 0.1


def main() -> None:
    directory, url = sys.argv[1:]
    hold = WriterLease(directory, ttl=TTL, skew=SKEW, host_id="a", host_id_is_unique=True).acquire()
    options = {"connect_args": {"prepare_threshold": None}} if "psycopg" in url else {}
    writer = Writer(EpochFence(create_engine(url, **options))).load()
    say("loaded")
    sys.stdin.readline()
    # No hold.check() and no hold=...: the lease is not asked, as in a program that does not know what happened.
    tx = writer.fence.write(writer.pin)
    for step in (
        tx.__enter__,
        lambda: tx.execute(STORE, {"id": SCOPE, "body": writer.body + "+A"}),
        lambda: tx.__exit__(None, None, None),
    ):
        try:
            step()
        except StaleEpochError:
            say("stale")
        else:
            say("done")
    say(writer.load().body)
    writer.append("+A")
    say(writer.load().body)
    hold.release()


def say(word: str) -> None:
    print(word, flush=True)


if __name__ == "__main__":
    main()
