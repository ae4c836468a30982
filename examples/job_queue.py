"""
A job queue on PostgreSQL in which a worker that was given up cannot finish: `python examples/job_queue.py URL`.

A job is given to the next worker when its time is over, since nobody can tell a slow worker from a dead one. Both may then
come to an end; the fence lets only the later one keep its result.
"""

from __future__ import annotations

import sys
from typing import NamedTuple
from uuid import uuid4

from sqlalchemy import Engine, create_engine, text

from tenure.sql import EpochFence, FencedTransaction, Pin, StaleEpochError

TABLE = text(
    "CREATE TABLE IF NOT EXISTS job (id TEXT PRIMARY KEY, work TEXT, result TEXT, due TIMESTAMPTZ DEFAULT now())"
)
ADD = text("INSERT INTO job (id, work) VALUES (:id, :work)")
NEXT = text("SELECT id, work FROM job WHERE result IS NULL AND due <= clock_timestamp() ORDER BY due LIMIT 1")
TAKE = text(
    "UPDATE job SET due = clock_timestamp() + make_interval(secs => :seconds)"
    " WHERE id = :id AND result IS NULL AND due <= clock_timestamp()"
)
FINISH = text("UPDATE job SET result = :result WHERE id = :id")


class Job(NamedTuple):
    """A job, as one worker has it."""

    work: str
    pin: Pin


class Queue:
    """Jobs, each of them a scope of the fence."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.fence = engine, EpochFence(engine)
        self.fence.migrate()
        with engine.begin() as connection:
            connection.execute(
                text("SELECT pg_advisory_xact_lock(4242)")
            )  # two that make one table at once would collide
            connection.execute(TABLE)

    def add(self, work: str) -> None:
        """The job and its scope, or neither."""
        job = str(uuid4())
        self.fence.create(job, also=lambda tx: tx.execute(ADD, {"id": job, "work": work}))

    def take(self, worker: str, seconds: float = 60.0) -> Job | None:
        """The next job, for *seconds*; None if there is none. Whoever had it before cannot finish it any more."""
        while True:
            with self.engine.connect() as connection:
                row = connection.execute(NEXT).first()
            if row is None:
                return None

            def still_due(tx: FencedTransaction, job: str = row.id) -> None:
                if tx.execute(TAKE, {"id": job, "seconds": seconds}).rowcount != 1:
                    raise LookupError  # and nothing is claimed from whoever was faster

            try:
                return Job(row.work, self.fence.claim(row.id, holder=worker, also=still_due))
            except LookupError:
                continue

    def finish(self, job: Job, result: str) -> None:
        """Keep the result, or raise `StaleEpochError`."""
        with self.fence.write(job.pin) as tx:
            tx.execute(FINISH, {"id": job.pin.scope, "result": result})


if __name__ == "__main__":
    queue = Queue(create_engine(sys.argv[1]))
    queue.add("count the stars")
    slow, quick = queue.take("slow", seconds=0.0), queue.take("quick")
    for job, result in ((quick, "many"), (slow, "few")):
        try:
            assert job is not None
            queue.finish(job, result)
        except StaleEpochError as error:
            print(f"the slow worker is refused: HTTP {error.http_status}, applied={error.applied}")
