"""
The tenancy: what this process has of the lease, shared by every `Hold` that joined it.

Known by the nonce of its claim. Whoever acquires looks at the store first and joins only if the claim that is the highest
*there* is one of ours; so a lost hold is never joined, whatever this process believes, and an unreadable store joins
nobody.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Literal

from tenure._clock import Clock
from tenure._failpoints import reach
from tenure._identity import ProcessIdentity
from tenure._lease import _log
from tenure._lease._claim import Claim
from tenure._lease._pulse import Pulse
from tenure._lifeline import Lifeline
from tenure.errors import FencedError, HoldError

State = Literal["held", "expired", "lost", "released"]


class Tenancy:
    """One claim of this process, from its start to its release or loss."""

    def __init__(self, url: str, claim: Claim, *, pulse: Pulse, lifeline: Lifeline | None, clock: Clock) -> None:
        self.url = url
        self.claim = claim
        self._pulse = pulse
        self._lifeline = lifeline
        self._clock = clock
        self._pid = os.getpid()
        # Guards what follows. Never held while calling into the store or an owner's callback.
        self._lock = threading.Lock()
        self._joined = 1
        self._lost_to: int | None = None
        self._when_lost: list[Callable[[], None]] = []

    def join(self) -> bool:
        """Count one more hold; False if it is over."""
        with self._lock:
            if not self._joined or self._lost_to is not None:
                return False
            self._joined += 1
        return True

    def begin(self) -> None:
        """Start the pulse, and let others join."""
        self._pulse.start()
        with _registry_lock:
            _registry[self.claim.nonce] = self

    def call_when_lost(self, callback: Callable[[], None]) -> None:
        """Have *callback* called once, if the hold is lost."""
        with self._lock:
            self._when_lost.append(callback)
        self._pulse.notify(self._noticed)

    def state(self) -> State:
        """How it stands as far as this process knows. Asks nobody; `check` does."""
        # Without the lock, which a fork may have left locked in the child.
        if self._lost_to is not None or self._pulse.lost:
            return "lost"
        if not self._joined:
            return "released"
        return "expired" if self._expired() else "held"

    def check(self) -> None:
        """See `Hold.check`."""
        self.usable()
        instead = self._pulse.standing()
        if instead is not None:
            raise self._lose(instead)
        if self._expired():
            self.renew()

    def renew(self) -> None:
        """See `Hold.renew`."""
        self.usable()
        holder = self.claim.holder
        if isinstance(holder, ProcessIdentity) and not holder.is_current():
            raise self._lose(self.claim.fence)
        if not self._pulse.beat():
            raise self._lose(self.claim.fence + 1)

    def usable(self) -> None:
        """Raise unless this is the process that took it and nobody is known to have taken over."""
        if self._pid != os.getpid():
            raise HoldError(
                f"this hold belongs to the process that took it, not to its forked child. fence=`{self.claim.fence}`",
                hint="acquire after forking",
            )
        if self._lost_to is not None:
            raise self._fenced(self._lost_to)
        if self._pulse.lost:
            raise self._lose(self.claim.fence + 1)

    def lifeline_fileno(self) -> int | None:
        """See `Hold.lifeline_fileno`."""
        self.usable()
        return None if self._lifeline is None else self._lifeline.fileno()

    def leave(self) -> None:
        """Count one hold less; the last one ends it. Nothing that a successor wrote is touched."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._joined -= 1
            if self._joined:
                return
            if self._lost_to is not None:
                return
        self._end(release=True)

    def _end(self, *, release: bool) -> None:
        with _registry_lock:
            _registry.pop(self.claim.nonce, None)
        reach("lease.releasing")
        self._pulse.stop(release=release)
        if self._lifeline is not None:
            self._lifeline.close()

    def _expired(self) -> bool:
        return self._clock.elapsed() >= self._pulse.renewed_at + self.claim.ttl

    def _noticed(self) -> None:
        """Called by the pulse, from a thread of its own."""
        self._lose(self.claim.fence + 1)

    def _lose(self, to: int) -> FencedError:
        """Lose it for good, once; everything of it that blocks others ends here and now."""
        with self._lock:
            first = self._lost_to is None and bool(self._joined)
            if self._lost_to is None:
                self._lost_to = to
            callbacks, self._when_lost = self._when_lost, []
        if first:
            _log.warning("the writer lease was lost: fence %d, current %d, store %s", self.claim.fence, to, self.url)
            self._end(release=False)
            for callback in callbacks:
                try:
                    callback()
                except Exception:  # noqa: BLE001  whatever a callback raises
                    # The owner's fault, in the owner's words; the others must still hear of the loss.
                    _log.warning("the callback for a lost lease failed", failed=True)
        return self._fenced(self._lost_to)

    def _fenced(self, current: int) -> FencedError:
        if current > self.claim.fence:
            what = "another writer has taken over"
        else:
            what = (
                "this process no longer is the one that our claim names"
                " (restored from a checkpoint, descriptors closed, or the claim replaced)"
            )
        return FencedError(
            f"{what}. ours=`{self.claim.fence}`, current=`{current}`",
            hint="stop writing, read again, and acquire anew",
            ours=self.claim.fence,
            current=current,
        )


_registry: dict[str, Tenancy] = {}
_registry_lock = threading.Lock()


def tenancy_of(nonce: str | None) -> Tenancy | None:
    """This process's tenancy of the claim with *nonce*, if it has one."""
    with _registry_lock:
        return _registry.get(nonce or "")


def _forget_all() -> None:
    """In a forked child nothing is held, and the lock may have been taken by a thread that is not here."""
    global _registry_lock
    _registry.clear()
    _registry_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
