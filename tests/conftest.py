"""Signals as a terminal would give them to us, the databases, and the closing count of skips per capability."""

from __future__ import annotations

import os
import signal
import tempfile
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


# Lifelines and memories of stores that are no directory lie in the user's own; tests have one of their own for that, which
# their children inherit.
_own = tempfile.TemporaryDirectory(prefix="tenure-tests-", ignore_cleanup_errors=True)
for _name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME"):
    os.environ[_name] = _own.name


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
