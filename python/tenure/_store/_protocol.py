"""
The seam: five operations, and nothing above this room knows which store is behind them.

Why write-once numbered keys and not one mutable record: after a lost reply the outcome of a write-once key stays
decidable (read it: my bytes, or somebody else's); one mutable record can have been overwritten by a successor before
we look again. And of all conditionals, create-if-absent is the only one that every store has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, cast, runtime_checkable

# Lower case only, because some file systems fold case; no dot in front, because stores keep their own temporary
# files under such names. Every segment starts with a letter or digit, so "." and ".." cannot be spelled.
_KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}(?:/[a-z0-9][a-z0-9._-]{0,99}){0,7}")
_PREFIX = re.compile(r"(?:[a-z0-9][a-z0-9._-]{0,99}/){0,7}")


@dataclass(frozen=True, slots=True)
class Stored:
    """What a key holds, and the version a later `replace` must name."""

    data: bytes
    version: str


@dataclass(frozen=True, slots=True)
class Created:
    """
    The outcome of a `create`: whether *we* won, and the bytes that the key holds now, ours or the winner's.

    `version` is what a `replace` must name, where the store knows it without being asked again.
    """

    won: bool
    data: bytes
    version: str | None = None


class Store(Protocol):
    """
    Where the records live. Keys are relative, lower case, `/`-separated; see `check_key`.

    Every operation may raise `StoreError` (the store failed), `StoreUnavailableError` (it failed for now) or
    `StoreCannotLockError` (it cannot keep these promises). A key that is malformed raises `ValueError`.
    """

    @property
    def url(self) -> str:
        """The URL that `open_store` would open this very store by, but for a password: it is shown to people."""

    def create(self, key: str, data: bytes) -> Created:
        """
        Write *data* under *key* unless the key exists.

        Exactly one caller wins while the key exists. The content is complete when it becomes visible and durable when
        this returns. A loser gets the winner's bytes, made durable before they are returned: visible is not yet
        durable, since a name can vanish at a power cut until its directory is synced.

        An error leaves one of two states, nothing or all of *data*; the caller decides by reading the key.
        """

    def read(self, key: str, *, durable: bool = False) -> Stored | None:
        """What *key* holds, or None. With *durable*, what was found is synced before it is returned."""

    def replace(self, key: str, data: bytes, version: str) -> str | None:
        """
        Compare-and-swap: replace the content of *key* if it still has *version*.

        Returns the new version, or None when the key is absent or has another version. For heartbeats only: after an
        unclear error nobody can tell whether it was applied. Callers put a counter into *data*, because a version may
        be derived from the content.
        """

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        """
        The keys that start with *prefix* (empty, or a path that ends with "/"), sorted, strictly after *after*.

        Lazy, so that a caller may stop early. A caller that knows of a key that must be there treats its absence as a
        failed list, not as an empty one.
        """

    def delete(self, key: str) -> None:
        """Remove *key*; a key that is already gone is no error. For garbage collection below a recorded floor only."""


@runtime_checkable
class LocalDirectory(Protocol):
    """
    An optional capability: the store is a directory that this machine's kernel manages.

    It carries the lifeline and the heartbeat in place. Asked for with `as_directory`, never assumed.
    """

    @property
    def root(self) -> str:
        """The directory itself, absolute. Below it each segment of a key is a name."""

    def path_of(self, key: str) -> Path:
        """Where *key* lives, or would live; for messages. Makes nothing."""

    def open(self, key: str, flags: int) -> int:
        """
        The file of *key* as a descriptor, opened with *flags* (`os.O_…`) and without following a link below the root.

        With `os.O_CREAT` the directories above it are made too. Nothing is synced: what lies here is worth nothing after
        a power cut.
        """

    def unlink(self, key: str) -> None:
        """Remove what `open` made, if it is there. Nothing is synced."""


class Streams(Protocol):
    """
    An optional capability: content of any size, which never is in memory as a whole. Asked for with `as_streams`.

    Like records, it is write-once, complete when visible and durable when `put_stream` returns.
    """

    def put_stream(self, key: str, source: BinaryIO) -> bool:
        """
        Write all that *source* gives under *key* unless the key exists. Returns whether *we* did.

        Nothing becomes visible if *source* raises. Raises `StoreError` as `create` does.
        """

    def get_stream(self, key: str) -> BinaryIO | None:
        """What *key* holds, to read from its beginning and to close; None if there is none."""


def within(store: Store, seconds: float) -> Store:
    """*store*, each of whose operations ends within *seconds*, where it has a bound that can be moved; else as it is."""
    bounded = getattr(store, "within", None)
    return store if bounded is None else cast("Store", bounded(seconds))


def as_streams(store: Store) -> Streams | None:
    """*store* as one that takes content of any size, or None."""
    return cast("Streams", store) if hasattr(store, "put_stream") else None


def as_directory(store: Store) -> LocalDirectory | None:
    """*store* as the directory that it is, or None."""
    # By one name that no other store has: isinstance with a protocol takes longer than opening a file before Python 3.12.
    return cast("LocalDirectory", store) if hasattr(store, "path_of") else None


def check_key(key: str) -> None:
    """Raise `ValueError` unless *key* is well formed."""
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"not a store key: {key!r}. Keys are lower-case segments of letters, digits, '.', '_' and '-', joined by '/'"
        )


def check_prefix(prefix: str) -> None:
    """Raise `ValueError` unless *prefix* is empty or a well-formed path that ends with '/'."""
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"not a store prefix: {prefix!r}. A prefix is empty or ends with '/'")
