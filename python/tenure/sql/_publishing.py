"""
Telling caches that a scope has moved: after a commit that is known, never before; and what a cache may conclude.

What is published is the epoch itself, not a step of a counter of the cache's own. So a cache that was emptied, restored
or reset to a small number cannot make two different states look alike.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tenure.sql._pin import MAX_EPOCH, Pin

Freshness = Literal["current", "behind", "moved", "gone", "absent", "garbage"]
"""
- `current`: what was loaded under this pin is what there is
- `behind`: the notice is older than the pin, as after a lost notice; the pin is the newer
- `moved`: load again; also when the notice is only one ahead, since that one may be somebody else's
- `gone`: destroyed, whatever number comes with it
- `absent`, `garbage`: the cache knows nothing; ask the database
"""


@dataclass(frozen=True, slots=True)
class Notice:
    """
    What is to be told of a scope: handed to the hook `publish` after each commit.

    Attributes:
        scope: whose it is.
        epoch: the counter after the commit.
        gone: whether the commit destroyed it.

    Example:
        >>> Notice("doc:42", 8, gone=False).encode()
        '8'
    """

    scope: str
    epoch: int
    gone: bool

    def encode(self) -> str:
        """What to store in the cache under the scope's name. Set it only where it is higher than what is there."""
        return f"gone:{self.epoch}" if self.gone else str(self.epoch)


def freshness(pin: Pin, published: str | bytes | None) -> Freshness:
    """
    What *published*, as read from a cache, says about data that was loaded under *pin*. A hint: only the fence decides.

    Example:
        >>> freshness(Pin("doc:42", 7, "0" * 32), "8")
        'moved'
    """
    if published is None:
        return "absent"
    text = published.decode("ascii", "replace") if isinstance(published, bytes) else published
    # Before any number is read: a tombstone must never be taken for a small one.
    if text.startswith("gone:"):
        return "gone"
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > MAX_EPOCH:
        return "garbage"
    epoch = int(text)
    return "current" if epoch == pin.epoch else "moved" if epoch > pin.epoch else "behind"


class Deferred:
    """Notices that could not be published. The newest of each scope is kept; it says all that the older ones did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notices: dict[str, Notice] = {}

    def keep(self, notice: Notice) -> None:
        with self._lock:
            known = self._notices.get(notice.scope)
            if known is None or known.epoch < notice.epoch:
                self._notices[notice.scope] = notice

    def done(self, notice: Notice) -> None:
        with self._lock:
            known = self._notices.get(notice.scope)
            if known is not None and known.epoch <= notice.epoch:
                del self._notices[notice.scope]

    def all(self) -> list[Notice]:
        with self._lock:
            return list(self._notices.values())


Publish = Callable[[Notice], object]
