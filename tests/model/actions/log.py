"""Opening the log and writing to it: seal, commit, snapshot."""

from __future__ import annotations

from tests.model.actions.lease import Moves, dropped
from tests.model.actions.outbox import onward, prepare, reported
from tests.model.actions.requests import put
from tests.model.state import (
    Entry,
    Model,
    Row,
    State,
    floor,
    highest_claim,
    moved,
    name,
    seen,
    undecided,
    with_row,
)


def read_head(model: Model, state: State, who: int) -> Moves:
    writer = state.writers[who]
    head = len(state.log)
    if model.rules.seal_heeds_higher_fence and head and state.log[-1].fence > writer.fence:
        yield f"{name(who)} finds a higher fence at the head", state._replace(writers=dropped(state, who))
        return
    sealing = writer._replace(step="seal", slot=head + 1)
    after = state._replace(writers=moved(state, who, sealing))
    if not model.rules.seals:
        after = opened(model, after, who)
    elif not model.rules.seal_before_recovery:
        after = onward(model, after, who, 0)
    yield f"{name(who)} reads the head, slot {head}", after


def seal(model: Model, state: State, who: int) -> Moves:
    writer = state.writers[who]
    entry = Entry("seal", writer.fence)
    sealed = writer._replace(step="check seal")
    for answer, after in put(model, state, writer.slot, entry):
        if answer == "created":
            says, then = f"puts its seal {writer.fence} into slot {writer.slot}", sealed
        elif answer == "unclear":
            says, then = f"hears nothing of its seal for slot {writer.slot}", writer
        elif seen(model, state, writer.slot) == entry:
            says, then = f"finds its seal in slot {writer.slot}", sealed
        else:
            says, then = f"finds slot {writer.slot} taken", writer._replace(step="read head", slot=0)
        yield f"{name(who)} {says}", after._replace(writers=moved(after, who, then))


def check_seal(model: Model, state: State, who: int) -> Moves:
    writer = state.writers[who]
    if model.rules.seal_checked and (highest_claim(state) > writer.fence or writer.slot < floor(state)):
        yield f"{name(who)} is fenced before it has opened the log", state._replace(writers=dropped(state, who))
        return
    after = state._replace(writers=moved(state, who, writer._replace(slot=writer.slot + 1)))
    yield f"{name(who)} opens the log with fence {writer.fence}", opened(model, after, who)


def opened(model: Model, state: State, who: int) -> State:
    """The hold is handed out; recovery is the first thing it does, unless it was done already."""
    fence = state.writers[who].fence
    return onward(
        model,
        state._replace(opened=max(state.opened, fence)),
        who,
        0 if model.rules.seal_before_recovery else len(state.outbox),
    )


def commit(model: Model, state: State, who: int) -> Moves:
    """The next commit that its user asks for: settled before, or to be prepared."""
    writer = state.writers[who]
    ids = model.ops_of(who)
    if writer.op == len(ids):
        return
    row = state.outbox[ids[writer.op]]
    if row is None or (row.state == "prepared" and row.fence == writer.fence):
        yield from prepare(model, state, who, ids[writer.op])
    elif not undecided(row):
        yield from reported(model, state, who, ids[writer.op], row)


def put_commit(model: Model, state: State, who: int) -> Moves:
    writer = state.writers[who]
    which = model.ops_of(who)[writer.op]
    row = state.outbox[which]
    assert row is not None
    what = model.scene.ops[which].name
    entry = Entry("commit", writer.fence, which, row.base, row.blob)
    # Blind: the mutant writes wherever the log ends by now.
    slot = writer.slot if model.rules.put_is_conditional else len(state.log) + 1
    for answer, after in put(model, state, slot, entry):
        there = seen(model, state, slot)
        if answer == "created":
            says, then = f"puts {what} into slot {slot}", writer._replace(step="note")
        elif answer == "unclear":
            yield (
                f"{name(who)} hears nothing of {what} for slot {slot}",
                _unclear(model, after, who, which, row),
            )
            continue
        elif there == entry:
            says, then = f"finds {what} in slot {slot}", writer._replace(step="note")
        elif (
            not model.rules.undecided_keeps_its_slot
            and there is not None
            and there.kind == "commit"
            and there.fence == writer.fence
        ):
            says, then = f"finds its earlier commit in slot {slot}", writer._replace(step="ready", slot=slot + 1)
        else:
            says = f"is refused {what} in slot {slot}"
            yield f"{name(who)} {says}", after._replace(writers=dropped(after, who))
            continue
        yield f"{name(who)} {says}", after._replace(writers=moved(after, who, then))
    if state.unsent and writer.step == "put":
        yield f"{name(who)} cannot send {what}, and goes on", _unsent(model, state, who, which, row)


