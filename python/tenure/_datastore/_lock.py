"""
The checkout's lock: whoever changes files there, a writer or a catch-up, holds it meanwhile.

The kernel drops it with the process. It excludes processes of this machine only; for the others there is the judgement, and so it
is where the file system has no locks at all.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tenure._clock import Clock
from tenure._descriptors import CAREFULLY
from tenure._store._failures import told
from tenure._store._kernel import close, try_lock, unlock

_POLL_S = 0.02
# NFS without a lock service, and file systems without such locks. Source: fcntl(2).
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


class CheckoutLock:
    """The lock on one checkout, which must not be taken twice: a second one in the same process is refused like any other."""

    def __init__(self, own: Path) -> None:
        self._path = own / "lock"
        self._fd: int | None = None

    def take(self, clock: Clock, timeout: float) -> bool:
        """Take it, waiting up to *timeout* seconds; False if somebody else has it. Raises `StoreError` if it cannot be made."""
        deadline = clock.awake() + timeout
        with told(str(self._path), "lock the checkout"):
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | CAREFULLY, 0o600)
            try:
                while not _taken(fd):
                    left = deadline - clock.awake()
                    if left <= 0:
                        return False
                    clock.sleep(min(_POLL_S, left))
                self._fd, fd = fd, -1
            finally:
                if fd >= 0:
                    close(fd)
        return True

    def release(self) -> None:
        """Give it back. A second release does nothing."""
        fd, self._fd = self._fd, None
        if fd is not None:
            unlock(fd)
            close(fd)


def _taken(fd: int) -> bool:
    try:
        return try_lock(fd)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return True
