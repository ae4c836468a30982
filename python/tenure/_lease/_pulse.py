"""
The pulse: renews a hold every third of its ttl, and notices when it is lost.

On a directory it is a thread of the Rust core, which no thread that keeps the GIL can delay. Elsewhere it is a Python
thread, since a renewal there is a call of a client library.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from tenure._clock import Clock, SystemClock
from tenure._core import LocalHold
from tenure._failpoints import reach
from tenure._identity import ProcessIdentity
from tenure._lease import _keys, _log
from tenure._lease._beat import DIGITS_AT, SwappedBeat, encode, make_file
from tenure._lease._claim import Claim
from tenure._lease._sight import highest_fence
from tenure._lifeline import Lifeline
from tenure.errors import Error, StoreError
from tenure.stores import LocalDirectory, Store, as_directory, within

# How long a thread that waits for the loss of a hold sleeps at a time.
_A_WHILE_S = 3600.0


class Pulse(Protocol):
    """What keeps one hold alive and knows where it stands."""

    @property
    def renewed_at(self) -> float:
        """When the last good renewal was begun, on the clock that counts suspend."""

    @property
    def lost(self) -> bool:
        """Whether the pulse itself has noticed a successor."""

    def start(self) -> None:
        """Start to beat."""

    def notify(self, when_lost: Callable[[], None]) -> None:
        """Have *when_lost* called once, from a thread, if a successor is noticed. To be called after `start`."""

    def beat(self) -> bool:
        """One renewal now; False if a successor or another's heartbeat was met. Raises `StoreError`."""

    def standing(self) -> int | None:
        """
        Ask anew: None while the hold is current, else the fence that holds instead of ours.

        That is our own where our claim is another's or this process another one. Raises `StoreError`: nothing is known.
        """

    def stop(self, *, release: bool) -> bool:
        """Stop to beat; with *release*, say last that the hold is over. Returns whether all of that was done."""


def start_pulse(
    store: Store, claim: Claim, record: bytes, lifeline: Lifeline | None, *, clock: Clock, claimed_at: float
) -> Pulse:
    """
    The pulse of a new hold, which does not run yet; until its first beat the hold was renewed at *claimed_at*.

    *record* is what lies in the store for *claim*.

    Raises:
        StoreError: the heartbeat cannot be made.
    """
    directory = as_directory(store)
    if directory is not None and isinstance(claim.holder, ProcessIdentity):
        return _LocalPulse(directory, claim, record, claim.holder, lifeline, clock=clock, claimed_at=claimed_at)
    return _ThreadPulse(store, claim, record, lifeline, clock=clock, claimed_at=claimed_at)


class _LocalPulse:
    def __init__(
        self,
        store: LocalDirectory,
        claim: Claim,
        record: bytes,
        holder: ProcessIdentity,
        lifeline: Lifeline | None,
        *,
        clock: Clock,
        claimed_at: float,
    ) -> None:
        make_file(store, claim.fence)
        self._name = f"{store.root}/{_keys.claim(claim.fence)}"
        try:
            self._hold = LocalHold(
                directory=f"{store.root}/{_keys.PREFIX[:-1]}",
                claim=self._name,
                claimed=record,
                successor=f"{store.root}/{_keys.claim(claim.fence + 1)}",
                fence=claim.fence,
                heartbeat=f"{store.root}/{_keys.beat(claim.fence)}",
                held=encode(claim.nonce, 0, "held"),
                released=encode(claim.nonce, 0, "released"),
                digits_at=DIGITS_AT,
                interval=claim.ttl / 3,
                holder=holder,
                lifeline=None if lifeline is None else lifeline.handle,
            )
        except OSError as error:
            raise self._store_error("begin", error) from error
        # A clock that a test moves wakes no thread, so then there is none.
        self._clock = None if isinstance(clock, SystemClock) else clock
        self._watcher: threading.Thread | None = None
        self._renewed_at = claimed_at
        self._begun_ns = self._hold.renewed_at_ns

    @property
    def renewed_at(self) -> float:
        renewed_at_ns = self._hold.renewed_at_ns
        if self._clock is None and renewed_at_ns != self._begun_ns:
            return renewed_at_ns / 1e9
        return self._renewed_at

    @property
    def lost(self) -> bool:
        return self._hold.lost

    def start(self) -> None:
        if self._clock is None:
            self._hold.start()

    def notify(self, when_lost: Callable[[], None]) -> None:
        # Not from the pulse's own thread, which must never wait for Python; and only for those who want to be told.
        if self._clock is None and self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, args=(when_lost,), name="tenure-lost", daemon=True)
            self._watcher.start()

    def _watch(self, when_lost: Callable[[], None]) -> None:
        while (lost := self._hold.wait_lost(_A_WHILE_S)) is None:
            pass
        if lost:
            when_lost()

    def beat(self) -> bool:
        reach("lease.beat")
        started = 0.0 if self._clock is None else self._clock.elapsed()
        try:
            current = self._hold.beat()
        except OSError as error:
            raise self._store_error("renew", error) from error
        if current:
            self._renewed_at = max(self._renewed_at, started)
        return current

    def standing(self) -> int | None:
        try:
            return self._hold.check()
        except FileNotFoundError as error:
            raise own_claim_is_gone(self._name) from error
        except OSError as error:
            raise self._store_error("check", error) from error

    def stop(self, *, release: bool) -> bool:
        return self._hold.stop(release=release)

    def _store_error(self, doing: str, error: OSError) -> StoreError:
        return StoreError(
            f"cannot {doing} a hold: {(error.strerror or str(error)).lower()}. claim=`{self._name}`",
            errno=error.errno,
            hint="nothing is known about the hold until the store answers",
        )


