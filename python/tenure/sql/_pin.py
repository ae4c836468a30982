"""
What a writer keeps between its look and its write: the pin. And what it keeps when it cannot tell whether it wrote.

Both have a text form, for a header, a form field or a cache entry; what comes back from there is believed as little as
any other input.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from tenure.sql._errors import PinError

MAX_EPOCH = 2**63 - 1
"""The counter's end: a signed 64-bit integer, which is what all databases have."""

_MAX_SCOPE = 200
_RANDOM = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,39}\.)?[A-Za-z_][A-Za-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class Pin:
    """
    The epoch at which a scope's data was loaded. Opaque: keep it beside the data, hand it to `write`, compare nothing.

    Never pair a new pin with data that was loaded earlier: that is how a stale writer launders what it has. Only a
    `read` gives a new pin, or a commit that passed the fence.

    Attributes:
        scope: whose it is.
        epoch: the counter's value.
        lineage: random, made with the scope's row and never changed. A pin from another table, another database or an
            environment of the same names does not fit by accident.

    Example:
        >>> pin = Pin("doc:42", 7, "0" * 32)
        >>> Pin.decode(pin.encode()) == pin
        True
    """

    scope: str
    epoch: int
    lineage: str

    def __post_init__(self) -> None:
        _check(self.scope, self.epoch, self.lineage)

    def encode(self) -> str:
        """The pin as text, for an ETag, a form field or a cache."""
        return f"{self.epoch}.{self.lineage}.{self.scope}"

    @classmethod
    def decode(cls, text: str) -> Pin:
        """
        The pin that `encode` wrote.

        Raises:
            PinError: it did not.
        """
        epoch, lineage, scope = _parts(text, 3)
        return cls(scope, _number(epoch, text), lineage)


@dataclass(frozen=True, slots=True)
class CommitToken:
    """
    Names one commit, for `resolve`. Keep its text where a restarted program finds it, if it has to know.

    Attributes:
        scope: whose it is.
        epoch: the value that the commit gives to the counter.
        lineage: as in `Pin`.
        nonce: random; it tells our commit from another one to the same epoch.
    """

    scope: str
    epoch: int
    lineage: str
    nonce: str

    def __post_init__(self) -> None:
        _check(self.scope, self.epoch, self.lineage)
        if not _RANDOM.fullmatch(self.nonce):
            raise PinError(f"a nonce is 32 hexadecimal digits, not {self.nonce[:40]!r}")

    def encode(self) -> str:
        """The token as text."""
        return f"{self.epoch}.{self.lineage}.{self.nonce}.{self.scope}"

    @classmethod
    def decode(cls, text: str) -> CommitToken:
        """
        The token that `encode` wrote.

        Raises:
            PinError: it did not.
        """
        epoch, lineage, nonce, scope = _parts(text, 4)
        return cls(scope, _number(epoch, text), lineage, nonce)


def new_random() -> str:
    """A nonce or a lineage: 128 random bits."""
    return secrets.token_hex(16)


def check_scope(scope: object) -> None:
    """
    Refuse what two databases would not read alike.

    Raises:
        PinError: MySQL takes 'a' and 'a ' for one, PostgreSQL keeps no NUL, and nobody can read control characters.
    """
    if not isinstance(scope, str) or not 0 < len(scope) <= _MAX_SCOPE:
        raise PinError(f"a scope's name is 1 to {_MAX_SCOPE} characters, not {scope!r:.60}")
    # Unassigned, private and half characters are not printable either.
    if not scope.isprintable() or scope != scope.strip():
        raise PinError(f"a scope's name is printable, without space around it, not {scope!r:.60}")


def check_pin(pin: Pin) -> Pin:
    """*pin*, if it is one; whoever passes a number has not understood what it is for."""
    checked: object = pin
    if not isinstance(checked, Pin):
        raise TypeError(f"a pin comes from read(), create(), claim() or a commit, not {type(checked).__name__}")
    return pin


def check_name(name: object, what: str) -> None:
    """Raise `ValueError` unless *name* may stand in a statement as the name of a table, with or without its schema."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"{what} must be a name of letters, digits and '_', at most 40, or schema.name, not {name!r:.60}"
        )


def _check(scope: object, epoch: object, lineage: object) -> None:
    check_scope(scope)
    # bool is an int to Python. The last value is no pin: nothing could follow it.
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < MAX_EPOCH:
        raise PinError(f"an epoch is a whole number from 0 to below 2**63 - 1, not {epoch!r:.60}")
    if not isinstance(lineage, str) or not _RANDOM.fullmatch(lineage):
        raise PinError(f"a lineage is 32 hexadecimal digits, not {lineage!r:.60}")


def _parts(text: object, count: int) -> list[str]:
    parts = text.split(".", count - 1) if isinstance(text, str) else []
    if len(parts) != count:
        raise PinError(f"this text is no pin or token: {text!r:.60}", hint="load again")
    return parts


def _number(digits: str, text: str) -> int:
    # Not int() alone, which also takes spaces, signs and the digits of other scripts.
    if not re.fullmatch(r"[0-9]{1,19}", digits):
        raise PinError(f"this text is no pin or token: {text!r:.60}", hint="load again")
    return int(digits)
