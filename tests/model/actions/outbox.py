"""The outbox: preparing, recovery by the next holder, and what a user is told who asks later."""

from __future__ import annotations

from tests.model.actions.lease import Moves, dropped
from tests.model.actions.requests import put
from tests.model.state import (
    Entry,
    Model,
    Row,
    State,
    Writer,
    decide,
    floor,
    moved,
    name,
    seen,
    undecided,
    usable,
    with_row,
)


def prepare(model: Model, state: State, who: int, which: int) -> Moves:
    """Durable before the put, with the slot aimed at; content first, of which an uncondemned blob is used again."""
    writer = state.writers[who]
    slot, fence = writer.slot, writer.fence
    promised = slot > len(state.log)
    op = model.scene.ops[which]
    row = Row("prepared", fence, slot, slot - 1, 0, promised)
    then = writer._replace(step="put" if model.rules.put_is_conditional else "check", at=0)
    after = state._replace(writers=moved(state, who, then))
    if not (model.scene.blobs and op.content):
        yield f"{name(who)} prepares {op.name} for slot {slot}", after._replace(outbox=with_row(state, which, row))
        return
    there = usable(model, state)
    if not there:
        says = f"{name(who)} stores blob {fence} and prepares {op.name} for slot {slot}"
        yield (
            says,
            after._replace(blobs=state.blobs | 1 << fence, outbox=with_row(state, which, row._replace(blob=fence))),
        )
    for blob in range(1, there.bit_length()):
        if there >> blob & 1:
            says = f"{name(who)} prepares {op.name} for slot {slot} with blob {blob}"
            yield says, after._replace(outbox=with_row(state, which, row._replace(blob=blob)))


def onward(model: Model, state: State, who: int, start: int) -> State:
    """To the first row from *start* on that waits for somebody and can be reached; or ready, if there is none."""
    writer = state.writers[who]
    for which in range(start, len(state.outbox)):
        if undecided(state.outbox[which]) and (model.scene.shared or model.scene.ops[which].writer == who):
            return state._replace(writers=moved(state, who, writer._replace(step="recover", at=which)))
    sealed = model.rules.seal_before_recovery or state.opened == writer.fence
    then = writer._replace(step="ready" if sealed else "seal", at=0)
    return state._replace(writers=moved(state, who, then))


def recover(model: Model, state: State, who: int) -> Moves:
    """
    One row: decided by its slot, or marked as being landed by this fence.

    One step, although the slot is read before the row is marked: the slot was settled by our own seal, and the mark is
    guarded by the row.
    """
    writer = state.writers[who]
    which, fence = writer.at, writer.fence
    row = state.outbox[which]
    op = model.scene.ops[which]
    if row is None or not undecided(row):
        yield f"{name(who)} finds {op.name} settled", onward(model, state, who, which + 1)
        return
    if model.scene.skips and op.writer != who:
        yield f"{name(who)} skips {op.name}: its writer lives", onward(model, state, who, which + 1)
    if row.fence > fence and model.rules.only_higher_takes_on:
        yield f"{name(who)} finds {op.name} taken on by a higher fence", state._replace(writers=dropped(state, who))
        return
    found = decide(model, state, which, row)
    if found == "unknown":
        yield f"{name(who)} cannot tell what became of {op.name}, and keeps it", onward(model, state, who, which + 1)
        return
    if found == "landed":
        after = state._replace(outbox=with_row(state, which, row._replace(state="landed")))
        yield f"{name(who)} finds {op.name} in the log", onward(model, after, who, which + 1)
        return
    if model.rules.conflicts_are_kept and _overtaken(model, state, which, row, writer.slot):
        after = state._replace(outbox=with_row(state, which, row._replace(state="conflicted")))
        yield f"{name(who)} keeps {op.name} as conflicted", onward(model, after, who, which + 1)
        return
    blobs = state.blobs
    if row.blob and not usable(model, state) >> row.blob & 1:
        # From the copy that waits in the checkout.
        blobs |= 1 << fence
        row = row._replace(blob=fence)
    if model.rules.landing_is_marked:
        row = row._replace(state="landing", fence=fence, slot=writer.slot)
    after = state._replace(
        blobs=blobs, outbox=with_row(state, which, row), writers=moved(state, who, writer._replace(step="land"))
    )
    yield f"{name(who)} will land {op.name} in slot {writer.slot}", after


