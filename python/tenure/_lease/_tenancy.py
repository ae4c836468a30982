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
from contextlib import AbstractContextManager
from typing import Literal

from tenure._clock import Clock
from tenure._failpoints import reach
from tenure._identity import ProcessIdentity
from tenure._lease import _log
from tenure._lease._claim import Claim
from tenure._lease._forsaken import forsake
from tenure._lease._pulse import Pulse
from tenure._lifeline import Lifeline
from tenure.errors import Error, FencedError, HoldError

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
        # Guards what follows. Never held while calling into the store or an owner's callback. Like every lock of a lease it
        # can be taken again by its own thread: a signal handler may release, and so does a hold that is collected.
        self._lock = threading.RLock()
        # The holds that share it, by their ids: a set, so that one which was cut off while it joined is taken out whether
        # it was in or not; not the holds themselves, or one that everybody else has dropped would never end.
        self._joined: set[int] = set()
        # Set when the last one begins to leave: nobody joins what is about to end.
        self._leaving = False
        self._lost_to: int | None = None
        self._when_lost: list[Callable[[], None]] = []
        # Held while it ends, which must be done once, and to its end.
        self._ending = threading.RLock()
        self._ended = False

    def join(self, hold: object) -> bool:
        """Let *hold* share it; False if it is over."""
        with self._lock:
            if not self._joined or self._lost_to is not None:
                return False
            self._joined.add(id(hold))
            # Asked only now: a signal handler may have let go of the last one meanwhile.
            if self._leaving:
                self._joined.discard(id(hold))
                return False
        return True

    def has(self, hold: object) -> bool:
        """Whether *hold* shares it, that is, was not released."""
        return id(hold) in self._joined

    def begin(self, hold: object) -> None:
        """Start the pulse for the first *hold*, and let others join."""
        self._joined.add(id(hold))
        self._pulse.start()
        with _registry_lock:
            _registry[self.claim.nonce] = self

    def call_when_lost(self, callback: Callable[[], None]) -> None:
        """Have *callback* called once, if the hold is lost."""
        with self._lock:
            late = self._lost_to is not None
            if not late:
                self._when_lost.append(callback)
        if late:
            self._tell([callback])
            return
        self._pulse.notify(self._noticed)
        if self._pulse.lost:
            # Noticed before anybody was there to be told.
            self._noticed()

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

    def check_here(self) -> None:
        """See `Hold.check_here`."""
        self._still_us()
        if self._lifeline is not None and not self._lifeline.is_intact():
            raise self._lose(self.claim.fence)
        if self._expired():
            self.renew()

    def renew(self) -> None:
        """See `Hold.renew`."""
        self._still_us()
        if not self._pulse.beat():
            raise self._lose(self.claim.fence + 1)

    def _still_us(self) -> None:
        """Raise unless this is the very process that our claim names: a clone or a restored checkpoint is another."""
        self.usable()
        holder = self.claim.holder
        if isinstance(holder, ProcessIdentity) and not holder.is_current():
            raise self._lose(self.claim.fence)

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

    def leave(self, hold: object) -> None:
        """
        Take *hold* out; the last one ends it. Nothing that a successor wrote is touched.

        One that was cut off can be repeated: a hold is out only once all is done.
        """
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._joined != {id(hold)} or self._lost_to is not None:
                # Out at once: of two that leave at the same moment one has to be the last.
                self._joined.discard(id(hold))
                return
            self._leaving = True
        self._end(release=True)
        with self._lock:
            self._joined.discard(id(hold))

    def withdraw(self) -> None:
        """Let nobody join any more: the acquire that made it was cut off, and has let go of everything."""
        with self._lock:
            self._joined.clear()
        with _registry_lock:
            _registry.pop(self.claim.nonce, None)

    def _end(self, *, release: bool) -> None:
        with self._ending:
            if self._ended:
                return
            with _registry_lock:
                _registry.pop(self.claim.nonce, None)
            told = False
            # Each step also when the one before was cut off: a hold that nobody has, and whose lifeline is held, would
            # block everybody for as long as this process lives.
            try:
                if release:
                    reach("lease.releasing")
            except Error as error:
                _log.debug("a release went on after a failure: %s", error)
            finally:
                try:
                    told = self._pulse.stop(release=release)
                finally:
                    if release and not told:
                        forsake(self.claim.nonce)
                    if self._lifeline is not None:
                        # Where the word "released" is missing, the free lifeline stays to say it.
                        self._lifeline.close(remove=told)
            self._ended = True

    def _expired(self) -> bool:
        return self._clock.elapsed() >= self._pulse.renewed_at + self.claim.ttl

    def _noticed(self) -> None:
        """Called by the pulse, from a thread of its own."""
        self._lose(self.claim.fence + 1)

    def _lose(self, to: int) -> FencedError:
        """Lose it for good, once; everything of it that blocks others ends here and now."""
        with self._lock:
            first = self._lost_to is None and not self._ended
            if self._lost_to is None:
                self._lost_to = to
            callbacks, self._when_lost = self._when_lost, []
        if first:
            _log.warning("the writer lease was lost: fence %d, current %d, store %s", self.claim.fence, to, self.url)
            self._end(release=False)
            self._tell(callbacks)
        return self._fenced(self._lost_to)

    @staticmethod
    def _tell(callbacks: list[Callable[[], None]]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001  whatever a callback raises
                # The owner's fault, in the owner's words; the others must still hear of the loss.
                _log.warning("the callback for a lost lease failed", failed=True)

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
_registry_lock = threading.RLock()


def tenancy_of(nonce: str | None) -> Tenancy | None:
    """This process's tenancy of the claim with *nonce*, if it has one."""
    with _registry_lock:
        return _registry.get(nonce or "")


def turn(url: str) -> AbstractContextManager[bool]:
    """
    Held by the thread that looks at the store *url* and takes its lease.

    One at a time, or a second thread would find a claim of this process before there is a hold to join, and be told that
    somebody else has the lease.
    """
    with _registry_lock:
        return _turns.setdefault(url, threading.RLock())


_turns: dict[str, AbstractContextManager[bool]] = {}


def _forget_all() -> None:
    """In a forked child nothing is held, and a lock may have been taken by a thread that is not here."""
    global _registry_lock
    _registry.clear()
    _turns.clear()
    _registry_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
