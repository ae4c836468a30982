"""
Where the lifelines of a store's holds lie: in the store where it is a directory, else on this host, named by the nonce.

A bucket or a database has no file to lock, but most of its contenders share a host, and there the kernel still tells who
carries a hold. Only the nonce, which is hex by then, leads to a file, and only the place that the claim recorded makes
it a proof: a record that somebody forged leads nowhere. A file that is missing, because the holder is on another host, is
another user or has another home, proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tenure._lease import _keys, _log
from tenure._lease._host import make_private, own_directories
from tenure._lifeline import Lifeline, Place, asked
from tenure.errors import StoreError
from tenure.stores import LocalDirectory, Store, as_directory, open_store


class Lifelines:
    """The lifelines of one store's holds."""

    def __init__(self, store: Store) -> None:
        self._directory = as_directory(store)

    def create(self, nonce: str) -> Lifeline | None:
        """
        Make and lock the lifeline of a claim to come; None where a lock would prove nothing.

        Raises:
            StoreError: the store is a directory, in which it cannot be made. Elsewhere there is no lifeline then.
        """
        key = _keys.lifeline(nonce)
        if self._directory is not None:
            return Lifeline.create(self._directory, key)
        for root in own_directories():
            try:
                make_private(root)
                lifeline = next((Lifeline.create(directory, key) for directory in _opened(root)), None)
            except OSError as error:
                # A home that is read-only or full. Identity and time do the work.
                _log.debug("no lifeline in %s: %s", root, error)
                continue
            if lifeline is not None:
                return lifeline
        return None

    def asked(self, nonce: str, place: Place | None) -> bool | None:
        """Whether anybody carries the hold of the claim with *nonce*: True, False, or None if nothing can be believed."""
        if place is None:
            return None
        # In each of them: a holder that cron started may have another one for its best than we have.
        answers = (asked(directory, _keys.lifeline(nonce), place) for directory in self._places())
        return next((answer for answer in answers if answer is not None), None)

    def files(self, nonce: str) -> list[Path]:
        """Those files that may be the lifeline of the claim with *nonce*, to hear of changes to them."""
        paths = (directory.path_of(_keys.lifeline(nonce)) for directory in self._places())
        return [path for path in paths if path.is_file()]

    def _places(self) -> Iterator[LocalDirectory]:
        if self._directory is not None:
            yield self._directory
            return
        for root in own_directories():
            yield from _opened(root)


def _opened(root: Path) -> Iterator[LocalDirectory]:
    """*root* as a directory to keep files in; nothing where a platform has no such thing."""
    try:
        directory = as_directory(open_store(root))
    except StoreError:
        return
    if directory is not None:
        yield directory
