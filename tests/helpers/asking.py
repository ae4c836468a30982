"""What an agent is asked about processes: the core's doors, with plain JSON on both sides."""

from __future__ import annotations

import contextlib
from typing import Any


def current_record(host_id: str | None = None) -> str:
    from tenure import _core

    return _core.ProcessIdentity.current(host_id=host_id).to_json()


def judge(record: Any, **options: Any) -> list[str]:
    from tenure import _core

    judgement = _core.judge(record, **options)
    return [judgement.verdict.value, judgement.reason, judgement.evidence, judgement.detail]


def judge_many(records: list[Any], **options: Any) -> list[list[str]]:
    from tenure import _core

    judgements = _core.judge_many(records, **options)
    return [[one.verdict.value, one.reason, one.evidence, one.detail] for one in judgements]


def judge_all(records: list[Any], times: int) -> list[int]:
    """Judge *records*, repeated *times* times and interleaved, in one go; how often each verdict came, in its place."""
    from tenure import _core

    judgements = _core.judge_many(records * times)
    own = [_core.judge(record) for record in records]
    return [len(judgements), sum(one != own[place % len(own)] for place, one in enumerate(judgements))]


def everything(records: list[Any], without: list[Any]) -> list[str]:
    """Each way to ask after a process, for each record; the verdicts."""
    from tenure import _core

    verdicts = [one.verdict.value for one in _core.judge_many(records, without=without)]
    for record in records:
        verdicts.append(_core.judge(record, without=without).verdict.value)
        with contextlib.suppress(OSError), _core.Watch(record, without=without) as watching:
            watching.alive()
            watching.wait(0.001)
        with contextlib.suppress(ValueError, OSError):
            identity = _core.ProcessIdentity.from_json(record)
            identity.is_current()
            with _core.WatchSet([identity], limit=len(verdicts) % 2) as watched:
                watched.ended(0.001)
            _core.ProcessIdentity.of(identity.pid)
    return verdicts


def watch(record: Any, seconds: float, **options: Any) -> list[bool]:
    """Whether it was alive at first, and whether it had ended *seconds* later at the latest."""
    from tenure import _core

    with _core.Watch(record, **options) as watching:
        return [watching.alive(), watching.wait(seconds)]


def is_current(record: str) -> bool:
    from tenure import _core

    return _core.ProcessIdentity.from_json(record).is_current()


def of(pid: int) -> str:
    from tenure import _core

    return _core.ProcessIdentity.of(pid).to_json()


def capabilities() -> list[str]:
    from tenure import _core

    return sorted(_core.capabilities())