def _unsent(model: Model, state: State, who: int, which: int, row: Row) -> State:
    """The hold goes on, once this is withdrawn."""
    writer = state.writers[who]
    after = state._replace(unsent=state.unsent - 1)
    going_on = moved(state, who, writer._replace(step="ready", op=writer.op + 1))
    if not model.rules.unsent_is_withdrawn:
        return after._replace(writers=going_on)
    after = withdrawn(after, who, which, row)
    return after._replace(writers=going_on) if row.state == "prepared" else after


def _unclear(model: Model, state: State, who: int, which: int, row: Row) -> State:
    writer = state.writers[who]
    if not model.rules.unclear_is_unknown:
        return withdrawn(state, who, which, row)
    return state._replace(writers=moved(state, who, writer._replace(step="unclear")))


def withdrawn(state: State, who: int, which: int, row: Row) -> State:
    """Reported as not applied, unless somebody is landing it."""
    op = state.writers[who].op
    state = state._replace(writers=dropped(state, who))
    if row.state != "prepared":
        return state
    return state._replace(
        outbox=with_row(state, which, row._replace(state="withdrawn")),
        failed=state.failed | 1 << which,
        writers=moved(state, who, state.writers[who]._replace(op=op + 1)),
    )


def unclear(model: Model, state: State, who: int) -> Moves:
    """The same bytes to the same slot again; or the user gets "unknown" and the hold ends."""
    writer = state.writers[who]
    which = model.ops_of(who)[writer.op]
    row = state.outbox[which]
    assert row is not None
    what = model.scene.ops[which].name
    yield from put_commit(model, state, who)
    yield f"{name(who)} gives up on {what} as unknown", state._replace(writers=dropped(state, who))
    if not model.rules.only_slot_decides and highest_claim(state) > writer.fence:
        yield f"{name(who)} sees a higher claim and withdraws {what}", withdrawn(state, who, which, row)
    if not model.rules.undecided_keeps_its_slot:
        then = writer._replace(step="ready", op=writer.op + 1)
        yield f"{name(who)} leaves {what} undecided and goes on", state._replace(writers=moved(state, who, then))


def check(model: Model, state: State, who: int) -> Moves:
    """Of the mutant alone: am I current? Then put."""
    writer = state.writers[who]
    if highest_claim(state) > writer.fence:
        yield f"{name(who)} finds a claim above its own", state._replace(writers=dropped(state, who))
    else:
        yield (
            f"{name(who)} finds itself current",
            state._replace(writers=moved(state, who, writer._replace(step="put"))),
        )


def note(model: Model, state: State, who: int) -> Moves:
    """The row is marked landed, the user told."""
    writer = state.writers[who]
    which = model.ops_of(who)[writer.op]
    row = state.outbox[which]
    assert row is not None
    if undecided(row):
        state = state._replace(outbox=with_row(state, which, row._replace(state="landed")))
    then = writer._replace(step="ready", slot=writer.slot + 1, op=writer.op + 1)
    says = f"{name(who)} acknowledges {model.scene.ops[which].name}"
    yield says, state._replace(writers=moved(state, who, then), acknowledged=state.acknowledged | 1 << which)


def start_snapshot(model: Model, state: State, who: int) -> Moves:
    """The floor goes as high as it can; what is undecided, in an outbox that can be reached, holds it back."""
    writer = state.writers[who]
    new = writer.slot
    if model.rules.floor_waits_for_undecided:
        for which, row in enumerate(state.outbox):
            if row is not None and undecided(row) and (model.scene.shared or model.scene.ops[which].writer == who):
                new = min(new, row.base + 1)
    if state.snapshots and new > floor(state):
        then = writer._replace(step="snapshot", at=new)
        after = state._replace(writers=moved(state, who, then), snapshots=state.snapshots - 1)
        yield f"{name(who)} makes a snapshot with floor {new}", after


def snapshot(model: Model, state: State, who: int) -> Moves:
    yield from _own_entry(model, state, who, Entry("snapshot", state.writers[who].fence, state.writers[who].at))


def condemn(model: Model, state: State, who: int) -> Moves:
    yield from _own_entry(model, state, who, Entry("condemned", state.writers[who].fence, state.writers[who].at))


def _own_entry(model: Model, state: State, who: int, entry: Entry) -> Moves:
    """An entry that nobody waits for: again until the slot has decided."""
    writer = state.writers[who]
    then = writer._replace(step="ready", slot=writer.slot + 1, at=0)
    if entry.kind == "condemned":
        then = then._replace(step="delete", at=entry.what)
    for answer, after in put(model, state, writer.slot, entry):
        where = f"{entry.kind} entry in slot {writer.slot}"
        if answer == "unclear":
            yield f"{name(who)} hears nothing of its {where}", after
        elif answer == "created" or seen(model, state, writer.slot) == entry:
            yield f"{name(who)} has its {where}", after._replace(writers=moved(after, who, then))
        else:
            yield f"{name(who)} is refused its {where}", after._replace(writers=dropped(after, who))
