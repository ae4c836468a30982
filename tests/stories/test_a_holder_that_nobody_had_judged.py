"""
Two processes saw the lease free. The first took it; the second saw the first one's heartbeat, took it for the trace of a
claim that somebody had deleted, and went above it: a living holder was replaced by somebody who had never judged it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure import RefusedError, WriterBusyError, WriterLease
from tenure._lease import _force, _keys, _lease, _sight
from tests.helpers.capabilities import NEEDS_IDENTITY
from tests.helpers.holders import holding
from tests.helpers.processes import Agent

pytestmark = NEEDS_IDENTITY


def test_whoever_comes_second_is_busy_and_the_first_one_keeps_its_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    WriterLease(store).acquire().release()
    with Agent() as first:

        def take_meanwhile(point: str) -> None:
            if point == "lease.lifeline":
                assert first.ask("take", store=str(store))["fence"] == 2

        monkeypatch.setattr(_lease, "reach", take_meanwhile)
        with pytest.raises(WriterBusyError):
            WriterLease(store).acquire()

        assert first.ask("check_hold") == "ok"


def test_a_forced_release_breaks_only_the_hold_that_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    with holding(store) as looked_at, Agent() as next_one:
        seen = WriterLease(store).inspect()
        next_fence = _sight.next_fence

        def change_hands(*arguments: object) -> int | None:
            looked_at.ask("release_hold")
            assert next_one.ask("take", store=str(store))["fence"] == 2
            return next_fence(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(_force, "next_fence", change_hands)
        with pytest.raises(RefusedError):
            WriterLease(store).force_release(seen.nonce, even_if_alive=True)

        assert next_one.ask("check_hold") == "ok"


def test_the_number_of_a_deleted_claim_is_still_not_given_out_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with holding(store) as robbed:
        (store / _keys.claim(1)).unlink()

        with WriterLease(store).acquire() as hold:
            assert hold.fence == 2
        assert robbed.ask("check_hold") != "ok"
