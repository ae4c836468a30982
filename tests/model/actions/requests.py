"""A request to the store, and what may come of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tests.model.state import Entry, Model, State, create

Answer = Literal["created", "refused", "unclear"]


def put(model: Model, state: State, slot: int, entry: Entry) -> Iterator[tuple[Answer, State]]:
    """
    A conditional create.

    "Unclear" leaves the request on its way, so that it may be applied before the next attempt, after it, after the
    sender's death, or never: a lost answer, a late and a doubled delivery are all of these.
    """
    after = create(model, state, slot, entry)
    yield ("refused", state) if after is None else ("created", after)
    if state.late and (slot, entry) not in state.flight:
        flight = tuple(sorted((*state.flight, (slot, entry))))
        yield "unclear", state._replace(flight=flight, late=state.late - 1)
