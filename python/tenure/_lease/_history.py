"""Who held the lease before: each claim that is still there, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tenure._clock import iso
from tenure._identity import ProcessIdentity
from tenure._lease import _keys
from tenure._lease._beat import read_beat
from tenure._lease._claim import Claim
from tenure._lease._sight import read_claim
from tenure.errors import RecordError
from tenure.stores import Store

Ending = Literal["collected", "released", "taken_over", "forced", "last", "unreadable"]


@dataclass(frozen=True, slots=True)
class PastHold:
    """
    One entry of `WriterLease.history()`.

    Attributes:
        fence: the fence it took.
        ended: `released` (it let go), `taken_over` (the next one came without that), `forced` (an operator broke it),
            `last` (nobody came after it, and it has not let go), `unreadable` (the claim cannot be read); `collected`, in
            the first entry alone, stands for this fence and all below: they are no longer kept.
        holder, host_name, label, nonce: as in `LeaseStatus`.
        since, until: wall times of those who wrote them, for people; `until` is when it let go, or when the next one came.
    """

    fence: int
    ended: Ending
    holder: ProcessIdentity | None = None
    host_name: str | None = None
    label: str | None = None
    nonce: str | None = None
    since: str | None = None
    until: str | None = None


def history(store: Store) -> Iterator[PastHold]:
    """
    From the oldest claim that is still there to the newest. Tombstones end the one before them and are no entry.

    Where older ones are gone, one entry says so first.

    Raises:
        StoreError: the store cannot be read.
    """
    before: Claim | int | None = None
    for key in store.list(_keys.PREFIX):
        fence = _keys.fence_of(key)
        if fence is None:
            if key > _keys.claim(_keys.MAX_FENCE):
                break
            continue
        now: Claim | int | None
        try:
            now = read_claim(store, fence)
        except RecordError:
            now = fence
        if now is None:
            continue
        if before is not None:
            yield from _entry(store, before, now)
        elif fence > 1:
            yield PastHold(fence - 1, "collected")
        before = now
    if before is not None:
        yield from _entry(store, before, None)


def _entry(store: Store, claim: Claim | int, successor: Claim | int | None) -> Iterator[PastHold]:
    if isinstance(claim, int):
        yield PastHold(claim, "unreadable")
        return
    if claim.tombstone:
        return
    came = successor if isinstance(successor, Claim) else None
    beat = read_beat(store, claim.fence, claim.nonce)
    until = None if came is None else came.acquired_at
    ended: Ending
    if beat.released:
        ended, until = "released", iso(beat.stamp) if beat.stamp else until
    elif came is not None and came.tombstone:
        ended = "forced"
    else:
        ended = "last" if successor is None else "taken_over"
    yield PastHold(
        fence=claim.fence,
        ended=ended,
        holder=claim.holder if isinstance(claim.holder, ProcessIdentity) else None,
        host_name=claim.host_name,
        label=claim.label,
        nonce=claim.nonce,
        since=claim.acquired_at,
        until=until,
    )
