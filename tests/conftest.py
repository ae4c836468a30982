"""Signals as a terminal would give them to us, the databases, and the closing count of skips per capability."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.helpers.capabilities import missing_from_the_system
from tests.helpers.servers import mariadb, pgbouncer, postgresql

__all__ = ["mariadb", "pgbouncer", "postgresql"]

# A background job of a shell, `nohup` and some runners start us with signals ignored, and every child would inherit that:
# what a command does on Ctrl-C could not be seen. Source: signal(7), "signal dispositions"; POSIX sh, 2.11.
for _name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"):
    _number = getattr(signal, _name, None)
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _name == "SIGINT" else signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with _skipped_for_want_of_a_system_call():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _skipped_for_want_of_a_system_call():
        return (yield)


@contextmanager
def _skipped_for_want_of_a_system_call() -> Iterator[None]:
    try:
        yield
    except (AttributeError, ModuleNotFoundError) as error:
        name = missing_from_the_system(error)
        if name is None:
            raise
        pytest.skip(f"needs {name}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped for a missing capability: {count:4d}  {reason}")
