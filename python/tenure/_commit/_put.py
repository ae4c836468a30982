"""
One write-once record, put until the answer is clear.

A reply can be lost, and a client library can make a refusal of it. So the same bytes go to the same key again, and what
the key holds decides: mine or not. A look that finds nothing proves nothing, since the first request may still be under
way; hence the put is repeated and not the question.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure._clock import Clock
from tenure.errors import StoreError, StoreUnavailableError
from tenure.stores import Store

PATIENCE_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Unclear:
    """Time ran out: the record may be there, or come to be there."""

    cause: StoreError


@dataclass(frozen=True, slots=True)
class Putter:
    """Puts records into *store*, and asks for *patience_s* seconds until an answer is clear."""

    store: Store
    clock: Clock
    patience_s: float

    def put(self, key: str, data: bytes) -> bytes | Unclear:
        """
        What *key* holds after *data* was put there if it was free: durable, and *data* itself if we won.

        Raises:
            StoreError: refused before anything was sent; nothing is applied.
        """
        deadline = self.clock.awake() + self.patience_s
        pause = _FIRST_PAUSE_S
        unclear: StoreError | None = None
        while True:
            try:
                return self.store.create(key, data).data
            except StoreError as error:
                # After one unclear answer a clear refusal says nothing of the request before it.
                if unclear is None and error.applied is False:
                    raise
                unclear = error
            if self.clock.awake() + pause > deadline:
                return self._found(key, unclear)
            self.clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def put_clearly(self, key: str, data: bytes) -> bytes:
        """
        The same for a record that does no harm if it comes to be there later.

        Raises:
            StoreUnavailableError: no clear answer in time.
            StoreError: as `put`.
        """
        found = self.put(key, data)
        if isinstance(found, Unclear):
            raise StoreUnavailableError(
                f"no clear answer from the store in time. key=`{key}`, store=`{self.store.url}`",
                hint="try again",
                applied=None,
            ) from found.cause
        return found

    def _found(self, key: str, unclear: StoreError) -> bytes | Unclear:
        try:
            stored = self.store.read(key, durable=True)
        except StoreError:
            stored = None
        return Unclear(unclear) if stored is None else stored.data
