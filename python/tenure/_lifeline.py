"""
Room 2: the lifeline, a lock that the kernel drops when the last process that carries the hold ends.

It speaks of the *hold*, where an identity speaks of the *process*. It sees what an identity cannot: a process that lives
on without its hold (it called exec, its acquire was cut off half-way), and a killed `tenure run` whose command still
writes, because the command inherited the descriptor. It works across pid namespaces, and nobody is signalled.

It is believed only where this machine's kernel alone keeps the lock: boot id, kind of file system, device and inode must
all equal what the claim recorded. A missing file proves nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

from tenure._core import filesystem_type, lifeline_held, lifeline_lock
from tenure._descriptors import handle_of, open_file
from tenure._identity import ProcessIdentity

_MAKE_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL


class Directory(Protocol):
    """What a lifeline asks of the place it lies in; a store that is a local directory gives it."""

    @property
    def root(self) -> str:
        """Where it lies. Below it each segment of a key is a name."""

    def open(self, key: str, flags: int) -> int:
        """The file of *key* as a descriptor, without following a link."""

    def unlink(self, key: str) -> None:
        """Remove the file of *key*, if it is there."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a lifeline lies, as its claim records it: enough to know the very file again, and its kernel."""

    boot: str
    filesystem: str
    device: int
    inode: int

    def to_record(self) -> dict[str, str]:
        return {"boot": self.boot, "fs": self.filesystem, "dev": str(self.device), "ino": str(self.inode)}

    @staticmethod
    def from_record(record: object) -> Place | None:
        """None for whatever is not one: a lifeline that cannot be believed is no lifeline."""
        if not isinstance(record, dict):
            return None
        fields: dict[str, Any] = record
        boot, filesystem, device, inode = (fields.get(name) for name in ("boot", "fs", "dev", "ino"))
        if not (isinstance(boot, str) and isinstance(filesystem, str)):
            return None
        numbers = [int(text) for text in (device, inode) if _is_number(text)]
        return Place(boot, filesystem, *numbers) if len(numbers) == 2 else None


def _is_number(text: Any) -> TypeGuard[str]:
    return isinstance(text, str) and 0 < len(text) <= 20 and text.isascii() and text.isdigit()


class Lifeline:
    """A lifeline that this process holds. Close-on-exec, and closed in a forked child."""

    def __init__(self, directory: Directory, key: str, fd: int, place: Place) -> None:
        self._directory = directory
        self._key = key
        self._fd: int | None = fd
        self._handed_out = False
        self.place = place
        _held.add(self)

    @staticmethod
    def create(directory: Directory, key: str) -> Lifeline | None:
        """
        Make and lock the file under *key*, which nobody else can know yet; None where a lock would prove nothing.

        Raises:
            StoreError: the file cannot be made.
        """
        boot = ProcessIdentity.current().boot
        if boot is None:
            return None
        # No other thread forks meanwhile: its child would carry a descriptor that nobody there knows of.
        with _forking:
            fd: int | None = None
            try:
                fd = directory.open(key, _MAKE_NEW)
                place = _locked(fd, boot)
                if place is not None:
                    return Lifeline(directory, key, fd, place)
            except BaseException:
                if fd is not None:
                    os.close(fd)
                raise
            os.close(fd)
        directory.unlink(key)
        return None

    @property
    def descriptor(self) -> int | None:
        """The descriptor, to look at; `fileno` is for who hands it on."""
        return self._fd

    def fileno(self) -> int | None:
        """The descriptor, to hand to a process that carries the hold too; None once closed."""
        self._handed_out = True
        return self._fd

    @property
    def handle(self) -> int | None:
        """What the core calls the descriptor."""
        return None if self._fd is None else handle_of(self._fd)

    def is_intact(self) -> bool:
        """Whether the descriptor is still open on our file: code that closes every descriptor exists."""
        return self._fd is not None and _same_file(self._fd, self.place)

    def close(self, *, remove: bool) -> None:
        """
        End the hold in this process, unless another process carries the lifeline on.

        With *remove* its file goes too. Without, it stays to say that the hold is over, for want of a better word: a
        missing file proves nothing.
        """
        self.forget()
        _held.discard(self)
        if not remove:
            return
        try:
            if not self._handed_out or asked(self._directory, self._key, self.place) is False:
                self._directory.unlink(self._key)
        except OSError:
            # Left behind; a free lifeline is as good as none.
            pass

    def forget(self) -> None:
        """Close our descriptor alone. A forked child must, or it would keep the parent's hold alive after its end."""
        fd, self._fd = self._fd, None
        # Not if the number is somebody else's file by now.
        if fd is not None and _same_file(fd, self.place):
            os.close(fd)


def asked(directory: Directory, key: str, place: Place | None) -> bool | None:
    """
    Whether anybody holds the lifeline under *key*: True, False, or None if nothing can be believed.

    Takes nothing and writes nothing; other askers do not show.
    """
    if place is None or place.boot != ProcessIdentity.current().boot:
        return None
    try:
        # By its path, since the very file is known by its inode: whatever a link may lead to is another one.
        fd = open_file(f"{directory.root}/{key}", os.O_RDONLY)
    except OSError:
        # Missing (a cleaner of temporary files was here), or not for us to read.
        return None
    try:
        if not _same_file(fd, place) or filesystem_type(handle_of(fd)) != place.filesystem:
            return None
        return lifeline_held(handle_of(fd))
    except OSError:
        return None
    finally:
        os.close(fd)


def filesystem_of(path: os.PathLike[str]) -> str | None:
    """The kind of file system at *path* if its locks can be believed, else None."""
    try:
        fd = open_file(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return filesystem_type(handle_of(fd))
    except OSError:
        return None
    finally:
        os.close(fd)


def _locked(fd: int, boot: str) -> Place | None:
    """Lock *fd*, and say where it lies; None where a lock would prove nothing."""
    try:
        filesystem = filesystem_type(handle_of(fd))
        if filesystem is not None and lifeline_lock(handle_of(fd)):
            status = os.fstat(fd)
            return Place(boot, filesystem, status.st_dev, status.st_ino)
    except OSError:
        # ENOLCK, EOPNOTSUPP: a file system without such locks. Identity and time do the work.
        pass
    return None


def _same_file(fd: int, place: Place) -> bool:
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (place.device, place.inode)


_held: weakref.WeakSet[Lifeline] = weakref.WeakSet()
# Held while a lifeline is made, and over each fork.
_forking = threading.RLock()


def _after_fork_in_child() -> None:
    global _forking
    # Made anew: the old one belongs to a thread that is not here.
    _forking = threading.RLock()
    for lifeline in list(_held):
        lifeline.forget()
    _held.clear()


def _before_fork() -> None:
    _forking.acquire()


def _after_fork_in_parent() -> None:
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
