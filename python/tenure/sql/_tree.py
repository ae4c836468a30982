"""A tree of files as a value: paths, and what may be done with them. Knows no database."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

# Together with a scope's name, what MySQL can still index.
LONGEST_PATH = 500


class Entry(NamedTuple):
    """A file by the digest of its content and its size, or a directory, which has neither."""

    digest: str | None = None
    size: int = 0


DIRECTORY = Entry()
Tree = dict[str, Entry]
"""Every path but the root, which is empty, is there, and always a directory."""


def check_path(path: str) -> str:
    """*path*, if it is one: relative, joined by "/", without "." and ".."; else `ValueError`."""
    parts = path.split("/")
    # To MySQL a space at the end is none, and would make two files one.
    well_formed = 0 < len(path) <= LONGEST_PATH and "\0" not in path and not path.endswith(" ")
    if not well_formed or any(part in ("", ".", "..") for part in parts):
        raise ValueError(
            f"not a path in a tree: {path!r:.80}. It is relative, without '..', ends in no space, "
            f"and has up to {LONGEST_PATH} characters"
        )
    return path


def parent(path: str) -> str:
    """The directory that *path* is in; empty for the root."""
    return path.rpartition("/")[0]


def below(tree: Tree, path: str) -> list[str]:
    """Whatever is in the directory *path*, at any depth."""
    return [other for other in tree if other.startswith(path + "/")]


def names(tree: Tree, path: str) -> list[str]:
    """What is in the directory *path* itself, sorted; directories end with "/"."""
    start = path + "/" if path else ""
    inside = (other for other in tree if other.startswith(start) and "/" not in other[len(start) :])
    return sorted(other[len(start) :] + ("/" if tree[other] == DIRECTORY else "") for other in inside)


def the_file(tree: Tree, path: str) -> Entry:
    """The file at *path*."""
    entry = tree.get(path)
    if entry is None:
        raise _error(FileNotFoundError, errno.ENOENT, path)
    if entry == DIRECTORY:
        raise _error(IsADirectoryError, errno.EISDIR, path)
    return entry


def must_be_directory(tree: Tree, path: str) -> None:
    """Raise unless a directory is at *path*, or it is the root."""
    if not path:
        return
    if path not in tree:
        raise _error(FileNotFoundError, errno.ENOENT, path)
    if tree[path] != DIRECTORY:
        raise _error(NotADirectoryError, errno.ENOTDIR, path)


def put(tree: Tree, path: str, entry: Entry) -> None:
    """A file at *path*, new or instead of the one there."""
    must_be_directory(tree, parent(path))
    if tree.get(path) == DIRECTORY:
        raise _error(IsADirectoryError, errno.EISDIR, path)
    tree[path] = entry


def make_directory(tree: Tree, path: str, *, parents: bool, exist_ok: bool) -> None:
    """As `pathlib.Path.mkdir`."""
    if tree.get(path) == DIRECTORY and exist_ok:
        return
    if path in tree:
        raise _error(FileExistsError, errno.EEXIST, path)
    if parents and parent(path):
        make_directory(tree, parent(path), parents=True, exist_ok=True)
    must_be_directory(tree, parent(path))
    tree[path] = DIRECTORY


def move(tree: Tree, source: str, target: str) -> None:
    """As `os.rename`: a file replaces a file, and nothing replaces a directory."""
    if source not in tree:
        raise _error(FileNotFoundError, errno.ENOENT, source)
    if source == target:
        return
    must_be_directory(tree, parent(target))
    if target.startswith(source + "/"):
        raise _error(OSError, errno.EINVAL, target)
    if target in tree and DIRECTORY in (tree[source], tree[target]):
        raise _error(FileExistsError, errno.EEXIST, target)
    for path in [source, *below(tree, source)]:
        tree[target + path[len(source) :]] = tree.pop(path)


def remove(tree: Tree, path: str, *, recursive: bool) -> None:
    """A file, an empty directory, or with *recursive* whatever is there."""
    if path not in tree:
        raise _error(FileNotFoundError, errno.ENOENT, path)
    inside = below(tree, path)
    if inside and not recursive:
        raise _error(OSError, errno.ENOTEMPTY, path)
    for gone in [path, *inside]:
        del tree[gone]


def _error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number).lower(), path)
