"""`tenure history` and `tenure doctor`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tenure import WriterLease
from tests.cli.running import tenure


def entries(*words: str) -> list[dict[str, object]]:
    done = tenure("history", "--json", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_past_holds_are_listed_newest_first_with_their_ends(tmp_path: Path) -> None:
    lease = WriterLease(tmp_path / "lease", label="nightly import")
    lease.acquire().release()
    broken = lease.acquire()
    lease.force_release(broken.nonce, even_if_alive=True)
    last = lease.acquire()
    told = entries(str(tmp_path / "lease"))
    assert [(one["fence"], one["ended"]) for one in told] == [("4", "last"), ("2", "forced"), ("1", "released")]
    assert {one["label"] for one in told} == {"nightly import"}
    assert str(told[0]["holder"]).endswith(f"/{os.getpid()}")
    last.release()
    assert [one["ended"] for one in entries("--last", "1", str(tmp_path / "lease"))] == ["released"]


def test_a_lease_that_was_never_taken_has_no_history(tmp_path: Path) -> None:
    assert entries(str(tmp_path / "lease")) == []
    assert "never taken" in tenure("history", str(tmp_path / "lease")).stdout
    assert not (tmp_path / "lease").exists()


def test_the_doctor_says_what_each_lack_costs_and_writes_nothing(tmp_path: Path) -> None:
    done = tenure("doctor", "--json", str(tmp_path / "lease"))
    assert done.returncode == 0, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert {"processes", "pidfd", "/proc", "namespace", "boot id", "host id", "store"} <= set(checks)
    assert all(check["ok"] or check["cost"] for check in checks.values())
    assert not (tmp_path / "lease").exists()


def test_the_doctor_names_the_file_system_of_a_store(tmp_path: Path) -> None:
    WriterLease(tmp_path / "lease").acquire().release()
    checks = {
        check["name"]: check
        for check in json.loads(tenure("doctor", "--json", str(tmp_path / "lease")).stdout)["checks"]
    }
    assert checks["store"]["ok"]
    assert "lifeline" in checks


def test_older_ones_that_are_no_longer_kept_are_said_to_be_gone(tmp_path: Path) -> None:
    lease = WriterLease(tmp_path / "lease")
    lease.acquire().release()
    lease.acquire().release()
    (tmp_path / "lease/lease/00000000000000000001").unlink()
    assert [(one["fence"], one["ended"]) for one in entries(str(tmp_path / "lease"))] == [
        ("2", "released"),
        ("1", "collected"),
    ]
    assert "no longer kept" in tenure("history", str(tmp_path / "lease")).stdout