class _ThreadPulse:
    def __init__(
        self, store: Store, claim: Claim, record: bytes, lifeline: Lifeline | None, *, clock: Clock, claimed_at: float
    ) -> None:
        self._store = store
        self._claim = claim
        self._record = record
        self._lifeline = lifeline
        self._clock = clock
        # Two requests that hang, and the next renewal is still on time.
        self._swapped = SwappedBeat(within(store, claim.ttl / 6), claim.fence, claim.nonce)
        # One beat at a time, whoever asks for it.
        self._beating = threading.RLock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._when_lost: Callable[[], None] | None = None
        self.renewed_at = claimed_at
        self.lost = False

    def notify(self, when_lost: Callable[[], None]) -> None:
        self._when_lost = when_lost

    def start(self) -> None:
        if isinstance(self._clock, SystemClock):
            name = f"tenure-pulse-{self._claim.fence}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        interval = self._claim.ttl / 3
        pause = interval
        while not self._stopped.wait(pause):
            try:
                if not self._beat(look=False):
                    break
                pause = interval
            except Error as error:
                # May pass: the hold stays good until its ttl is over, and ends as "expired", not as "lost".
                _log.debug("a renewal failed: %s", error)
                pause = interval / 4
        if self.lost and self._when_lost is not None:
            self._when_lost()

    def beat(self) -> bool:
        return self._beat(look=True)

    def _beat(self, *, look: bool) -> bool:
        """One renewal. Without a look it is one request: a successor has overwritten the heartbeat, see `supersede`."""
        reach("lease.beat")
        with self._beating:
            if self._stopped.is_set():
                return True
            # Before anything is sent: what others see of this beat cannot be older than what we believe.
            started = self._clock.elapsed()
            if (look and self._above() is not None) or not self._swapped.write("held"):
                self.lost = True
                return False
            self.renewed_at = max(self.renewed_at, started)
            return True

    def standing(self) -> int | None:
        above = self._above()
        if above is not None:
            return above
        # People do delete lock files, and then somebody else can have taken our very number.
        stored = self._store.read(_keys.claim(self._claim.fence))
        if stored is None:
            raise own_claim_is_gone(f"{self._store.url}/{_keys.claim(self._claim.fence)}")
        holder = self._claim.holder
        ours = (
            stored.data == self._record
            and (self._lifeline is None or self._lifeline.is_intact())
            and (not isinstance(holder, ProcessIdentity) or holder.is_current())
        )
        return None if ours else self._claim.fence

    def _above(self) -> int | None:
        # From just below our own claim, which must be in the answer: a list without it says nothing.
        fence = self._claim.fence
        highest = highest_fence(self._store, including=fence)
        return highest if highest > fence else None

    def stop(self, *, release: bool) -> bool:
        self._stopped.set()
        try:
            # Waits for a beat under way; after it nothing is written any more.
            with self._beating:
                return not release or self._swapped.write("released")
        except Error as error:
            _log.debug("the release could not be written: %s", error)
            return False
        finally:
            self._see_the_thread_off()

    def _see_the_thread_off(self) -> None:
        thread = self._thread
        # Not alive where Ctrl-C came before its start. And not for ever: if we are called within a beat of our own thread,
        # by a signal handler, the pulse waits for that beat, and is gone soon after it.
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(0.5)


def own_claim_is_gone(claim: str) -> StoreError:
    """Nobody can see the hold any more, so it must not be used, and nobody has been seen to take over either."""
    return StoreError(
        f"our own claim is gone from the store, so nobody can see this hold. claim=`{claim}`",
        hint="somebody removes records: find out who; stop, and acquire anew",
    )
