"""A directory as a store: each key is a file, and file systems that keep their word are all it needs."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from tenure._core import open_below, read_below, unlink_below
from tenure._store import _at
from tenure._store._at import Directory
from tenure._store._failures import again_if_stale, kind_of, odd_file, told, unclear
from tenure._store._kernel import close, patience, try_lock, unlock
from tenure._store._listing import Listing, Swept
from tenure._store._protocol import Created, Stored, check_key, check_prefix
from tenure._store._publish import WAYS, Way, publish, publish_stream, temporary_file
from tenure._store._records import MAX_SIZE_BYTES, check_data, version_of
from tenure._store._tree import Tree, remove
from tenure.errors import StoreUnavailableError

# One for the whole store: replacing is rare, short, and below the root there is no other name that no key can have.
_LOCK = ".lock"
_LOCK_PATIENCE_S = 10.0
# How often a create starts over when the record it lost to is gone before it could be read.
_ATTEMPTS = 10


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
        self._root = Path(root).absolute()
        self._tree = Tree(str(self._root), directory_mode)
        self._file_mode = file_mode
        self._ways = tuple(way for way in WAYS if way not in without)
        self._proven: Way | None = None
        self._listing = Listing(self._tree)

    @cached_property
    def url(self) -> str:
        return self._root.as_uri()

    @property
    def root(self) -> str:
        return self._tree.root

    @property
    def publishes_by(self) -> Way | None:
        """How this store was seen to create a record, or None before it has. With `exclusive` records can be torn."""
        return self._proven

    def path_of(self, key: str) -> Path:
        check_key(key)
        return Path(self._tree.path_of(key))

    def open(self, key: str, flags: int) -> int:
        check_key(key)
        try:
            fd = open_below(self._tree.root, key, flags, self._file_mode)
        except OSError:
            # The longer way makes what is missing, or says what is wrong.
            return self._open(key, flags)
        if flags & os.O_CREAT:
            _at.exact_mode(fd, self._file_mode)
        return fd

    def _open(self, key: str, flags: int) -> int:
        *parents, segment = key.split("/")
        # The directories are synced even here: records may come to lie beside this file, and trust them.
        with (
            told(self._tree.path_of(key), "open a file"),
            self._tree.directory(parents, make=bool(flags & os.O_CREAT)) as found,
        ):
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return self._tree.open(found, segment, key, flags, self._file_mode)

    def unlink(self, key: str) -> None:
        check_key(key)
        try:
            unlink_below(self._tree.root, key)
        except FileNotFoundError:
            pass
        except OSError:
            self._unlink(key)

    def _unlink(self, key: str) -> None:
        *parents, segment = key.split("/")
        with told(self._tree.path_of(key), "remove a file"), self._tree.directory(parents) as directory:
            if directory is not None:
                with suppress(FileNotFoundError):
                    _at.unlink(directory, segment)

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
                self._listing.sweep_what_was_met(directory, parents)
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
        if not durable:
            try:
                return read_below(self._tree.root, key, MAX_SIZE_BYTES)
            except FileNotFoundError:
                return None
            except OSError as exc:
                # The longer way says what is wrong, if it is not just another client's doing.
                if exc.errno == errno.ESTALE:
                    raise
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
                    _at.rename(directory, temporary, segment)
                    _at.sync_directory(directory)
        return version_of(data)

    def _has_version(self, directory: Directory, segment: str, key: str, version: str) -> bool:
        data = self._tree.read(directory, segment, key, durable=False)
        return data is not None and version_of(data) == version

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        check_prefix(prefix)
        return self._listing.keys(prefix, after)

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

    def put_stream(self, key: str, source: BinaryIO) -> bool:
        check_key(key)
        *parents, segment = key.split("/")
        with told(self._tree.path_of(key), "store content"), self._tree.directory(parents, make=True) as directory:
            assert directory is not None
            if kind_of(directory, segment) is not None:
                # As a loser of `create` does: whoever refers to it must find it after a power cut.
                _at.sync_directory(directory)
                return False
            won, way = publish_stream(directory, segment, source, mode=self._file_mode, ways=self._ways)
            if won:
                self._proven = way
                self._listing.sweep_what_was_met(directory, parents)
            return won

    def get_stream(self, key: str) -> BinaryIO | None:
        check_key(key)
        *parents, segment = key.split("/")
        with told(self._tree.path_of(key), "read content"), self._tree.directory(parents) as directory:
            if directory is None:
                return None
            try:
                return os.fdopen(self._tree.open(directory, segment, key, os.O_RDONLY), "rb")
            except FileNotFoundError:
                return None

    def sweep(self) -> Swept:
        """
        Remove the temporary files whose makers are gone, in the whole store.

        What `create` does by the way for what `list` has met; for `doctor` and for tests.
        """
        with told(str(self._root), "sweep"):
            return self._listing.sweep()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude every other replace and delete of this store, in this process and in others."""
        with self._tree.directory(()) as root:
            if root is None:
                raise FileNotFoundError(errno.ENOENT, "the store has been removed")
            for _ in patience(_LOCK_PATIENCE_S):
                fd = self._tree.open(root, _LOCK, _LOCK, os.O_RDWR | os.O_CREAT, self._file_mode)
                try:
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
