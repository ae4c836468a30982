"""What happens to writers, and between them: crashes, late requests, freed slots, a reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.model.actions import blobs, lease, log, outbox
from tests.model.actions.lease import Moves, dropped
from tests.model.state import Model, Reader, State, Step, create, floor, name, seen


def ready(model: Model, state: State, who: int) -> Moves:
    """Everything that a holder may do next; also one that has been replaced and does not know it."""
    scene = model.scene
    yield from log.commit(model, state, who)
    if scene.snapshots:
        yield from log.start_snapshot(model, state, who)
    if scene.claims_collected:
        yield from lease.collect_claims(model, state, who)
    if scene.joins:
        yield from lease.start_joining(model, state, who)
    if scene.blobs:
        yield from blobs.start_collecting(model, state, who)
    yield f"{name(who)} releases", state._replace(writers=dropped(state, who))


def idle(model: Model, state: State, who: int) -> Moves:
    yield from lease.look(model, state, who)
    yield from outbox.ask(model, state, who)


_NEXT: dict[Step, Callable[[Model, State, int], Moves]] = {
    "idle": idle,
    "claim": lease.claim,
    "look above": lease.look_above,
    "read head": log.read_head,
    "seal": log.seal,
    "check seal": log.check_seal,
    "recover": outbox.recover,
    "land": outbox.land,
    "note landed": outbox.note_landed,
    "ready": ready,
    "check": log.check,
    "put": log.put_commit,
    "unclear": log.unclear,
    "note": log.note,
    "snapshot": log.snapshot,
    "condemn": log.condemn,
    "delete": blobs.delete,
    "join": lease.join,
}


def moves(model: Model, state: State) -> Iterator[tuple[str, State]]:
    """Whatever may happen next: in words, and the state after it."""
    for who, writer in enumerate(state.writers):
        yield from _NEXT[writer.step](model, state, who)
        if state.crashes and writer.step != "idle":
            yield f"{name(who)} crashes", state._replace(writers=dropped(state, who), crashes=state.crashes - 1)
    if state.flight:
        yield from _deliveries(model, state)
    if state.deletes:
        for blob in range(1, state.deletes.bit_length()):
            if state.deletes >> blob & 1:
                after = state._replace(deletes=state.deletes & ~(1 << blob), blobs=state.blobs & ~(1 << blob))
                yield f"a late deletion takes blob {blob}", after
    if state.gone < floor(state):
        yield f"the slots below {floor(state)} are freed", state._replace(gone=floor(state))
    if model.scene.reader:
        yield from _reader(model, state)


def _deliveries(model: Model, state: State) -> Moves:
    for number, (slot, entry) in enumerate(state.flight):
        rest = state._replace(flight=(*state.flight[:number], *state.flight[number + 1 :]))
        after = create(model, rest, slot, entry)
        what = model.scene.ops[entry.what].name if entry.kind == "commit" else f"{entry.kind} of fence {entry.fence}"
        if after is None:
            yield f"a late request for slot {slot}, {what}, is refused", rest
        else:
            yield f"a late request puts {what} into slot {slot}", after


def _reader(model: Model, state: State) -> Moves:
    """It follows by point reads, and applies what it read only after a look at the floor."""
    reader = state.reader
    slot = reader.applied + 1
    if reader.read is None:
        entry = seen(model, state, slot)
        if entry is not None and not model.rules.reader_looks_at_floor:
            applied = Reader(slot, true=entry == state.log[slot - 1])
            yield f"the reader reads and applies slot {slot}", state._replace(reader=applied)
        elif entry is not None:
            yield f"the reader reads slot {slot}", state._replace(reader=reader._replace(read=entry))
    elif slot >= floor(state):
        applied = Reader(slot, true=reader.read == state.log[slot - 1])
        yield f"the reader applies slot {slot}", state._replace(reader=applied)
        return
    if slot < floor(state) and model.rules.reader_looks_at_floor:
        newest = max(number for number, entry in enumerate(state.log, 1) if entry.kind == "snapshot")
        yield f"the reader starts again from the snapshot in slot {newest}", state._replace(reader=Reader(newest))
