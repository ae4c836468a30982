"""The front door: what `import tenure` gives, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import tenure
from tenure import errors

PUBLIC = {
    *errors.__all__,
    "Author",
    "CaughtUp",
    "Checkout",
    "CheckoutStatus",
    "CheckoutWriter",
    "CommitLog",
    "Committed",
    "CrashMarker",
    "Damage",
    "Datastore",
    "Entry",
    "FileInfo",
    "ForcedRelease",
    "Hold",
    "Judgement",
    "LeaseStatus",
    "LogLine",
    "LogWriter",
    "Mark",
    "Outbox",
    "OutboxEntry",
    "PastHold",
    "PidFile",
    "Prepared",
    "ProcessIdentity",
    "Recovered",
    "RecoveryReport",
    "Retained",
    "Run",
    "Standing",
    "Standings",
    "Verdict",
    "Watch",
    "WatchSet",
    "WriterLease",
    "judge",
    "judge_many",
    "open_store",
}

# What an interpreter does not need in order to know these names. Each costs more than all of tenure.
HEAVY = {
    "asyncio",
    "click",
    "concurrent.futures",
    "ctypes",
    "email",
    "http",
    "importlib.metadata",
    "logging",
    "multiprocessing",
    "rich",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "urllib.request",
}


def test_the_public_names_are_pinned() -> None:
    assert set(tenure.__all__) == PUBLIC


def test_all_is_sorted_and_names_nothing_twice() -> None:
    assert list(tenure.__all__) == sorted(set(tenure.__all__))


def test_nothing_else_looks_public() -> None:
    visible = {
        name
        for name, value in vars(tenure).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and name not in {"annotations", "TYPE_CHECKING"}
    }
    assert visible <= PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_is_documented_and_shows_its_public_home(name: str) -> None:
    value = getattr(tenure, name)
    assert inspect.getdoc(value)
    # What a traceback, a pickle and help() show is the name that users import.
    home = "tenure.errors" if name in errors.__all__ else "tenure.stores" if name == "open_store" else "tenure"
    assert value.__module__ == home
    assert value.__qualname__ == name


def test_importing_tenure_imports_nothing_heavy() -> None:
    # In an interpreter of its own, and less what that one starts with: editable installs bring hooks along.
    code = "import sys; before = set(sys.modules); import tenure; print(*sorted(set(sys.modules) - before))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "tenure" in out.split()
    assert HEAVY & set(out.split()) == set()
