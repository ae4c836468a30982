"""
The seal: the entry by which a new holder closes the log to every fence below its own.

It stands in the very slot where the holder before would write next, and is kept for ever: whoever slept through other writers'
turns and a clean-up still finds the slot taken. So no commit has to ask first whether it is still allowed.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Protocol

from tenure._commit import _keys, _positions
from tenure._commit._entry import Entry
from tenure._commit._put import Putter
from tenure._failpoints import reach
from tenure._lease._sight import highest_fence
from tenure.errors import FencedError, StoreCannotLockError, StoreUnavailableError
from tenure.stores import Store

# Each time round, the holder before has committed once more in between.
_ATTEMPTS = 100


class Holder(Protocol):
    """Who seals: a hold, or a fence that was burnt."""

    @property
    def fence(self) -> int:
        """Every lower one is shut out."""

    @property
    def nonce(self) -> str:
        """Of the claim."""

    def check(self) -> None:
        """Raise `FencedError` unless there is no higher claim."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """Where the seal stands, and the floor when it was looked at last."""

    slot: int
    floor: int


def seal(putter: Putter, hold: Holder, *, known: int) -> Sealed:
    """See `CommitLog.open`; *known* is a slot that was filled when it was last seen."""
    store = putter.store
    hold.check()
    # The first floor says that there is a log: a list without it is not believed.
    putter.put_clearly(_keys.floor(0), _keys.NOTE)
    _refuse_torn_records(store)
    for _ in range(_ATTEMPTS):
        floor, head = _positions.ends(store, known=known)
        if head:
            _refuse_if_fenced(store, head, hold)
        reach("log.looked")
        entry = Entry(head + 1, hold.fence, hold.nonce, "seal", secrets.token_hex(16), head, None, putter.clock.wall())
        data = entry.encode()
        found = putter.put_clearly(_keys.entry(entry.slot), data)
        reach("log.sealed")
        if found != data:
            known = head
            continue
        # What follows may have happened since we looked: we were replaced, or the slot was collected beneath us, and then our
        # seal is a ghost that nobody would ever see.
        hold.check()
        now = _positions.floor(store, at_least=floor) or 0
        if now <= entry.slot:
            return Sealed(entry.slot, now)
    raise StoreUnavailableError(
        f"the log grows as fast as it is sealed. store=`{store.url}`, fence=`{hold.fence}`",
        hint="the writer before is still committing; try again",
    )


@dataclass(frozen=True, slots=True)
class Burnt:
    """A fence that nobody holds: `WriterLease.force_release` burnt it, so that the ones below can be shut out."""

    store: Store
    fence: int
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    def check(self) -> None:
        """Raise `FencedError` if somebody has taken the lease since: then it is theirs to seal."""
        current = highest_fence(self.store, including=self.fence)
        if current > self.fence:
            raise FencedError(
                f"somebody has taken the lease since. burnt=`{self.fence}`, current=`{current}`, store=`{self.store.url}`",
                hint="nothing is left to do: they have sealed the log",
                ours=self.fence,
                current=current,
            )


def _refuse_if_fenced(store: Store, head: int, hold: Holder) -> None:
    stored = store.read(_keys.entry(head))
    if stored is None:
        # Collected since; then the next look finds another head.
        return
    newest = Entry.decode(_keys.entry(head), stored.data)
    if newest.fence > hold.fence:
        raise FencedError(
            f"the log is sealed by a higher fence. ours=`{hold.fence}`, current=`{newest.fence}`, store=`{store.url}`",
            hint="somebody removed the newer claims, or restored a backup of them: acquire anew",
            ours=hold.fence,
            current=newest.fence,
        )


def _refuse_torn_records(store: Store) -> None:
    if getattr(store, "publishes_by", None) == "exclusive":
        raise StoreCannotLockError(
            f"this file system has neither hard links nor a rename that refuses to replace, so a writer that dies would "
            f"leave a torn entry in the log. store=`{store.url}`",
            hint="use a directory on another file system; the lease alone works here too",
        )
