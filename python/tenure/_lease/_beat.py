"""
The heartbeat: a counter that rises while the holder lives, and the word "released" at the end.

On a directory it is written in place: no temporary file, no sync. After a power cut the holder is dead anyway, so nothing
needs to be durable, and a record of one fixed length in one page is never seen in two lengths. Its time stamp counts as a
beat too, for file systems on which a full disk takes nothing but that. Elsewhere a beat is a compare-and-swap, which also
shows a clone of the holder: whoever swaps second has lost.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from typing import Literal

from tenure._lease import _keys, _log
from tenure.errors import StoreError, StoreUnavailableError
from tenure.stores import LocalDirectory, Store, as_directory

# replaced: written by whoever took over, where only the heartbeat tells the holder.
State = Literal["held", "released", "replaced"]
_LENGTH = 160
_DIGITS = 20
_READ = os.O_RDONLY
_MAKE = os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True, slots=True)
class Beat:
    """
    What a heartbeat says. Number 0, which is never written, stands for "none seen yet".

    `stamp` is the file's own time of change where there is one; it is compared with itself only, never with a clock.
    """

    number: int = 0
    released: bool = False
    stamp: int = 0

    @staticmethod
    def decode(data: bytes, nonce: str, stamp: int = 0) -> Beat:
        """
        The heartbeat of the claim with *nonce*.

        Whatever cannot be read is no beat: the claim then looks silent, which costs its holder nothing, since silence
        only counts for holders that nobody can judge.
        """
        try:
            fields = json.loads(data)
            number = fields["beat"]
            if fields["v"] == 1 and fields["nonce"] == nonce and len(number) == _DIGITS and number.isascii():
                return Beat(int(number), fields["state"] == "released", stamp)
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        return Beat(stamp=stamp)


def read_beat(store: Store, fence: int, nonce: str) -> Beat:
    """
    The last heartbeat of a claim.

    Raises:
        StoreError: the store cannot be read.
    """
    key = _keys.beat(fence)
    directory = as_directory(store)
    if directory is None:
        return Beat.decode(read_swapped(store, fence), nonce)
    try:
        fd = directory.open(key, _READ)
    except StoreError as error:
        if error.errno == errno.ENOENT:
            return Beat()
        raise
    try:
        # The stamp first: a beat between the two then shows as a change at the next look, not as none.
        stamp = os.fstat(fd).st_mtime_ns
        return Beat.decode(os.read(fd, 2 * _LENGTH), nonce, stamp)
    finally:
        os.close(fd)


def read_swapped(store: Store, fence: int) -> bytes:
    """
    The record of a heartbeat on a store that is no directory; empty if there is none.

    Raises:
        StoreError: the store cannot be read.
    """
    try:
        stored = store.read(_keys.beat(fence))
    except StoreError as error:
        if error.errno != errno.EFBIG:
            raise
        # Nothing that we have written.
        return b""
    return b"" if stored is None else stored.data


def nonce_of_released(record: bytes) -> str | None:
    """The nonce of the claim that *record*, its heartbeat, says is released; None if it does not say that."""
    try:
        nonce = json.loads(record)["nonce"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return nonce if isinstance(nonce, str) and Beat.decode(record, nonce).released else None


def make_file(store: LocalDirectory, fence: int) -> None:
    """Make the heartbeat's file, empty: no beat yet."""
    os.close(store.open(_keys.beat(fence), _MAKE))


def encode(nonce: str, number: int, state: State) -> bytes:
    """One heartbeat, always of the same length; the digits of *number* stand at `DIGITS_AT`."""
    tag = os.urandom(4).hex()
    record = f'{{"v":1,"nonce":"{nonce}","beat":"{number:0{_DIGITS}d}","state":"{state}","tag":"{tag}"}}'
    return record.ljust(_LENGTH - 1).encode() + b"\n"


DIGITS_AT = encode("0" * 32, 0, "held").index(b'"beat":"') + len('"beat":"')


# How many beats whose replies were lost may come in one after the other before it is left to the next renewal.
_LATE_ONES = 4


class SwappedBeat:
    """
    The heartbeat of a hold on a store that is no directory.

    A version of None means that there is no heartbeat of ours in the store yet. A try whose outcome is unclear is known
    again by its bytes, whenever it arrives; they hold a random tag, or two clones of one holder would take each other's
    heartbeat for their own.
    """

    def __init__(self, store: Store, fence: int, nonce: str) -> None:
        self._store = store
        self._key = _keys.beat(fence)
        self._nonce = nonce
        self._number = 0
        self._version: str | None = None
        # What was last found to be there.
        self._last = b""
        # Whatever may still arrive.
        self._unclear: list[bytes] = []

    def write(self, state: State) -> bool:
        """
        Write the next one. False: somebody else has written here, so the hold is no longer ours.

        Raises:
            StoreError: nobody can tell whether it was written.
        """
        if self._unclear and not self._settle():
            return False
        for _ in range(_LATE_ONES):
            record = encode(self._nonce, self._number + 1, state)
            self._unclear.append(record)
            if self._version is None:
                created = self._store.create(self._key, record)
                if created.won and state == "released":
                    # Nobody goes on from here, so no version is needed.
                    self._unclear = []
                    return True
                version = created.version if created.won else None
            else:
                version = self._store.replace(self._key, record, self._version)
            if version is not None:
                self._version, self._number, self._unclear = version, self._number + 1, []
                return True
            # Refused: by somebody else's heartbeat, by this very one whose reply was lost on the way, or by an earlier
            # one of ours that has arrived after all.
            if not self._settle():
                return False
            if self._last == record:
                self._unclear = []
                return True
        raise StoreUnavailableError("earlier heartbeats keep arriving late", hint="the next renewal tries again")

    def _settle(self) -> bool:
        """Take what is there for ours if it is, or if nothing has changed; False: it is somebody else's."""
        found = self._store.read(self._key)
        if found is not None and found.data in self._unclear:
            self._version, self._number, self._last = found.version, self._number + 1, found.data
            return True
        return (found.version if found else None) == self._version


def supersede(store: Store, fence: int, nonce: str) -> None:
    """
    Overwrite the heartbeat of the claim of *fence*, which the claim with *nonce* has replaced.

    Its holder, if it lives, finds that at its next renewal, and needs no list to hear of a successor. A store that fails
    leaves it to find out at its next check.
    """
    record = encode(nonce, 0, "replaced")
    for _ in range(_LATE_ONES):
        try:
            found = store.read(_keys.beat(fence))
            if found is None:
                done = store.create(_keys.beat(fence), record).won
            else:
                done = store.replace(_keys.beat(fence), record, found.version) is not None
        except StoreError as error:
            _log.debug("a replaced holder could not be told: %s", error)
            return
        if done:
            return
