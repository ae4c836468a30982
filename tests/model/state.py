"""
The state of the model: immutable tuples, and what can be seen of them.

`log`, `taken`, `opened`, `acknowledged`, `failed` and `Row.promised` are history: the truth, which no writer can read. What
a writer sees goes through `seen`, `head`, `floor` and `decide`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

# A writer's step names what it does next.
Step = Literal[
    "idle", "claim", "look above", "read head", "seal", "check seal", "recover", "land", "note landed", "ready", "check",
    "put", "unclear", "note", "snapshot", "condemn", "delete", "join",
]  # fmt: skip
RowState = Literal["prepared", "landing", "landed", "withdrawn", "conflicted"]


class Entry(NamedTuple):
    """An entry of the log. `what` is the number of a commit, the floor of a snapshot, the blob that is condemned."""

    kind: Literal["seal", "commit", "snapshot", "condemned"]
    fence: int
    what: int = -1
    # The head that a commit was prepared on, and the fence that stored the blob it refers to, 0 for none.
    base: int = 0
    blob: int = 0


class Row(NamedTuple):
    """A row of the outbox: in which slot, under which fence, the entry was tried last."""

    state: RowState
    fence: int
    slot: int
    base: int
    blob: int = 0
    # It was prepared before anybody had sealed its slot, so that a recoverer can know of it.
    promised: bool = True


class Writer(NamedTuple):
    """What a process remembers, and a crash takes away; only `op`, how far its user has come, stays."""

    step: Step = "idle"
    fence: int = 0
    slot: int = 0
    # Depends on the step: the row being recovered, the floor of a snapshot, a blob, the highest fence when it joined.
    at: int = 0
    op: int = 0


class Reader(NamedTuple):
    """A follower of the log: the last slot applied, and what it has read of the next one."""

    applied: int = 0
    read: Entry | None = None
    true: bool = True


class State(NamedTuple):
    """Sets of fences, commits and blobs are bits of a number. `NUMBERS` says how many of the fields are numbers."""

    claims: int
    taken: int
    opened: int
    gone: int
    acknowledged: int
    failed: int
    deletes: int
    blobs: int
    crashes: int
    late: int
    unsent: int
    snapshots: int
    log: tuple[Entry, ...]
    ghosts: tuple[tuple[int, Entry], ...]
    writers: tuple[Writer, ...]
    outbox: tuple[Row | None, ...]
    flight: tuple[tuple[int, Entry], ...]
    reader: Reader


NUMBERS = 12


class Op(NamedTuple):
    """One commit that a user asks for: of which writer, to which path, with content or as a deletion."""

    name: str
    writer: int
    path: str = "x"
    content: bool = True


@dataclass(frozen=True)
class Scene:
    """Who wants to write what, and how much may go wrong: the bounds of one exploration."""

    name: str
    ops: tuple[Op, ...]
    writers: int = 2
    fences: int = 3
    crashes: int = 0
    # Requests whose answer is lost and which reach the store at any time later, or never.
    late: int = 0
    # Commits that the store refuses before anything is sent, or that somebody interrupts there.
    unsent: int = 0
    snapshots: int = 0
    claims_collected: bool = False
    # One checkout, and so one outbox, for all; otherwise each has its own, out of reach of the others.
    shared: bool = True
    skips: bool = False
    reader: bool = False
    joins: bool = False
    blobs: bool = False


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol, each of which can be left out."""

    seals: bool = True
    seal_before_recovery: bool = True
    seal_heeds_higher_fence: bool = True
    seal_checked: bool = True
    seals_kept: bool = True
    look_above_claim: bool = True
    put_is_conditional: bool = True
    unclear_is_unknown: bool = True
    only_slot_decides: bool = True
    undecided_keeps_its_slot: bool = True
    unsent_is_withdrawn: bool = True
    floor_read_after_slot: bool = True
    reign_decides_below_floor: bool = True
    foreign_seal_tells_nothing: bool = True
    landing_is_marked: bool = True
    only_higher_takes_on: bool = True
    conflicts_are_kept: bool = True
    floor_waits_for_undecided: bool = True
    reader_looks_at_floor: bool = True
    join_asks: bool = True
    condemned_before_deleted: bool = True
    condemned_is_stored_anew: bool = True
    own_blobs_spared: bool = True


