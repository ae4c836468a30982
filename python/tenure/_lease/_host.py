"""
Where a lease keeps what concerns this host alone: what was watched of silent holders, and lifelines that have no directory.

`TENURE_CACHE`, else `$XDG_RUNTIME_DIR/tenure`, `$XDG_CACHE_HOME/tenure` (else `~/.cache/tenure`), in this order; an empty
`TENURE_CACHE` keeps nothing. All are the user's own: nobody else is told what is kept there, or can change it.
"""

from __future__ import annotations

import os
from pathlib import Path


def own_directories() -> list[Path]:
    """The directories for this user's state on this host, the best one first. Any of them may be missing."""
    chosen = os.environ.get("TENURE_CACHE")
    if chosen is not None:
        return [Path(chosen)] if chosen else []
    found = [base for base in map(_from_environment, ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME")) if base is not None]
    if _from_environment("XDG_CACHE_HOME") is None:
        try:
            found.append(Path.home() / ".cache")
        except RuntimeError:
            # A user without a home, as in many containers.
            pass
    return [base / "tenure" for base in found]


def _from_environment(variable: str) -> Path | None:
    # A relative path is to be ignored. Source: XDG Base Directory Specification, "Basics".
    base = os.environ.get(variable, "")
    return Path(base) if base.startswith("/") else None


def make_private(directory: Path) -> None:
    """
    Make *directory* for this user alone, if it is not there.

    Raises:
        OSError: it cannot be made.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
