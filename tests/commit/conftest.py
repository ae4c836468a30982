"""No test leaves a memory of its leases to the next, or to whoever runs the tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _remember_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_CACHE", "")
