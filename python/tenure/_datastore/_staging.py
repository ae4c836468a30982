"""What a writer has changed in its checkout and not yet committed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tenure._datastore._catalog import Catalog
from tenure._datastore._names import folded, is_normal, parents
from tenure._datastore._worktree import Digest, Stamp
from tenure._descriptors import CAREFULLY
from tenure._store._failures import told
from tenure._store._kernel import close
from tenure._store._tree import write_all


@dataclass(frozen=True, slots=True)
class Staged:
    """A file as it was put: what it contained, and what it looked like then. `data` is the content, if it is small."""

    digest: Digest
    stamp: Stamp
    data: bytes | None


class Staging:
    """The staged files of one writer, by name; None where the file was removed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.files: dict[str, Staged | None] = {}
        # Names as some file systems fold them, and the directories that these names need.
        self._folded: dict[str, str] = {}
        self._directories: dict[str, str] = {}

    def add(self, name: str, staged: Staged | None) -> None:
        """Stage *name*."""
        self.files[name] = staged
        if staged is None:
            self._folded.pop(folded(name), None)
            return
        self._folded[folded(name)] = name
        for above in parents(name):
            self._directories.setdefault(folded(above), above)

    def clear(self) -> None:
        """Forget all."""
        self.files.clear()
        self._folded.clear()
        self._directories.clear()

    def check(self, name: str) -> None:
        """
        Refuse a name that cannot stand beside another one on every file system.

        Raises:
            ValueError: says beside which.
        """
        other = self._clash_with_staged(name)
        if other is None:
            committed = self._catalog.clash(name)
            other = None if committed is not None and self.files.get(committed, 0) is None else committed
        if other is not None:
            raise ValueError(
                f"the datastore has {other!r}, and {name!r} cannot stand beside it on every file system: names differ by more "
                "than case, and none is both a file and a directory. Delete the other one first"
            )

    def _clash_with_staged(self, name: str) -> str | None:
        key = folded(name)
        if self._folded.get(key, name) != name:
            return self._folded[key]
        if key in self._directories:
            return self._directories[key]
        for above in parents(name):
            fold = folded(above)
            if fold in self._folded:
                return self._folded[fold]
            if self._directories.get(fold, above) != above:
                return self._directories[fold]
        return None


class Journal:
    """
    The names that a writer has touched, for whoever has to clean up after it.

    Not synced: after the death of a process it is there, and after a power cut what it would name is as likely gone as itself. What
    it cannot name then is found all the same, unless it was a new file; and such a one is left where it is.
    """

    def __init__(self, own: Path, fence: int) -> None:
        self._path = own / f"underway.{fence}"
        self._fd: int | None = None

    def note(self, name: str) -> None:
        """Add a name, before the file is touched."""
        with told(str(self._path), "note what is under way"):
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | CAREFULLY, 0o600)
            write_all(self._fd, json.dumps(name).encode() + b"\n")

    def names(self) -> Iterator[str]:
        """The names, each once or more; what is torn or no name is passed over."""
        try:
            lines = self._path.open("rb")
        except FileNotFoundError:
            return
        with lines:
            for line in lines:
                with suppress(ValueError, RecursionError):
                    name = json.loads(line)
                    if is_normal(name):
                        yield name

    def remove(self) -> None:
        """Nothing is under way any more."""
        self.close()
        with told(str(self._path), "remove the list of what was under way"), suppress(FileNotFoundError):
            self._path.unlink()

    def close(self) -> None:
        """Close the file; it stays."""
        fd, self._fd = self._fd, None
        if fd is not None:
            close(fd)