@dataclass(frozen=True)
class Model:
    """A scene played by rules."""

    scene: Scene
    rules: Rules = Rules()

    def start(self) -> State:
        scene = self.scene
        return State(
            claims=0,
            taken=0,
            opened=0,
            gone=1,
            acknowledged=0,
            failed=0,
            deletes=0,
            blobs=0,
            crashes=scene.crashes,
            late=scene.late,
            unsent=scene.unsent,
            snapshots=scene.snapshots,
            log=(),
            ghosts=(),
            writers=(Writer(),) * scene.writers,
            outbox=(None,) * len(scene.ops),
            flight=(),
            reader=Reader(),
        )

    def ops_of(self, writer: int) -> tuple[int, ...]:
        return tuple(which for which, op in enumerate(self.scene.ops) if op.writer == writer)


def name(writer: int) -> str:
    return "ABCDEF"[writer]


def moved(state: State, writer: int, to: Writer) -> tuple[Writer, ...]:
    """The writers, of whom one has moved."""
    return (*state.writers[:writer], to, *state.writers[writer + 1 :])


def with_row(state: State, which: int, row: Row) -> tuple[Row | None, ...]:
    return (*state.outbox[:which], row, *state.outbox[which + 1 :])


def highest_claim(state: State) -> int:
    return state.claims.bit_length() - 1 if state.claims else 0


def undecided(row: Row | None) -> bool:
    return row is not None and row.state in ("prepared", "landing")


def floor(state: State) -> int:
    """The floor of the newest snapshot: slots below it may be freed. The newest is never itself below the floor."""
    for entry in reversed(state.log):
        if entry.kind == "snapshot":
            return entry.what
    return 1


def seen(model: Model, state: State, slot: int) -> Entry | None:
    """What a read of *slot* answers: in a freed slot nothing, or a ghost."""
    if slot > len(state.log):
        return None
    entry = state.log[slot - 1]
    if slot >= state.gone or (entry.kind == "seal" and model.rules.seals_kept):
        return entry
    for where, ghost in state.ghosts:
        if where == slot:
            return ghost
    return None


def create(model: Model, state: State, slot: int, entry: Entry) -> State | None:
    """Write *entry* if *slot* is empty; None if it is not. Whoever writes into a freed slot makes a ghost."""
    if seen(model, state, slot) is not None:
        return None
    if slot == len(state.log) + 1:
        return state._replace(log=(*state.log, entry))
    assert slot <= len(state.log), "nobody aims beyond the end"
    return state._replace(ghosts=tuple(sorted((*state.ghosts, (slot, entry)))))


def decide(model: Model, state: State, which: int, row: Row) -> Literal["landed", "other", "open", "unknown"]:
    """
    What became of *row* in the slot it was aimed at, as somebody can know who reads the slot, and then the floor.

    Its fence has sent nothing else to that slot. So if it was freed, and the newest seal before it is that fence's own, the
    entry that was there is this one. Another seal may be a ghost, or the barrier that kept the entry out: nobody can tell.
    """
    there = seen(model, state, row.slot)
    if row.slot >= floor(state) or (there is not None and not model.rules.floor_read_after_slot):
        if there is None:
            return "open"
        mine = there.kind == "commit" and there.fence == row.fence and there.what == which
        return "landed" if mine else "other"
    if not model.rules.reign_decides_below_floor:
        return "other"
    for slot in range(row.slot, 0, -1):
        entry = seen(model, state, slot)
        if entry is not None and entry.kind == "seal":
            if entry.fence == row.fence:
                return "landed"
            return "unknown" if model.rules.foreign_seal_tells_nothing else "other"
    return "unknown"


def condemned(state: State) -> int:
    """The blobs that entries of the log condemn, as a set of bits."""
    found = 0
    for entry in state.log:
        if entry.kind == "condemned":
            found |= 1 << entry.what
    return found


def usable(model: Model, state: State) -> int:
    """The blobs that may be referred to: there, and not condemned."""
    return state.blobs & ~condemned(state) if model.rules.condemned_is_stored_anew else state.blobs


def referenced(model: Model, state: State) -> int:
    """The blobs that the newest version refers to, as a set of bits."""
    by_path = {model.scene.ops[entry.what].path: entry.blob for entry in state.log if entry.kind == "commit"}
    found = 0
    for blob in by_path.values():
        found |= 1 << blob
    return found & ~1
