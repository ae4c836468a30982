"""Deleting content that nothing refers to."""

from __future__ import annotations

from tests.model.actions.lease import Moves
from tests.model.state import Model, State, condemned, moved, name, referenced


def start_collecting(model: Model, state: State, who: int) -> Moves:
    """A blob that a lower fence stored and nothing in the log refers to is condemned; what was condemned, deleted."""
    writer = state.writers[who]
    known = condemned(state)
    unused = state.blobs & ~referenced(model, state)
    for blob in range(1, writer.fence + (0 if model.rules.own_blobs_spared else 1)):
        if not unused >> blob & 1:
            continue
        if known >> blob & 1 or not model.rules.condemned_before_deleted:
            step, says = writer._replace(step="delete", at=blob), "will delete"
        else:
            step, says = writer._replace(step="condemn", at=blob), "condemns"
        yield f"{name(who)} {says} blob {blob}", state._replace(writers=moved(state, who, step))


def delete(model: Model, state: State, who: int) -> Moves:
    writer = state.writers[who]
    ready = state._replace(writers=moved(state, who, writer._replace(step="ready", at=0)))
    yield f"{name(who)} deletes blob {writer.at}", ready._replace(blobs=state.blobs & ~(1 << writer.at))
    if state.late:
        after = ready._replace(deletes=state.deletes | 1 << writer.at, late=state.late - 1)
        yield f"{name(who)} hears nothing of its deletion of blob {writer.at}", after
