"""A directory as a store: each key is a file, and file systems that keep their word are all it needs."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from tenure._store._failures import again_if_stale, kind_of, odd_file, told, unclear
from tenure._store._kernel import close, patience, sync_directory, try_lock, unlock
from tenure._store._protocol import Created, Stored, check_key, check_prefix
from tenure._store._publish import WAYS, Way, is_temporary, publish, sweep, temporary_file
from tenure._store._records import check_data, version_of
from tenure._store._tree import SAFELY, Tree, exact_mode, remove
from tenure.errors import StoreCannotLockError, StoreUnavailableError

Result = TypeVar("Result")

# One for the whole store: replacing is rare, short, and below the root there is no other name that no key can have.
_LOCK = ".lock"
_LOCK_PATIENCE_S = 10.0
# How often a create starts over when the record it lost to is gone before it could be read.
_ATTEMPTS = 10
# What one create cleans up at most, so that it stays about as fast as without.
_SWEPT_AT_ONCE = 32


class Swept(NamedTuple):
    """What a sweep removed, and the temporary files it left, because their makers live or nobody can tell."""

    removed: tuple[str, ...]
    kept: tuple[str, ...]


class FileStore:
    """
    A store in the directory *root*, made at the first write; its parent must exist.

    Safe between threads, processes and, as far as the file system keeps its promises, hosts. Reading changes nothing and
    works on a read-only mount. Nothing below the root follows a symbolic link. A key cannot at once be a record and the
    directory of other records.

    Args:
        root: made absolute at once, so that a later chdir changes nothing.
        directory_mode: of the directories it makes, whatever the umask.
        file_mode: of the files it makes, whatever the umask.
        without: ways to publish that are not to be used, as if the file system lacked them; for tests.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        directory_mode: int = 0o700,
        file_mode: int = 0o600,
        without: Sequence[Way] = (),
    ) -> None:
        if os.open not in os.supports_dir_fd:
            raise StoreCannotLockError(
                "this platform cannot open files relative to a directory, which a directory store needs",
                hint="use another kind of store",
            )
        self._root = Path(root).absolute()
        self._tree = Tree(str(self._root), directory_mode)
        self._file_mode = file_mode
        self._ways = tuple(way for way in WAYS if way not in without)
        self._proven: Way | None = None
        # Temporary files met while listing, by directory: the next create there removes those whose makers are gone.
        self._leftovers: dict[str, list[str]] = {}

    @property
    def url(self) -> str:
        return self._root.as_uri()

    @property
    def publishes_by(self) -> Way | None:
        """How this store was seen to create a record, or None before it has. With `exclusive` records can be torn."""
        return self._proven

    def path_of(self, key: str) -> Path:
        check_key(key)
        return Path(self._tree.path_of(key))

    def open(self, key: str, flags: int) -> int:
        check_key(key)
        *parents, segment = key.split("/")
        with told(self._tree.path_of(key), "open a file"):
            with self._tree.directory(parents, make=bool(flags & os.O_CREAT)) as directory:
                if directory is None:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                try:
                    fd = os.open(segment, flags | SAFELY, self._file_mode, dir_fd=directory)
                except OSError as exc:
                    self._tree.raise_if_odd(exc, directory, segment, key)
                    raise
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            close(fd)
            raise odd_file(mode, self._tree.path_of(key))
        return fd

    def unlink(self, key: str) -> None:
        check_key(key)
        *parents, segment = key.split("/")
        with told(self._tree.path_of(key), "remove a file"), suppress(FileNotFoundError):
            with self._tree.directory(parents) as directory:
                if directory is not None:
                    os.unlink(segment, dir_fd=directory)

    def create(self, key: str, data: bytes) -> Created:
        check_key(key)
        check_data(data)
        with told(self._tree.path_of(key), "create a record"):
            for _ in range(_ATTEMPTS):
                created = again_if_stale(lambda: self._create(key, data))
                if created is not None:
                    return created
        raise StoreUnavailableError(
            f"a record keeps appearing and vanishing. path=`{self._tree.path_of(key)}`", hint="try again"
        )

    def _create(self, key: str, data: bytes) -> Created | None:
        *parents, segment = key.split("/")
        with self._tree.directory(parents, make=True) as directory:
            assert directory is not None
            ways = self._ways
            won, way = publish(directory, segment, data, mode=self._file_mode, ways=ways)
            # What was refused once is not tried again.
            self._ways = ways[ways.index(way) :]
            if won:
                self._proven = way
                self._sweep_leftovers(directory, "/".join(parents))
                return Created(True, data)
            # Another process may write in place here, as long as we have not seen that there is a better way.
            settle = self._proven not in ("link", "rename")
            found = self._tree.read(directory, segment, key, durable=True, settle=settle)
            return None if found is None else Created(False, found)

    def read(self, key: str, *, durable: bool = False) -> Stored | None:
        check_key(key)
        with told(self._tree.path_of(key), "read a record"):
            data = again_if_stale(lambda: self._read(key, durable))
            return None if data is None else Stored(data, version_of(data))

    def _read(self, key: str, durable: bool) -> bytes | None:
        *parents, segment = key.split("/")
        with self._tree.directory(parents) as directory:
            return None if directory is None else self._tree.read(directory, segment, key, durable=durable)

    def replace(self, key: str, data: bytes, version: str) -> str | None:
        check_key(key)
        check_data(data)
        with told(self._tree.path_of(key), "replace a record"):
            return again_if_stale(lambda: self._replace(key, data, version))

    def _replace(self, key: str, data: bytes, version: str) -> str | None:
        *parents, segment = key.split("/")
        with self._tree.directory(parents) as directory:
            if directory is None or not self._has_version(directory, segment, key, version):
                return None
            # Only now, so that asking in vain leaves no lock file behind.
            with self._locked():
                if not self._has_version(directory, segment, key, version):
                    return None
                with temporary_file(directory, self._file_mode, data) as (_, temporary), unclear():
                    os.rename(temporary, segment, src_dir_fd=directory, dst_dir_fd=directory)
                    sync_directory(directory)
        return version_of(data)

    def _has_version(self, directory: int, segment: str, key: str, version: str) -> bool:
        data = self._tree.read(directory, segment, key, durable=False)
        return data is not None and version_of(data) == version

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        check_prefix(prefix)
        return self._walk(prefix, after)

    def delete(self, key: str) -> None:
        check_key(key)
        with told(self._tree.path_of(key), "delete a record"):
            again_if_stale(lambda: self._delete(key))

    def _delete(self, key: str) -> None:
        *parents, segment = key.split("/")
        with self._tree.directory(parents) as directory:
            mode = None if directory is None else kind_of(directory, segment)
            if directory is None or mode is None:
                return
            if not stat.S_ISREG(mode):
                raise odd_file(mode, self._tree.path_of(key))
            # Under the lock: a replace that has looked but not yet renamed would bring the record back.
            with self._locked():
                remove(directory, segment)

    def sweep(self) -> Swept:
        """
        Remove the temporary files whose makers are gone, in the whole store.

        What `create` does by the way for what `list` has met; for `doctor` and for tests.
        """
        removed: list_[str] = []
        kept: list_[str] = []
        with told(str(self._root), "sweep"):
            self._sweep_below("", removed, kept)
        return Swept(tuple(removed), tuple(kept))

    def _sweep_below(self, prefix: str, removed: list_[str], kept: list_[str]) -> None:
        names, leftovers = self._scan(prefix)
        with self._tree.directory(_segments(prefix)) as directory:
            gone = set() if directory is None else set(sweep(directory, leftovers))
        removed += (prefix + name for name in leftovers if name in gone)
        kept += (prefix + name for name in leftovers if name not in gone)
        for name in names:
            if name.endswith("/"):
                self._sweep_below(prefix + name, removed, kept)

    def _sweep_leftovers(self, directory: int, parent: str) -> None:
        leftovers = self._leftovers.pop(parent, None)
        if leftovers:
            sweep(directory, leftovers[:_SWEPT_AT_ONCE])

    def _walk(self, prefix: str, after: str) -> Iterator[str]:
        # No descriptor is held across a yield: the caller may never come back.
        with told(self._tree.path_of(prefix.rstrip("/")), "list records"):
            names, leftovers = again_if_stale(lambda: self._scan(prefix))
        self._leftovers[prefix.rstrip("/")] = leftovers
        # A directory sorts as "name/", which is what its keys go on with: "a.b" < "a/b" < "a0", since "." < "/" < "0".
        for name in sorted(names):
            key = prefix + name
            if not name.endswith("/"):
                if key > after and _is(check_key, key):
                    yield key
            elif (key > after or after.startswith(key)) and _is(check_prefix, key):
                yield from self._walk(key, after)

    def _scan(self, prefix: str) -> tuple[list_[str], list_[str]]:
        """The names in a directory, directories with a "/" behind, and its temporary files."""
        names: list_[str] = []
        leftovers: list_[str] = []
        with self._tree.directory(_segments(prefix)) as directory:
            if directory is None:
                return names, leftovers
            with os.scandir(directory) as entries:
                for entry in entries:
                    # Links and whatever else somebody put there are no records: passed over here, refused by name.
                    if entry.name.startswith("."):
                        if is_temporary(entry.name):
                            leftovers.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        names.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        names.append(entry.name + "/")
        return names, leftovers

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude every other replace and delete of this store, in this process and in others."""
        with self._tree.directory(()) as root:
            if root is None:
                raise FileNotFoundError(2, "the store has been removed")
            for _ in patience(_LOCK_PATIENCE_S):
                fd = os.open(_LOCK, os.O_RDWR | os.O_CREAT | SAFELY, self._file_mode, dir_fd=root)
                try:
                    if not stat.S_ISREG(os.fstat(fd).st_mode):
                        raise odd_file(os.fstat(fd).st_mode, self._tree.path_of(_LOCK))
                    exact_mode(fd, self._file_mode)
                    # Still the file of that name? Whoever removed it let the next one lock another file.
                    if try_lock(fd) and os.fstat(fd).st_nlink:
                        try:
                            yield
                        finally:
                            unlock(fd)
                        return
                finally:
                    close(fd)
        raise StoreUnavailableError(
            f"another process is replacing records and does not come to an end. path=`{self._tree.path_of(_LOCK)}`",
            hint="try again; if it stays, a process that has this file open is stopped (`fuser` names it)",
        )


# Inside the class, `list` is the method.
list_ = list


def _segments(prefix: str) -> list_[str]:
    return prefix.split("/")[:-1]


def _is(check: Callable[[str], None], text: str) -> bool:
    try:
        check(text)
    except ValueError:
        return False
    return True
