"""The hold: what a process has between acquire and release."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType

from tenure._clock import Clock
from tenure._identity import ProcessIdentity
from tenure._lease import _keys, _log
from tenure._lease._beat import Heart
from tenure._lease._claim import Claim
from tenure._lease._pulse import Pulse
from tenure._lease._sight import highest_fence
from tenure._lifeline import Lifeline
from tenure.errors import Error, FencedError, HoldError, StoreError
from tenure.stores import Store


class Hold:
    """
    The right to write, until it is released or lost. Made by `WriterLease.acquire`; a context manager.

    **held** → **expired** when no renewal has succeeded within ttl (nothing new may be started) → held again by one that
    succeeds, with the same fence, if nobody took over meanwhile; or **lost**, for good, once a higher claim exists.

    A hold belongs to the process that took it: in a forked child every method but `release` raises.
    """

    def __init__(
        self,
        store: Store,
        claim: Claim,
        *,
        heart: Heart,
        lifeline: Lifeline | None,
        clock: Clock,
        on_lost: Callable[[Hold], None] | None,
        acquired_at: float,
    ) -> None:
        self._store = store
        self._claim = claim
        self._record = claim.encode()
        self._heart = heart
        self._lifeline = lifeline
        self._clock = clock
        self._on_lost = on_lost
        self._pid = os.getpid()
        # Guards the four below. Never held while calling into the store or into the owner's callback.
        self._state = threading.Lock()
        self._renewed_at = acquired_at
        self._lost_to: int | None = None
        self._released = False
        self._beating = threading.Lock()
        self._pulse = Pulse(self.renew, claim.ttl / 3, name=f"tenure-pulse-{claim.fence}")

    @property
    def fence(self) -> int:
        """The fencing token: higher than that of every earlier holder. Stamp it on what you write."""
        return self._claim.fence

    @property
    def nonce(self) -> str:
        """Names this hold's claim."""
        return self._claim.nonce

    def check(self) -> None:
        """
        Ask the store whether this hold is still the current one. Call it before every step that must not be done twice.

        Also asks whether this process is still the one that took it (a restored checkpoint or a clone is not), and renews
        a hold that has expired. Returns nothing, so that there is no answer to forget.

        Raises:
            FencedError: it is lost, for good.
            HoldError: it was released, or this is a forked child.
            StoreError: the store cannot be asked; nothing is known, so nothing may be written.
            IdentityError: the platform would not say who this process is; likewise.
        """
        self._usable()
        self._ask_the_store()
        holder = self._claim.holder
        if isinstance(holder, ProcessIdentity) and not holder.is_current():
            self._lose(self.fence)
            raise self._fenced()
        if self._lifeline is not None and not self._lifeline.is_intact():
            # Somebody closed our descriptor: to everybody else we are gone.
            self._lose(self.fence)
            raise self._fenced()
        if self._expired():
            self.renew()

    def renew(self) -> None:
        """
        Beat once and look whether anybody has taken over. The pulse does this every ttl / 3; nobody else needs to.

        Raises:
            As `check`.
        """
        self._usable()
        # Anchored before anything is sent: what others see of this renewal cannot be older than what we believe.
        started = self._clock.elapsed()
        with self._beating:
            self._usable()
            self._ask_the_store()
            if not self._heart.beat():
                self._lose(self.fence)
                raise self._fenced()
        with self._state:
            self._renewed_at = max(self._renewed_at, started)

    def release(self) -> None:
        """
        Let go. The claim stays, so that the next fence is higher; nothing that a successor wrote is touched.

        A second release does nothing, as does one of a lost hold or in a forked child. Never raises for a store that
        cannot be reached: the lifeline is closed all the same, and others find the hold free.
        """
        if self._pid != os.getpid():
            return
        with self._state:
            if self._released:
                return
            self._released = True
            lost = self._lost_to is not None
        self._pulse.stop()
        with self._beating:
            try:
                if not lost:
                    self._heart.release()
            except Error as error:
                _log.debug("the release could not be written: %s", error)
            finally:
                self._heart.close()
                if self._lifeline is not None:
                    self._lifeline.close()

    def lifeline_fileno(self) -> int | None:
        """
        A descriptor to hand to a process that carries this hold on (`subprocess.Popen(pass_fds=…)`), or None.

        As long as anybody has it open the hold counts as alive, also after this process has ended.
        """
        self._usable()
        return None if self._lifeline is None else self._lifeline.fileno()

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        # Without the lock, which a fork may have left locked in the child.
        state = "released" if self._released else "held" if self._lost_to is None else "lost"
        return f"<Hold {state}: fence {self.fence} of {self._store.url}>"

    def start(self) -> None:
        """Start the pulse. Called once, by acquire."""
        self._pulse.start()

    def _usable(self) -> None:
        if self._pid != os.getpid():
            raise HoldError(
                f"this hold belongs to the process that took it, not to its forked child. fence=`{self.fence}`",
                hint="acquire after forking",
            )
        with self._state:
            released, lost = self._released, self._lost_to is not None
        if released:
            raise HoldError(f"this hold was released. fence=`{self.fence}`", hint="acquire again")
        if lost:
            raise self._fenced()

    def _ask_the_store(self) -> None:
        # From just below our own claim, which must be in the answer: a list without it says nothing.
        highest = highest_fence(self._store, above=self.fence - 1, including=self.fence)
        # People do delete lock files, and then somebody else can have taken our very number.
        stored = self._store.read(_keys.claim(self.fence)) if highest == self.fence else None
        if highest > self.fence or (stored is not None and stored.data != self._record):
            self._lose(highest)
            raise self._fenced()
        if stored is None:
            raise StoreError(
                f"our own claim is gone from the store, so nobody can see this hold. fence=`{self.fence}`",
                hint="somebody removes records: find out who; stop, and acquire anew",
            )

    def _expired(self) -> bool:
        with self._state:
            return self._clock.elapsed() >= self._renewed_at + self._claim.ttl

    def _lose(self, to: int) -> None:
        with self._state:
            first = self._lost_to is None and not self._released
            self._lost_to = to if self._lost_to is None else self._lost_to
        if not first:
            return
        _log.warning("the writer lease was lost: fence %d, current %d, store %s", self.fence, to, self._store.url)
        if self._on_lost is not None:
            try:
                self._on_lost(self)
            except Exception:  # noqa: BLE001  whatever a callback raises
                # The owner's fault, in the owner's words; what must not happen is that the pulse dies of it.
                _log.warning("the callback for a lost lease failed", failed=True)

    def _fenced(self) -> FencedError:
        with self._state:
            current = self._lost_to if self._lost_to is not None else self.fence
        if current > self.fence:
            what = "another writer has taken over"
        else:
            what = "this process no longer is the one that our claim names (restored, cloned, descriptors closed, or the claim replaced)"
        return FencedError(
            f"{what}. ours=`{self.fence}`, current=`{current}`",
            hint="stop writing, read again, and acquire anew",
            ours=self.fence,
            current=current,
        )
