"""
Who wrote a marker or an outbox entry.

An author is named by the fence and nonce of its hold, where it had one, and by the identity of its process. It stands inside
other records and has no schema number of its own: a reader takes what it understands, ignores the rest, and judges by what is
left. So nothing in it makes a record invalid; without an identity, time and the fence decide.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

from tenure._identity import ProcessIdentity
from tenure._lease import _keys
from tenure._lease._hold import Hold
from tenure._lease._tenancy import tenancy_of
from tenure.errors import RecordError


@dataclass(frozen=True, slots=True)
class Author:
    """
    Who wrote a record.

    Attributes:
        fence: of the hold it was written under; None if there was none, or it cannot be read.
        nonce: names that hold, or without one the writer itself; 32 hex digits, or None if it cannot be read.
        identity: of the process; the record's own text where that is no identity we understand, so that the judgement can say
            why; None if there is none.
    """

    fence: int | None
    nonce: str | None
    identity: ProcessIdentity | str | None

    @staticmethod
    def from_hold(hold: Hold) -> Author:
        """This process, as the holder that the claim of *hold* names."""
        tenancy = tenancy_of(hold.nonce)
        identity = ProcessIdentity.current() if tenancy is None else tenancy.claim.holder
        return Author(hold.fence, hold.nonce, identity)

    @staticmethod
    def without_hold() -> Author:
        """This process, as a writer that has no lease."""
        return Author(None, secrets.token_hex(16), ProcessIdentity.current())

    def to_record(self) -> dict[str, Any]:
        """What JSON can carry; `from_record` reads it again."""
        identity = self.identity.to_json() if isinstance(self.identity, ProcessIdentity) else self.identity
        return {
            "fence": None if self.fence is None else str(self.fence),
            "nonce": self.nonce,
            "identity": None if identity is None else json.loads(identity),
        }

    @staticmethod
    def from_record(record: object) -> Author:
        """What can be understood of *record*, whatever it is."""
        fields: dict[str, Any] = record if isinstance(record, dict) else {}
        return Author(_fence(fields.get("fence")), _nonce(fields.get("nonce")), _identity(fields.get("identity")))


def _fence(value: object) -> int | None:
    if not (isinstance(value, str) and len(value) <= 20 and value.isascii() and value.isdigit()):
        return None
    fence = int(value)
    return fence if 0 < fence <= _keys.MAX_FENCE else None


def _nonce(value: object) -> str | None:
    # Checked like that of a claim: it leads to the lifeline's name.
    is_one = isinstance(value, str) and len(value) == 32 and set(value) <= set("0123456789abcdef")
    return str(value) if is_one else None


def _identity(value: object) -> ProcessIdentity | str | None:
    if not isinstance(value, dict):
        return None
    text = json.dumps(value)
    try:
        return ProcessIdentity.from_json(text)
    except RecordError:
        return text
