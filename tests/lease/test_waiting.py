"""Waiting: a waiter is woken at once, and leaves no descriptor behind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tenure import WriterBusyError, WriterLease, aio
from tests.helpers import holders
from tests.helpers.capabilities import NEEDS_IDENTITY

pytestmark = NEEDS_IDENTITY


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_wait_in_vain_gives_its_descriptors_back_though_its_error_is_kept(tmp_path: Path) -> None:
    """The error's traceback leads to the waiter, and may stand in a log handler's list for hours."""
    with holders.holding(tmp_path / "store"):
        lease = WriterLease(tmp_path / "store")
        kept, open_after = [], []
        for _ in range(10):
            with pytest.raises(WriterBusyError) as busy:
                lease.acquire(timeout=0.01)
            kept.append(busy)
            open_after.append(descriptors())
        # After the first: the core opens what it keeps for good.
        assert open_after[-1] <= open_after[0]


def test_an_async_wait_in_vain_does_so_too(tmp_path: Path) -> None:
    async def main() -> None:
        lease = WriterLease(tmp_path / "store")
        kept, open_after = [], []
        for _ in range(10):
            with pytest.raises(WriterBusyError) as busy:
                await aio.acquire(lease, timeout=0.01)
            kept.append(busy)
            open_after.append(descriptors())
        assert open_after[-1] <= open_after[0]

    with holders.holding(tmp_path / "store"):
        asyncio.run(main())
