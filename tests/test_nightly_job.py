"""The example of a bucket: three workers, one job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.object_dialects import Dialect
from tests.helpers.object_server import DIALECTS, ENVIRONMENT, ObjectServer

JOB = Path(__file__).parents[1] / "examples/nightly_job.py"


def ran(url: str, night: str, cache: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(JOB), url, night],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ | ENVIRONMENT | {"TENURE_CACHE": str(cache)},
    )
    # A worker that looks while another one lets go may see the lifeline free before the word "released", and says so.
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_of_three_workers_one_does_the_job_of_each_night(dialect: Dialect, tmp_path: Path) -> None:
    with ObjectServer(dialect) as server:
        for night in ("2026-01-01", "2026-01-02"):
            said = ran(server.url("nightly"), night, tmp_path)
            assert len(said) == 3
            assert sum(line.endswith(": done") for line in said) == 1, said
            assert sum(line.endswith("somebody has done it") for line in said) == 2, said
        assert {key for key in server.objects if "nightly/nightly/" in key} == {
            "nightly/nightly/2026-01-01",
            "nightly/nightly/2026-01-02",
        }
