"""The closing count of skips per capability."""

from __future__ import annotations

from collections import Counter
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped for a missing capability: {count:4d}  {reason}")
