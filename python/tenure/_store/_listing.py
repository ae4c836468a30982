"""What is in a file store: its keys in order, and the temporary files that killed writers left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tenure._store import _at
from tenure._store._at import Directory
from tenure._store._failures import again_if_stale, told
from tenure._store._protocol import check_key, check_prefix
from tenure._store._publish import is_temporary, sweep
from tenure._store._tree import Tree

# What one create cleans up at most, so that it stays about as fast as without.
_SWEPT_AT_ONCE = 32


class Swept(NamedTuple):
    """What a sweep removed, and the temporary files it left, because their makers live or nobody can tell."""

    removed: tuple[str, ...]
    kept: tuple[str, ...]


class Listing:
    """Looks through the directories of a tree. Listing writes nothing; sweeping is asked for, or comes with a create."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        # By directory. The next create there removes those whose makers are gone: the listing was at hand, so it is free.
        self._met: dict[str, list[str]] = {}

    def keys(self, prefix: str, after: str) -> Iterator[str]:
        """The keys below *prefix*, sorted, strictly after *after*. No descriptor is held across a yield."""
        with told(self._tree.path_of(prefix.rstrip("/")), "list records"):
            names, leftovers = again_if_stale(lambda: self._scan(prefix))
        self._met[prefix] = leftovers
        # A directory sorts as "name/", which is what its keys go on with: "a.b" < "a/b" < "a0", since "." < "/" < "0".
        # Only what may come after *after* is sorted: a log is followed from its end.
        for key in sorted(prefix + name for name in names if prefix + name > after or after.startswith(prefix + name)):
            if key.endswith("/"):
                if _is(check_prefix, key):
                    yield from self.keys(key, after)
            elif key > after and _is(check_key, key):
                yield key

    def sweep_what_was_met(self, directory: Directory, segments: Sequence[str]) -> None:
        """Sweep the leftovers that the last listing of the directory at *segments* saw."""
        if self._met:
            leftovers = self._met.pop("".join(segment + "/" for segment in segments), None)
            if leftovers:
                sweep(directory, leftovers[:_SWEPT_AT_ONCE])

    def sweep(self) -> Swept:
        """Sweep every directory."""
        removed: list[str] = []
        kept: list[str] = []
        self._sweep_below("", removed, kept)
        return Swept(tuple(removed), tuple(kept))

    def _sweep_below(self, prefix: str, removed: list[str], kept: list[str]) -> None:
        names, leftovers = self._scan(prefix)
        with self._tree.directory(_segments(prefix)) as directory:
            gone = set() if directory is None else set(sweep(directory, leftovers))
        removed += (prefix + name for name in leftovers if name in gone)
        kept += (prefix + name for name in leftovers if name not in gone)
        for name in names:
            if name.endswith("/"):
                self._sweep_below(prefix + name, removed, kept)

    def _scan(self, prefix: str) -> tuple[list[str], list[str]]:
        """The names in a directory, directories with a "/" behind, and its temporary files."""
        names: list[str] = []
        leftovers: list[str] = []
        with self._tree.directory(_segments(prefix)) as directory:
            if directory is None:
                return names, leftovers
            for entry in _at.scan(directory):
                # Links and whatever else somebody put there are no records: passed over here, refused by name.
                if entry.name.startswith("."):
                    if is_temporary(entry.name):
                        leftovers.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    names.append(entry.name + "/")
        return names, leftovers


def _segments(prefix: str) -> list[str]:
    return prefix.split("/")[:-1]


def _is(check: Callable[[str], None], text: str) -> bool:
    try:
        check(text)
    except ValueError:
        return False
    return True
