"""The example of a job queue runs, and no job is finished twice however slow its workers are."""

from __future__ import annotations

import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import create_engine, text

from tenure.sql import StaleEpochError
from tests.helpers.capabilities import NEEDS_POSTGRESQL
from tests.helpers.servers import PostgreSQL

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/job_queue.py"


@NEEDS_POSTGRESQL
def test_a_worker_that_was_given_up_is_refused(postgresql: PostgreSQL) -> None:
    command = [sys.executable, str(EXAMPLE), postgresql.database()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "the slow worker is refused: HTTP 409, applied=False\n"


@NEEDS_POSTGRESQL
def test_each_job_is_finished_once_by_whoever_took_it_last(postgresql: PostgreSQL) -> None:
    queue_of = runpy.run_path(str(EXAMPLE))["Queue"]
    engine = create_engine(postgresql.database())
    queue = queue_of(engine)
    for number in range(12):
        queue.add(str(number))

    def work(name: str) -> list[str]:
        """Without any time for a job, so that several have it and race for its end."""
        finished = []
        while (job := queue.take(name, seconds=0.0)) is not None:
            try:
                queue.finish(job, name)
            except StaleEpochError:
                continue
            finished.append(job.work)
        return finished

    with ThreadPoolExecutor(4) as pool:
        by_worker = dict(zip("abcd", pool.map(work, "abcd"), strict=True))
    with engine.connect() as connection:
        results = {row.work: row.result for row in connection.execute(text("SELECT work, result FROM job"))}
    engine.dispose()
    assert set(results) == {str(number) for number in range(12)}
    for name, finished in by_worker.items():
        assert all(results[job] == name for job in finished), "whoever was told that it finished has finished"
    assert sorted(job for finished in by_worker.values() for job in finished) == sorted(results)
