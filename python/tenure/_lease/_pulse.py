"""
The pulse: renews a hold every third of its ttl, and notices when it is lost.

A daemon thread, so that it ends with the interpreter; the lifeline says what its silence cannot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tenure._lease import _log
from tenure.errors import Error, FencedError


class Pulse:
    """Calls *renew* in time, and more often after it has failed."""

    def __init__(self, renew: Callable[[], None], interval: float, *, name: str) -> None:
        self._renew = renew
        self._interval = interval
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for a renewal that is under way, so that nothing is written after this returns."""
        self._stopped.set()
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = self._interval
        while not self._stopped.wait(pause):
            try:
                self._renew()
            except FencedError:
                # The hold knows; its owner hears of it by its callback and its next call, not from a thread.
                return
            except Error as error:
                # May pass: the hold stays valid until its ttl is over, and ends as "expired", not as "lost".
                _log.debug("a renewal failed: %s", error)
                pause = self._interval / 4
            else:
                pause = self._interval
