"""`tenure release`: breaks what nobody can judge, and only what was looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenure import FencedError, WriterLease
from tests.cli.running import started, tenure
from tests.cli.test_status import shown
from tests.helpers.processes import PATIENCE, until

UNJUDGED = """{"v":1,"fence":"1","nonce":"00112233445566778899aabbccddeeff","holder":null,"ttl":30.0,"skew":10.0}"""
NONCE = "00112233445566778899aabbccddeeff"


def unjudged(directory: Path) -> WriterLease:
    """A lease whose holder nobody can judge."""
    lease = WriterLease(directory)
    assert lease.store.create("lease/00000000000000000001", UNJUDGED.encode()).won
    return lease


def test_an_unknowable_holder_is_broken_by_its_nonce(tmp_path: Path) -> None:
    """B100: the verb that unlocks needs no lock."""
    lease = unjudged(tmp_path / "lease")
    done = tenure("release", "--nonce", NONCE, "--json", str(tmp_path / "lease"))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["fence"], told["before"]["reason"], told["dry_run"]) == ("2", "no_identity", False)
    with lease.acquire() as hold:
        assert hold.fence == 3


def test_a_dry_run_says_what_it_would_do_and_does_nothing(tmp_path: Path) -> None:
    lease = unjudged(tmp_path / "lease")
    done = tenure("release", "--nonce", NONCE, "--dry-run", str(tmp_path / "lease"))
    assert (done.returncode, "nothing was done: a dry run" in done.stdout) == (0, True)
    assert lease.inspect().fence == 1


def test_a_free_lease_is_left_as_it_is(tmp_path: Path) -> None:
    with WriterLease(tmp_path / "lease").acquire():
        pass
    done = tenure("release", "--nonce", NONCE, str(tmp_path / "lease"))
    assert (done.returncode, "nothing to do: the lease is free" in done.stdout) == (0, True)
    assert WriterLease(tmp_path / "lease").inspect().fence == 1


def test_another_hold_than_the_one_looked_at_is_refused(tmp_path: Path) -> None:
    unjudged(tmp_path / "lease")
    done = tenure("release", "--nonce", "f" * 32, str(tmp_path / "lease"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "the lease has changed hands" in done.stderr


def test_a_living_holder_is_broken_only_by_a_second_flag_and_then_fenced(tmp_path: Path) -> None:
    with WriterLease(tmp_path / "lease").acquire() as hold:
        refused = tenure("release", "--nonce", hold.nonce, str(tmp_path / "lease"))
        assert (refused.returncode, "its holder is alive (lifeline_held)" in refused.stderr) == (1, True)
        hold.check()
        done = tenure("release", "--nonce", hold.nonce, "--even-if-alive", str(tmp_path / "lease"))
        assert done.returncode == 0, done.stderr
        with pytest.raises(FencedError) as fenced:
            hold.check()
        assert (fenced.value.ours, fenced.value.current) == (1, 2)


def test_a_claim_that_cannot_be_read_is_named_as_damaged(tmp_path: Path) -> None:
    lease = WriterLease(tmp_path / "lease")
    lease.store.create("lease/00000000000000000001", b"torn")
    assert tenure("release", str(tmp_path / "lease")).returncode == 2
    assert tenure("release", "--damaged", str(tmp_path / "lease")).returncode == 0
    assert lease.acquire().fence == 3


def test_a_command_under_a_broken_lease_is_stopped(tmp_path: Path) -> None:
    url = str(tmp_path / "lease")
    with started("run", "--ttl", "0.3", url, "--", "sleep", "1000") as running:
        until(lambda: WriterLease(url).inspect().state == "held", "the command to start")
        done = tenure("release", "--nonce", shown(url)["nonce"], "--even-if-alive", url)
        assert done.returncode == 0, done.stderr
        assert running.wait(PATIENCE) == 1
