"""The kinds of kernel a judgement may meet, imitated by evidence that it must not use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tenure import _core
from tests.helpers.capabilities import NEEDS_HANDLES, NEEDS_LINUX_PROC, NEEDS_PIDFD, NEEDS_PIDFS

if TYPE_CHECKING:
    from tenure._core import Capability, Record

LEVELS: dict[str, tuple[Capability, ...]] = {
    "handles": (),
    "pidfs": ("handle",),
    "pidfd": ("handle", "pidfs"),
    "proc": ("handle", "pidfs", "pidfd"),
    "no-proc": ("proc",),
    "pidfd-no-proc": ("handle", "pidfs", "proc"),
    "nothing": ("handle", "pidfs", "pidfd", "proc"),
}
_MARKS = {
    "handles": NEEDS_HANDLES,
    "pidfs": NEEDS_PIDFS,
    "pidfd": NEEDS_PIDFD,
    "proc": NEEDS_LINUX_PROC,
    "no-proc": NEEDS_HANDLES,
    "pidfd-no-proc": NEEDS_PIDFD,
}

EVERY_LEVEL = [pytest.param(name, marks=_MARKS.get(name, ()), id=name) for name in LEVELS]
# Those on which two processes with one number can be told apart, and a zombie from a running one.
USUAL_LEVELS = [pytest.param(name, marks=_MARKS[name], id=name) for name in ("handles", "pidfs", "pidfd", "proc")]


def judged_here(record: Record, **options: Any) -> tuple[str, str]:
    """Verdict and reason."""
    judgement = _core.judge(record, **options)
    return judgement.verdict.value, judgement.reason
