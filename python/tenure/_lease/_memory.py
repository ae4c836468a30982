"""
What this host remembers of silent holders, so that a command that runs for a moment can take over too.

One small file per store in a directory of the user's own: `TENURE_CACHE`, else `$XDG_RUNTIME_DIR/tenure`, else
`$XDG_CACHE_HOME/tenure`, else `~/.cache/tenure`; an empty `TENURE_CACHE` remembers nothing. Times on the awake clock mean
something only on one boot and in one time namespace, so both are part of the record. A forged file can make its own user
impatient and nobody lose a commit: the fence does not read it.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from tenure._identity import ProcessIdentity
from tenure._lease import _log
from tenure._lease._silence import Watched

_SCHEMA = 1
_MAX_BYTES = 2048


class Memory:
    """The memory of one store's lease."""

    def __init__(self, url: str) -> None:
        name = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        directory = _directory()
        self._path = None if directory is None else directory / name

    def recall(self) -> Watched | None:
        """What was remembered on this boot and in this time namespace; None for whatever is not that."""
        if self._path is None:
            return None
        try:
            with self._path.open("rb") as file:
                fields = json.loads(file.read(_MAX_BYTES))
            if fields["v"] == _SCHEMA and fields["where"] == _where():
                return Watched(list(fields["seen"]), float(fields["seconds"]), float(fields["looked_at"]))
        except (OSError, ValueError, TypeError, KeyError):
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
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                json.dump(fields, file)
            fresh.replace(self._path)
        except OSError as error:
            _log.debug("what was watched could not be remembered: %s", error)


def _directory() -> Path | None:
    chosen = os.environ.get("TENURE_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    for variable in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME"):
        base = os.environ.get(variable, "")
        if base.startswith("/"):
            return Path(base, "tenure")
    try:
        return Path.home() / ".cache" / "tenure"
    except RuntimeError:
        return None


def _where() -> list[str | int | None]:
    """The boot and the time namespace that times are told in."""
    try:
        namespace: int | None = os.stat("/proc/self/ns/time").st_ino
    except OSError:
        namespace = None
    return [ProcessIdentity.current().boot, namespace]
