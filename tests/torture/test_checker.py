"""The checker has teeth: of each promise a history that keeps it, and the nearest one that does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.torture.checker import Promise, check
from tests.torture.events import BY_THE_DRIVER, Entry, Event

WITNESSED = Promise(ttl=0.3, skew=0.1, bound_s=0.5)
STRANGERS = Promise(ttl=0.3, skew=0.1, witnessed=False, bound_s=1.0)


def at(
    ms: float, who: str, kind: str, fence: int | None = None, *, seq: int | None = None, entry: int | None = None
) -> Event:
    return Event(round(ms * 1e6), who, kind, fence, seq, entry)


def acquire(who: str, fence: int, invoked: float, acquired: float, releasing: float | None = None) -> list[Event]:
    events = [at(invoked, who, "invoke"), at(acquired, who, "acquired", fence)]
    if releasing is not None:
        events.append(at(releasing, who, "releasing", fence))
    return events


def append(who: str, fence: int, entry: int, seq: int | None, began: float, ended: float) -> list[Event]:  # noqa: PLR0917  read as one line
    events = [at(began, who, "appending", fence, entry=entry)]
    if seq is not None:
        events.append(at(ended, who, "appended", fence, entry=entry, seq=seq))
    return events


def broken(events: Iterable[Event], log: Iterable[Entry] = (), promise: Promise = WITNESSED) -> set[str]:
    return check(events, list(log), promise).rules()


def test_holds_that_follow_each_other_are_right() -> None:
    assert not broken([*acquire("a", 1, 0, 1, 5), *acquire("b", 2, 2, 6, 9), *acquire("a", 3, 10, 11)])


def test_an_empty_history_is_right() -> None:
    report = check([], [], WITNESSED)

    assert not report.problems
    assert "0 holds" in str(report)


def test_one_fence_has_one_holder() -> None:
    assert "one holder" in broken([*acquire("a", 1, 0, 1, 5), *acquire("b", 1, 6, 7, 8)])


def test_a_later_acquire_has_a_higher_fence() -> None:
    assert "rising fences" in broken([*acquire("a", 2, 0, 1, 2), *acquire("b", 1, 3, 4, 5)])
    assert not broken([*acquire("a", 2, 0, 10, 11), *acquire("b", 1, 3, 4, 5)]), "at the same time either may be first"


@pytest.mark.parametrize("kind", ["checked", "continued", "killed", "releasing"])
def test_a_holder_that_lives_is_not_replaced(kind: str) -> None:
    """Whatever it does later shows that it lived."""
    sign = at(20, "a", kind, None if kind in BY_THE_DRIVER else 1)

    assert "never robbed" in broken([*acquire("a", 1, 0, 1), *acquire("b", 2, 2, 10), sign])


def test_a_holder_may_be_replaced_once_it_has_died_or_begun_to_release() -> None:
    assert not broken([*acquire("a", 1, 0, 1), at(9, "a", "killed"), *acquire("b", 2, 2, 10), at(11, "a", "died")])
    assert not broken([*acquire("a", 1, 0, 1, 9), *acquire("b", 2, 2, 10), at(20, "a", "released", 1)])


def test_a_holder_that_killed_itself_was_dead_at_the_earliest_after_its_last_word() -> None:
    assert not broken([*acquire("a", 1, 0, 1), at(3, "a", "checked", 1), *acquire("b", 2, 2, 10), at(12, "a", "died")])


def test_a_stopped_holder_is_not_replaced_however_long_it_is_silent() -> None:
    stop = [at(5, "a", "stopped"), at(5000, "a", "continued")]

    assert "never robbed" in broken([*acquire("a", 1, 0, 1), *stop, *acquire("b", 2, 2, 3000)])


@pytest.mark.parametrize(("taken", "right"), [(400, True), (150, False)])
def test_among_strangers_a_silent_holder_is_replaced_after_ttl_and_skew_and_not_before(
    taken: float, right: bool
) -> None:
    stop = [at(5, "a", "stopped"), at(5000, "a", "continued")]
    events = [*acquire("a", 1, 0, 1), *stop, *acquire("b", 2, 2, taken), at(5001, "a", "fenced", 1)]

    assert (not broken(events, promise=STRANGERS)) is right


def test_among_strangers_too_a_short_stop_is_no_silence() -> None:
    stop = [at(5, "a", "stopped"), at(90, "a", "continued")]
    events = [*acquire("a", 1, 0, 1), *stop, *acquire("b", 2, 2, 900), at(1000, "a", "fenced", 1)]

    assert broken(events, promise=STRANGERS) == {"never robbed"}


def test_where_deaths_are_seen_nobody_alive_is_ever_fenced() -> None:
    assert broken([*acquire("a", 1, 0, 1), at(2, "a", "fenced", 1)]) == {"fenced alive"}


def test_a_wait_is_bounded_from_the_end_of_the_hold_or_from_its_own_start() -> None:
    assert not broken([*acquire("a", 1, 0, 1, 100), *acquire("b", 2, 2, 550)])
    assert broken([*acquire("a", 1, 0, 1, 100), *acquire("b", 2, 2, 650)]) == {"bounded wait"}
    assert broken([*acquire("a", 1, 0, 1), at(100, "a", "killed"), *acquire("b", 2, 2, 650)]) == {"bounded wait"}
    assert not broken([*acquire("a", 1, 0, 1, 100), *acquire("b", 2, 400, 650)])


def test_the_wait_of_a_worker_that_was_held_up_itself_is_counted_and_not_judged() -> None:
    stopped = [at(200, "b", "stopped"), at(600, "b", "continued")]
    faulty = Event(0, "b", "started", note="lease.claimed=sleep:0.5")

    for held_up in (stopped, [faulty]):
        report = check([*acquire("a", 1, 0, 1, 100), *acquire("b", 2, 2, 650), *held_up], [], WITNESSED)
        assert not report.problems
        assert report.gap(1) == pytest.approx(0.55)


def test_a_check_that_passes_was_true_when_it_began() -> None:
    events = [*acquire("a", 1, 0, 1), at(5, "a", "stopped"), at(700, "a", "continued"), *acquire("b", 2, 2, 600)]

    late = [at(701, "a", "checking", 1), at(702, "a", "checked", 1)]
    assert broken([*events, *late], promise=STRANGERS) == {"true checks"}
    early = [at(4, "a", "checking", 1), at(702, "a", "checked", 1)]
    assert not broken([*events, *early], promise=STRANGERS)


def test_whoever_knows_that_it_was_fenced_does_not_go_on() -> None:
    events = [*acquire("a", 1, 0, 1), at(2, "a", "fenced", 1)]

    assert broken([*events, *append("a", 1, 1, None, 3, 4)], promise=STRANGERS) == {"obedient"}
    let_go = at(2.5, "a", "releasing", 1)
    assert not broken([*events, let_go, *acquire("a", 2, 3, 4), *append("a", 2, 1, None, 5, 6)], promise=STRANGERS)


def test_the_fences_of_the_log_never_fall_and_it_has_no_gaps() -> None:
    begun = [*append("a", 1, 1, None, 0, 1), *append("b", 2, 1, None, 0, 1)]

    assert broken(begun, [Entry(1, 2, "b", 1), Entry(2, 1, "a", 1)]) == {"log fences rise"}
    assert broken(begun, [Entry(1, 1, "a", 1), Entry(3, 2, "b", 1)]) == {"no gaps"}
    assert not broken(begun, [Entry(1, 1, "a", 1), Entry(2, 2, "b", 1)])


@pytest.mark.parametrize(
    "log",
    [[], [Entry(1, 1, "b", 1)], [Entry(1, 2, "a", 1)], [Entry(1, 1, "a", 1), Entry(2, 1, "a", 1)]],
    ids=["absent", "somebody else's", "under another fence", "twice"],
)
def test_what_was_acknowledged_is_there_once_where_it_was_said(log: list[Entry]) -> None:
    events = [*append("a", 1, 1, 1, 0, 1), *append("b", 1, 1, None, 0, 1)]

    assert broken(events, log) == {"nothing lost"}


@pytest.mark.parametrize(("log", "right"), [([], True), ([1], True), ([1, 2], False)])
def test_what_was_only_begun_is_there_once_at_most(log: list[int], right: bool) -> None:
    found = broken(append("a", 1, 1, None, 0, 1), [Entry(seq, 1, "a", 1) for seq in log])

    assert (not found) is right


def test_what_nobody_began_is_not_there() -> None:
    assert broken([at(0, "a", "invoke")], [Entry(1, 1, "a", 7)]) == {"nothing lost"}


def test_the_entries_of_one_worker_stay_in_order() -> None:
    events = [*append("a", 1, 1, 2, 0, 1), *append("a", 1, 2, 1, 2, 3)]

    assert broken(events, [Entry(1, 1, "a", 2), Entry(2, 1, "a", 1)]) == {"in order"}


@pytest.mark.parametrize("order", [sorted, lambda events, key: list(reversed(events))])
def test_events_may_come_in_any_order(order: Callable[..., list[Event]]) -> None:
    events = [*acquire("a", 1, 0, 1, 5), *acquire("b", 2, 2, 6, 9)]

    assert not broken(order(events, key=str))


def test_a_report_shows_what_broke_and_what_happened_around_it() -> None:
    events = [
        at(0, "a", "started"),
        *acquire("a", 1, 1, 2),
        *acquire("b", 2, 3, 10),
        at(20, "a", "killed"),
        at(999, "c", "invoke"),
    ]

    said = str(check(events, [], WITNESSED))

    assert "never robbed: fence 1 of a was replaced by 2 while it lived" in said
    assert all(word in said for word in ("killed", "started", "1 promises broken"))
    assert "invoke" in said
    assert " c " not in said, "of the processes concerned only"
