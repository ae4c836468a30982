"""Taking the lease: claim, look above, joining; each yields what may happen next, in words, and the state after it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.state import Model, State, Writer, highest_claim, moved, name

Moves = Iterator[tuple[str, State]]


def dropped(state: State, who: int) -> tuple[Writer, ...]:
    """The writers, of whom one has no hold any more."""
    return moved(state, who, Writer(op=state.writers[who].op))


def look(model: Model, state: State, who: int) -> Moves:
    """Nobody judges the holder: any writer may be replaced at any time."""
    highest = highest_claim(state)
    if highest < model.scene.fences:
        writer = state.writers[who]._replace(step="claim", fence=highest + 1)
        yield f"{name(who)} reads the highest claim, {highest}", state._replace(writers=moved(state, who, writer))


def claim(model: Model, state: State, who: int) -> Moves:
    writer = state.writers[who]
    if state.claims >> writer.fence & 1:
        yield f"{name(who)} finds claim {writer.fence} taken", state._replace(writers=dropped(state, who))
        return
    after = state._replace(
        claims=state.claims | 1 << writer.fence, writers=moved(state, who, writer._replace(step="look above"))
    )
    yield f"{name(who)} creates claim {writer.fence}", after


def look_above(model: Model, state: State, who: int) -> Moves:
    writer = state.writers[who]
    if model.rules.look_above_claim and highest_claim(state) > writer.fence:
        yield f"{name(who)} finds a claim above its own", state._replace(writers=dropped(state, who))
        return
    after = state._replace(
        taken=state.taken | 1 << writer.fence, writers=moved(state, who, writer._replace(step="read head"))
    )
    yield f"{name(who)} has taken fence {writer.fence}", after


def start_joining(model: Model, state: State, who: int) -> Moves:
    """Another part of the same process acquires. `at` is history: what had been taken when it asked."""
    writer = state.writers[who]._replace(step="join", at=state.taken.bit_length() - 1)
    yield f"{name(who)} is asked to join its hold", state._replace(writers=moved(state, who, writer))


def join(model: Model, state: State, who: int) -> Moves:
    writer = state.writers[who]
    if model.rules.join_asks and highest_claim(state) > writer.fence:
        yield f"{name(who)} finds that its hold is lost", state._replace(writers=dropped(state, who))
        return
    after = state._replace(writers=moved(state, who, writer._replace(step="ready", at=0)))
    yield f"{name(who)} joins its hold of fence {writer.fence}", after


def collect_claims(model: Model, state: State, who: int) -> Moves:
    """Whoever believes that it holds the lease deletes what is below its own claim."""
    fence = state.writers[who].fence
    kept = state.claims & ~((1 << fence) - 1)
    if kept != state.claims:
        yield f"{name(who)} deletes the claims below {fence}", state._replace(claims=kept)
