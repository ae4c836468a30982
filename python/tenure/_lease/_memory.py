"""
What this host remembers of silent holders, so that a command that runs for a moment can take over too.

One small file per store in a directory of the user's own (see `_host`). Times on the awake clock mean something only on
one boot and in one time namespace, so both are part of the record. A forged file can make its own user impatient and
nobody lose a commit: the fence does not read it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from typing import Any

from tenure._descriptors import open_file
from tenure._identity import ProcessIdentity
from tenure._lease import _log
from tenure._lease._host import make_private, own_directories
from tenure._lease._silence import Watched

_SCHEMA = 1
_MAX_BYTES = 2048


class Memory:
    """The memory of one store's lease."""

    def __init__(self, url: str) -> None:
        name = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._path = next((directory / name for directory in own_directories()), None)

    def recall(self) -> Watched | None:
        """What was remembered on this boot and in this time namespace; None for whatever is not that."""
        if self._path is None:
            return None
        try:
            fd = open_file(self._path, os.O_RDONLY)
            try:
                fields = json.loads(os.read(fd, _MAX_BYTES))
            finally:
                os.close(fd)
            if fields["v"] == _SCHEMA and fields["where"] == _where():
                return Watched(list(fields["seen"]), _seconds(fields["seconds"]), _seconds(fields["looked_at"]))
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            pass
        return None

    def remember(self, watched: Watched) -> None:
        """Keep it. A memory that cannot be written costs a later command its patience, and nothing else."""
        if self._path is None:
            return
        fields = {
            "v": _SCHEMA,
            "where": _where(),
            "seen": watched.seen,
            "seconds": watched.seconds,
            "looked_at": watched.looked_at,
        }
        # Not named by the pid: in a container that is the same each time, and one left half-written would stay for ever.
        fresh = self._path.with_name(f".{self._path.name}.{os.urandom(8).hex()}")
        try:
            make_private(self._path.parent)
            fd = open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                with os.fdopen(fd, "w", encoding="utf-8") as file:
                    json.dump(fields, file)
                fresh.replace(self._path)
            except BaseException:
                fresh.unlink(missing_ok=True)
                raise
        except OSError as error:
            _log.debug("what was watched could not be remembered: %s", error)


def _seconds(value: Any) -> float:
    """A number of seconds. Neither endless nor less than none: either would keep its reader waiting for ever, or not at all."""
    seconds = float(value)
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"no number of seconds: {seconds}")
    return seconds


def _where() -> list[str | int | None]:
    """The boot and the time namespace that times are told in."""
    try:
        namespace: int | None = os.stat("/proc/self/ns/time").st_ino
    except OSError:
        namespace = None
    return [ProcessIdentity.current().boot, namespace]
