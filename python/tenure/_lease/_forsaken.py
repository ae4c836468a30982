"""
Claims of this process that it gave up and could not mark as released.

They name a living process, us, and would otherwise block everybody who can see it, ourselves first. To others they look
alive until this process ends, or until their lifeline, if there is one, is found free.
"""

from __future__ import annotations

_nonces: set[str] = set()


def forsake(nonce: str) -> None:
    """Note that the claim with *nonce* is nobody's."""
    _nonces.add(nonce)


def is_forsaken(nonce: str | None) -> bool:
    """Whether this process has given up the claim with *nonce*."""
    return nonce in _nonces
