"""
Waiting for a lease, within a time.

Between two looks a waiter sleeps. It is woken by the end of the holder's process, and by whatever changes in a store that
is a directory: a release, a claim, a lifeline that was closed, also by a death; elsewhere by a lifeline on this host that is
closed. All are hints; a look decides, and comes in any case after a while.
"""

from __future__ import annotations

import _thread
import random
from pathlib import Path

from tenure._clock import Clock
from tenure._core import Changes
from tenure._identity import Watch
from tenure._lease import _keys
from tenure._lease._lifelines import Lifelines
from tenure._lease._sight import LeaseStatus
from tenure.errors import IdentityError
from tenure.stores import Store, as_directory

# How long a waiter sleeps at most: where it is woken, where it is woken by a death alone, and where each look is a request.
_WOKEN_S = 1.0
_HALF_WOKEN_S = 0.05
_REMOTE_S = 1.0


class Waiting:
    """The waiting of one acquire, and its time."""

    def __init__(self, store: Store, clock: Clock, timeout: float) -> None:
        self._directory = as_directory(store)
        self._lifelines = Lifelines(store)
        self._clock = clock
        self._deadline = clock.awake() + timeout
        self._watch: Watch | None = None
        self._fence = 0
        self._changes: Changes | None = None
        self._listened = False
        self._looked = False

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._let_go()
        changes, self._changes = self._changes, None
        if changes is not None and kind is None:
            _close_aside(changes)
        elif changes is not None:
            # Now and not with this object, which the traceback of an error may keep for long.
            changes.close()

    def is_over(self) -> bool:
        """Whether there is no time left."""
        return self._clock.awake() >= self._deadline

    def again(self) -> bool:
        """Whether this was asked before: the first look sees everything."""
        again, self._looked = self._looked, True
        return again

    def forget(self) -> None:
        """Forget what was heard: the look that follows sees it."""
        if self._changes is not None:
            self._changes.drain()

    def _begin_to_listen(self, seen: LeaseStatus | None) -> bool:
        """Hear of changes from now on. Only once it is clear that there is something to wait for: see `_close_aside`."""
        if self._listened:
            return False
        self._listened = True
        paths = self._worth_hearing_of(seen)
        try:
            self._changes = Changes(paths) if paths else None
        except OSError:
            # Nothing of the kind here, or too many of them: look more often.
            pass
        return self._changes is not None

    def _worth_hearing_of(self, seen: LeaseStatus | None) -> list[Path]:
        if self._directory is not None:
            keys = _keys.claim(1), _keys.beat(1), _keys.lifeline("0")
            return [path for path in (self._directory.path_of(key).parent for key in keys) if path.is_dir()]
        # That very file and not the directory it is in, where other holds come and go: each look is a request here.
        return [] if seen is None or seen.nonce is None else self._lifelines.files(seen.nonce)

    def nap(self, seen: LeaseStatus | None) -> float:
        """Seconds until the next look is due, after one that saw *seen*."""
        self._turn_to(seen)
        if self._begin_to_listen(seen):
            # What changed before is seen by one more look.
            return 0.0
        woken = _WOKEN_S if self._changes is not None else _HALF_WOKEN_S
        longest = _REMOTE_S if self._directory is None else woken
        if seen is not None and seen.ttl is not None and seen.skew is not None:
            # Short terms are watched in shorter steps, or the steps would be what one waits for.
            longest = min(longest, max(_HALF_WOKEN_S, (seen.ttl + seen.skew) / 10))
        if self._directory is None:
            # Waiters that began together must not ask together.
            longest *= random.uniform(0.75, 1.25)
        return max(0.0, min(longest, self._deadline - self._clock.awake()))

    def wakers(self, seen: LeaseStatus | None) -> list[int]:
        """Descriptors that turn readable when it may be worth to look at what was *seen* again."""
        self._turn_to(seen)
        found = [] if self._changes is None else [self._changes.fileno()]
        if self._watch is not None and self._watch.alive():
            try:
                found.append(self._watch.fileno())
            except IdentityError:
                # No pidfds: a death is seen by looking.
                pass
        return found

    def _turn_to(self, seen: LeaseStatus | None) -> None:
        """Watch the holder that was *seen*, and nobody else any more."""
        if seen is None or seen.fence == self._fence:
            return
        self._let_go()
        self._fence = seen.fence
        self._watch = _watch(seen)
        if self._directory is None:
            # What was listened to was the lifeline of another hold.
            self._listened = False
            changes, self._changes = self._changes, None
            if changes is not None:
                _close_aside(changes)

    def a_while(self, seen: LeaseStatus | None) -> None:
        """Sleep until it is time for the next look."""
        self._clock.sleep(self.nap(seen), unless=self.wakers(seen))

    def _let_go(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


def _close_aside(changes: Changes) -> None:
    """
    Close in a thread, since whoever has won the lease need not wait for it.

    The kernel closes an inotify instance after a grace period of its own, measured as 5 to 20 ms. Source:
    fsnotify_wait_marks_destroyed in Linux's fs/notify.
    """
    try:
        # Not a threading.Thread, whose start waits until the thread runs.
        _thread.start_new_thread(changes.close, ())
    except RuntimeError:
        # No thread to be had.
        changes.close()


def _watch(seen: LeaseStatus) -> Watch | None:
    try:
        return None if seen.holder is None else Watch(seen.holder)
    except IdentityError:
        return None
