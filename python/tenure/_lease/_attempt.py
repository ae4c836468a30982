"""One try to take the lease, which can be cut off at any point and then blocks nobody."""

from __future__ import annotations

from tenure._lease import _keys, _log
from tenure._lease._beat import Heart, start_heart
from tenure._lease._claim import Claim
from tenure._lifeline import Lifeline
from tenure.errors import Error
from tenure.stores import Store

# Claims of this process that were cut off and could not be marked so. They name a living process, us, and would
# otherwise block everybody who can see it, ourselves first.
_abandoned: set[str] = set()


def is_abandoned(nonce: str | None) -> bool:
    """Whether the claim with *nonce* is one that this process gave up and could not mark as released."""
    return nonce in _abandoned


class Attempt:
    """What one try to take the lease has made so far, so that it can be unmade at any point."""

    def __init__(self, store: Store, nonce: str) -> None:
        self._store = store
        self.nonce = nonce
        self.lifeline: Lifeline | None = None
        self.heart: Heart | None = None
        # Set once the claim may have been written.
        self.fence: int | None = None

    def abandon(self) -> None:
        """Say that the hold is over, if there ever was one, and let go of everything."""
        if self.fence is not None:
            try:
                self._release(self.fence)
            except Error as error:
                _log.debug("an abandoned claim could not be marked as released: %s", error)
                _abandoned.add(self.nonce)
        if self.heart is not None:
            self.heart.close()
        if self.lifeline is not None:
            self.lifeline.close()

    def _release(self, fence: int) -> None:
        stored = self._store.read(_keys.claim(fence))
        # Not a word under somebody else's claim.
        if stored is not None and Claim.decode(_keys.claim(fence), stored.data).nonce == self.nonce:
            heart = self.heart or start_heart(self._store, fence, self.nonce)
            self.heart = heart
            heart.release()