def _overtaken(model: Model, state: State, which: int, row: Row, end: int) -> bool:
    """Whether its path has moved since its base; what is below the floor cannot be compared."""
    if row.base + 1 < floor(state):
        return True
    path = model.scene.ops[which].path
    return any(
        entry is not None
        and entry.kind == "commit"
        and entry.what != which
        and model.scene.ops[entry.what].path == path
        for entry in (seen(model, state, slot) for slot in range(row.base + 1, end))
    )


def land(model: Model, state: State, who: int) -> Moves:
    writer = state.writers[who]
    which, slot = writer.at, writer.slot
    row = state.outbox[which]
    assert row is not None
    what = model.scene.ops[which].name
    entry = Entry("commit", writer.fence, which, row.base, row.blob)
    landed = writer._replace(step="note landed")
    for answer, after in put(model, state, slot, entry):
        if answer == "created":
            says, then = f"lands {what} in slot {slot}", landed
        elif answer == "unclear":
            says, then = f"hears nothing of {what} for slot {slot}", writer
        elif seen(model, state, slot) == entry:
            says, then = f"finds {what} landed in slot {slot}", landed
        else:
            says, then = f"is refused {what} in slot {slot}", Writer(op=writer.op)
        yield f"{name(who)} {says}", after._replace(writers=moved(after, who, then))


def note_landed(model: Model, state: State, who: int) -> Moves:
    writer = state.writers[who]
    which = writer.at
    row = state.outbox[which]
    assert row is not None
    mine = row.state == "landing" and row.fence == writer.fence
    if mine or not model.rules.landing_is_marked:
        state = state._replace(outbox=with_row(state, which, row._replace(state="landed")))
    state = state._replace(writers=moved(state, who, writer._replace(slot=writer.slot + 1)))
    yield f"{name(who)} marks {model.scene.ops[which].name} as landed", onward(model, state, who, which + 1)


def ask(model: Model, state: State, who: int) -> Moves:
    """
    What became of my commit? Asked by a user without a hold, as after "refused", after "unknown", after a restart.

    The withdrawal is guarded by the row: it and a recoverer's mark exclude each other.
    """
    ids = model.ops_of(who)
    writer = state.writers[who]
    if writer.op == len(ids):
        return
    which = ids[writer.op]
    row = state.outbox[which]
    what = model.scene.ops[which].name
    if row is None or row.state == "landing":
        return
    if row.state != "prepared":
        yield from reported(model, state, who, which, row)
        return
    found = decide(model, state, which, row)
    if found == "landed":
        after = state._replace(
            outbox=with_row(state, which, row._replace(state="landed")),
            acknowledged=state.acknowledged | 1 << which,
            writers=moved(state, who, writer._replace(op=writer.op + 1)),
        )
        yield f"{name(who)} asks and learns that {what} has landed", after
    elif found == "other":
        after = state._replace(
            outbox=with_row(state, which, row._replace(state="withdrawn")),
            failed=state.failed | 1 << which,
            writers=moved(state, who, writer._replace(op=writer.op + 1)),
        )
        yield f"{name(who)} withdraws {what}: another entry has its slot", after


def reported(model: Model, state: State, who: int, which: int, row: Row) -> Moves:
    """A decided row is reported to its user."""
    writer = state.writers[who]
    what = model.scene.ops[which].name
    after = state._replace(writers=moved(state, who, writer._replace(op=writer.op + 1)))
    if row.state == "landed":
        yield f"{name(who)} learns that {what} has landed", after._replace(acknowledged=state.acknowledged | 1 << which)
    else:
        yield f"{name(who)} learns that {what} is {row.state}", after._replace(failed=state.failed | 1 << which)
