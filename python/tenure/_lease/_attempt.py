"""One try to take the lease, which can be cut off at any point and then blocks nobody."""

from __future__ import annotations

from tenure._clock import Clock
from tenure._lease import _keys, _log
from tenure._lease._claim import Claim
from tenure._lease._forsaken import forsake
from tenure._lease._pulse import Pulse, start_pulse
from tenure._lease._tenancy import Tenancy
from tenure._lifeline import Lifeline
from tenure.errors import Error
from tenure.stores import Store


class Attempt:
    """What one try to take the lease has made so far, so that it can be unmade at any point."""

    def __init__(self, store: Store, nonce: str, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.nonce = nonce
        self.lifeline: Lifeline | None = None
        # Set once the claim may have been written.
        self.claim: Claim | None = None
        self.record = b""
        # When that was, on the clock that counts suspend: the first deadline counts from here.
        self.claimed_at = 0.0
        self.pulse: Pulse | None = None
        self.tenancy: Tenancy | None = None

    def start_pulse(self) -> Pulse:
        """
        Beat for the claim, which is won.

        Raises:
            StoreError: the heartbeat cannot be made.
        """
        assert self.claim is not None
        self.pulse = start_pulse(
            self._store, self.claim, self.record, self.lifeline, clock=self._clock, claimed_at=self.claimed_at
        )
        return self.pulse

    def abandon(self) -> None:
        """Say that the hold is over, if there ever was one, and let go of everything."""
        if self.tenancy is not None:
            self.tenancy.withdraw()
        told = False
        try:
            if self.pulse is None and self._is_claimed():
                self.start_pulse()
            told = self.pulse is None or self.pulse.stop(release=True)
        except Error as error:
            _log.debug("an abandoned claim could not be marked as released: %s", error)
        finally:
            if not told:
                forsake(self.nonce)
            if self.lifeline is not None:
                self.lifeline.close(remove=told)

    def _is_claimed(self) -> bool:
        """Whether the claim in the store is ours: not a word under somebody else's."""
        if self.claim is None:
            return False
        stored = self._store.read(_keys.claim(self.claim.fence))
        return stored is not None and stored.data == self.record
