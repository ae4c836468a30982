"""The operator's way out: break a hold that nobody can judge, without ever taking it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from tenure._clock import Clock
from tenure._identity import Verdict, host_name
from tenure._judgement import Asker
from tenure._lease import _keys, _log
from tenure._lease._beat import supersede
from tenure._lease._claim import Claim
from tenure._lease._sight import DEFAULT_SKEW, DEFAULT_TTL, LeaseStatus, Observer, next_fence
from tenure.errors import RefusedError
from tenure.stores import Store, as_directory


@dataclass(frozen=True, slots=True)
class ForcedRelease:
    """
    What `WriterLease.force_release` did.

    Attributes:
        before: the lease as it was found.
        fence: the fence that was burnt, or None if nothing was done: the lease was free, or it was a dry run.
    """

    before: LeaseStatus
    fence: int | None


def force_release(
    store: Store,
    observer: Observer,
    asker: Asker,
    clock: Clock,
    *,
    nonce: str | None,
    even_if_alive: bool,
    dry_run: bool,
) -> ForcedRelease:
    """See `WriterLease.force_release`."""
    seen = observer.look()
    if seen.state == "free":
        return ForcedRelease(seen, None)
    if seen.nonce != nonce:
        raise _refused("the lease has changed hands since it was looked at", seen, "look again with `tenure status`")
    if seen.judgement is not None and seen.judgement.verdict is Verdict.ALIVE and not even_if_alive:
        hint = "stop it, or repeat with even_if_alive (`--even-if-alive`): it is fenced at its next check, not before"
        raise _refused(f"its holder is alive ({seen.judgement.reason})", seen, hint)
    if dry_run:
        return ForcedRelease(seen, None)
    fence = next_fence(store, seen.fence)
    if fence is None:
        raise _refused("somebody took the lease at this very moment", observer.look(), "look again")
    tombstone = Claim(
        fence=fence,
        nonce=secrets.token_hex(16),
        holder=asker.me(),
        ttl=DEFAULT_TTL,
        skew=DEFAULT_SKEW,
        label="forced release",
        host_name=host_name() or None,
        acquired_at=clock.wall(),
        lifeline=None,
        tombstone=True,
    )
    record = tombstone.encode()
    if store.create(_keys.claim(tombstone.fence), record).data != record:
        raise _refused("somebody took the lease at this very moment", observer.look(), "look again")
    if as_directory(store) is None:
        supersede(store, seen.fence, tombstone.nonce)
    _log.warning(
        "the writer lease was broken by force: fence %d of %s, store %s",
        seen.fence,
        seen.holder_for_people(),
        store.url,
    )
    return ForcedRelease(seen, tombstone.fence)


def _refused(what: str, seen: LeaseStatus, hint: str) -> RefusedError:
    return RefusedError(
        f"{what}. holder=`{seen.holder_for_people()}`, fence=`{seen.fence}`, nonce=`{seen.nonce}`",
        hint=hint,
        fence=seen.fence,
        nonce=seen.nonce,
        judgement=seen.judgement,
    )
