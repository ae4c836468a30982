"""One record, put until the answer is clear: whatever the store answers, in whatever order, nothing is said that is not so."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tenure import StoreCannotLockError, StoreError, StoreUnavailableError
from tenure._commit._put import Found, Putter, Unclear
from tenure._store._memory import MemoryStore
from tenure.stores import Created, Stored
from tenure.testing import ManualClock

KEY = "log/00000000000000000001"
OURS, THEIRS = b"ours", b"theirs"
# Pauses of 0.05, 0.1 and 0.2 s lie between four requests; a fifth would come too late.
FOUR_REQUESTS_S = 0.4


class Moody(MemoryStore):
    """A store that answers each create as it was told to, and the last one's way from then on."""

    def __init__(self, answers: tuple[str, ...], *, reads: bool = True) -> None:
        super().__init__()
        self._answers = list(answers)
        self._reads = reads
        self._under_way: list[bytes] = []

    def create(self, key: str, data: bytes) -> Created:
        self._arrive(key)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer in _BEFORE:
            _BEFORE[answer](self, key)
        if answer == "refused":
            raise StoreUnavailableError("refused, nothing was sent", applied=False)
        if answer == "arrives late":
            self._under_way.append(data)
        elif answer != "lost on the way":
            created = super().create(key, data)
            if answer == "answered":
                return created
        raise StoreUnavailableError("no answer", applied=None)

    def read(self, key: str, *, durable: bool = False) -> Stored | None:
        self._arrive(key)
        if not self._reads:
            raise StoreUnavailableError("no answer")
        return super().read(key, durable=durable)

    def _arrive(self, key: str) -> None:
        while self._under_way:
            super().create(key, self._under_way.pop())

    def holds(self) -> bytes | None:
        stored = MemoryStore.read(self, KEY)
        return None if stored is None else stored.data


_BEFORE: dict[str, Callable[[Moody, str], object]] = {
    "another was first": lambda store, key: MemoryStore.create(store, key, THEIRS),
}
# "another was first" is unclear too: the record is there, and we do not hear whose it is.
ANSWERS = ["answered", "refused", "lost on the way", "reply lost", "arrives late", "another was first"]


def put(store: MemoryStore, patience_s: float = FOUR_REQUESTS_S) -> Found | Unclear:
    return Putter(store, ManualClock(), patience_s).put(KEY, OURS)


@pytest.mark.parametrize("reads", [True, False], ids=["read back", "not even read back"])
@pytest.mark.parametrize("there", [None, OURS, THEIRS], ids=["free", "ours already", "theirs"])
def test_no_sequence_of_answers_makes_it_say_what_is_not_so(there: bytes | None, reads: bool) -> None:
    for answers in itertools.product(ANSWERS, repeat=4):
        store = Moody(answers, reads=reads)
        if there is not None:
            MemoryStore.create(store, KEY, there)
        found: Found | Unclear | StoreError
        try:
            found = put(store)
        except StoreError as error:
            found = error
        match found:
            case StoreError():
                assert (answers[0], found.applied, store.holds()) == ("refused", False, there), answers
            case Found():
                assert (found.data, found.at_once) == (store.holds(), answers[0] == "answered"), answers
            case Unclear():
                # No answer, and whoever looked saw nothing, or could not look.
                assert "answered" not in answers, answers
                assert not reads or store.holds() is None, answers
        assert isinstance(found, StoreError) is (answers[0] == "refused"), answers


def test_a_clear_answer_is_not_asked_for_again() -> None:
    store = MemoryStore()
    assert put(store) == Found(OURS, True)
    assert [call.operation for call in store.calls] == ["create"]


def test_somebody_elses_record_is_handed_back() -> None:
    store = MemoryStore()
    store.create(KEY, THEIRS)
    assert put(store) == Found(THEIRS, True)


def test_a_refusal_after_an_unclear_answer_says_nothing_of_the_request_before_it() -> None:
    store = Moody(("reply lost", "refused"))
    assert put(store) == Found(OURS, False)
    assert put(Moody(("lost on the way", "refused"))).__class__ is Unclear


def test_the_same_bytes_are_sent_again_and_not_a_question() -> None:
    """A look between two requests that finds nothing proves nothing: the first may be under way."""
    store = MemoryStore()
    store.on("create", KEY, nth=0).fail(StoreUnavailableError("no answer", applied=None))
    assert isinstance(put(store), Unclear)
    assert [call.operation for call in store.calls] == ["create"] * 4 + ["read"]


@pytest.mark.parametrize(("patience_s", "requests"), [(0.0, 1), (0.04, 1), (0.06, 2), (FOUR_REQUESTS_S, 4), (10.0, 14)])
def test_patience_bounds_the_requests_and_the_time(patience_s: float, requests: int) -> None:
    store, clock = MemoryStore(), ManualClock()
    store.on("create", KEY, nth=0).fail(StoreUnavailableError("no answer", applied=None))
    assert isinstance(Putter(store, clock, patience_s).put(KEY, OURS), Unclear)
    assert len(store.calls) == requests + 1
    assert clock.awake() <= patience_s


def test_the_cause_of_what_is_unclear_is_the_last_answer() -> None:
    store = MemoryStore()
    last = StoreCannotLockError("gone read-only", applied=None)
    store.on("create", KEY).fail(StoreUnavailableError("no answer", applied=None))
    store.on("create", KEY, nth=2).fail(last)
    found = Putter(store, ManualClock(), 0.06).put(KEY, OURS)
    assert isinstance(found, Unclear)
    assert found.cause is last


@pytest.mark.parametrize("answers", [("answered",), ("reply lost",), ("lost on the way", "answered")])
def test_a_record_that_does_no_harm_later_is_put_or_an_error(answers: tuple[str, ...]) -> None:
    assert Putter(Moody(answers), ManualClock(), FOUR_REQUESTS_S).put_clearly(KEY, OURS) == OURS


def test_without_a_clear_answer_such_a_record_is_an_error_that_names_it() -> None:
    with pytest.raises(StoreUnavailableError, match=KEY) as refused:
        Putter(Moody(("lost on the way",)), ManualClock(), 0.0).put_clearly(KEY, OURS)
    assert refused.value.applied is None
    assert isinstance(refused.value.__cause__, StoreUnavailableError)
