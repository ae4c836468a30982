"""Files in a database, one tree for each scope, that a replaced writer cannot write to."""

from __future__ import annotations

from types import TracebackType

from sqlalchemy.engine import Engine

from tenure.errors import FencedError, StoreError
from tenure.sql import _tree
from tenure.sql._errors import FenceError, ScopeLostError, StaleEpochError
from tenure.sql._fence import EpochFence
from tenure.sql._file_tables import FileTables
from tenure.sql._pin import Pin
from tenure.sql._scope import Held
from tenure.sql._tree import Entry, Tree, check_path


class FileStorage:
    """
    Where the files of many scopes are: a table of entries and one of contents, beside the fence's own.

    Args:
        engine: as for `EpochFence`.
        fence: one that is set up in a special way, for row-level security say; a plain one by default.
        entries, blobs: the tables.

    Raises:
        ValueError: a name is no table's name.
        StoreCannotLockError: as `EpochFence`.

    Example:
        >>> from sqlalchemy import create_engine
        >>> storage = FileStorage(create_engine("sqlite://"))
        >>> storage.migrate()
        >>> files = storage.create("box:1")
        >>> files.write("a.txt", b"hello")
        >>> files.read("a.txt")
        b'hello'
    """

    def __init__(
        self,
        engine: Engine,
        *,
        fence: EpochFence | None = None,
        entries: str = "tenure_entry",
        blobs: str = "tenure_blob",
    ) -> None:
        self.fence = EpochFence(engine) if fence is None else fence
        self.engine = engine
        self.tables = FileTables(entries, blobs, engine.dialect)

    def migrate(self) -> None:
        """Make the tables where they are missing, the fence's too. Safe from every process at boot."""
        self.fence.migrate()
        self.tables.make(self.engine)

    def create(self, scope: str) -> ScopedFiles:
        """
        An empty tree; also for a scope that was destroyed, whose old writers stay refused.

        Raises:
            ScopeExistsError: it is alive.
        """
        return ScopedFiles(self, self.fence.create(scope), {})

    def open(self, scope: str) -> ScopedFiles:
        """
        The tree of *scope* as it is now.

        Raises:
            ScopeGoneError: destroyed, or never made.
        """
        return ScopedFiles(self, *self.load(scope))

    def load(self, scope: str) -> tuple[Pin, Tree]:
        """Pin and tree of one moment."""
        with self.fence.read(scope) as snap:
            return snap.pin, self.tables.load(snap.connection, scope)

    def collect(self, grace: float = 3 * 3600.0) -> int:
        """
        Delete contents that no tree refers to; how many.

        Whatever the grace, no tree loses a content: who refers to a collected one is refused, and has to begin again.

        Args:
            grace: seconds since a content was last written, by the database's clock.
        """
        if not grace >= 0:
            raise ValueError(f"grace must be 0 or more seconds, not {grace!r}")
        return self.tables.collect(self.engine, grace)


class ScopedFiles:
    """
    The files of one scope, as one writer has them in memory: the whole tree, and the pin of the moment it was loaded.

    Nothing here is newer than the pin. A change is based on the tree in memory and refused if somebody else has changed
    the scope since; so is a look. `reload` then, and decide again. For one thread. Made by `FileStorage`.

    Attributes:
        pin: of the tree in memory.
    """

    def __init__(self, storage: FileStorage, pin: Pin, tree: Tree) -> None:
        self._storage = storage
        self._entries = tree
        self.pin = pin

    @property
    def scope(self) -> str:
        """The scope's name."""
        return self.pin.scope

    def reload(self) -> None:
        """
        The tree as it is now. Whatever was read before belongs to the past, and must not be written back.

        Raises:
            ScopeGoneError: destroyed.
        """
        self.pin, self._entries = self._storage.load(self.scope)

    def read(self, path: str) -> bytes:
        """
        The content of a file.

        Raises:
            StaleEpochError, ScopeGoneError: the tree in memory is not the current one.
            FileNotFoundError, IsADirectoryError: there is no such file.
        """
        check_path(path)
        with self._storage.fence.read(self.scope) as snap:
            self._must_be(snap.pin)
            entry = _tree.the_file(self._entries, path)
            data = self._storage.tables.data(snap.connection, str(entry.digest))
        if data is None:
            raise StoreError(
                f"the content of a file is missing. scope=`{self.scope}`, path=`{path}`", hint="restore it"
            )
        return data

    def list(self, path: str = "") -> list[str]:
        """
        The names in a directory, sorted; those of directories end with "/".

        Raises:
            As `read`; NotADirectoryError.
        """
        if path:
            check_path(path)
        self.look()
        _tree.must_be_directory(self._entries, path)
        return _tree.names(self._entries, path)

    def look(self) -> None:
        """Raise unless the tree in memory is the current one: `StaleEpochError`, `ScopeGoneError`."""
        with self._storage.fence.read(self.scope) as snap:
            self._must_be(snap.pin)

    def edit(self, *, hold: Held | None = None) -> FileEdit:
        """
        Several changes at once, or none of them.

        Args:
            hold: a lease that is asked at the first change and before COMMIT. It saves work; the fence is what refuses.
        """
        return FileEdit(self._storage, self, dict(self._entries), hold)

    def write(self, path: str, data: bytes) -> None:
        """See `FileEdit.write`; this and the following are one change each, with the errors of `FileEdit` as a whole."""
        with self.edit() as edit:
            edit.write(path, data)

    def append(self, path: str, tail: bytes) -> None:
        """See `FileEdit.append`."""
        with self.edit() as edit:
            edit.append(path, tail)

    def mkdir(self, path: str, *, parents: bool = False, exist_ok: bool = False) -> None:
        """See `FileEdit.mkdir`."""
        with self.edit() as edit:
            edit.mkdir(path, parents=parents, exist_ok=exist_ok)

    def move(self, source: str, target: str) -> None:
        """See `FileEdit.move`."""
        with self.edit() as edit:
            edit.move(source, target)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """See `FileEdit.remove`."""
        with self.edit() as edit:
            edit.remove(path, recursive=recursive)

    def destroy(self) -> None:
        """
        Remove the scope with all its files. Whoever has it in memory is refused from now on, also after it is made anew.

        Raises:
            As `EpochFence.write`.
        """
        tables, scope = self._storage.tables, self.scope
        self._storage.fence.destroy(self.pin, also=lambda tx: tables.clear(tx.connection, scope))

    def _must_be(self, current: Pin) -> None:
        if current != self.pin:
            raise StaleEpochError(
                f"somebody has changed these files since they were loaded. scope=`{self.scope}`, "
                f"ours=`{self.pin.epoch}`, current=`{current.epoch}`",
                hint="reload, and decide again",
                scope=self.scope,
                ours=self.pin.epoch,
                current=current.epoch,
            )

    def _adopt(self, pin: Pin, tree: Tree) -> None:
        """What a commit that passed the fence has made of the tree."""
        self.pin, self._entries = pin, tree


class FileEdit:
    """
    Changes of one tree, made in memory and committed when its block ends, in one short transaction behind the fence.

    Contents are kept at once, by themselves. A refusal is for good: also where the program catches it and goes on, the
    block does not end well. An exception leaves everything as it was. Made by `ScopedFiles.edit`.

    Raises, at the first change:
        StaleEpochError, ScopeGoneError: the tree in memory is not the current one.
        FencedError: the lease was lost.

    Raises, when the block ends:
        As `EpochFence.write`.
    """

    def __init__(self, storage: FileStorage, files: ScopedFiles, tree: Tree, hold: Held | None) -> None:
        self._storage = storage
        self._files = files
        self._before = dict(tree)
        self._after = tree
        self._pin = files.pin
        self._hold = hold
        self._begun = False
        self._verdict: FencedError | FenceError | None = None

    def write(self, path: str, data: bytes) -> None:
        """Write a file whole. Its directory must exist."""
        self._begin(path)
        _tree.put(self._after, path, self._storage.tables.put(self._storage.engine, data))

    def append(self, path: str, tail: bytes) -> None:
        """Add to a file, or make it. What it has so far is what it had when the tree was loaded."""
        self._begin(path)
        base = self._content(_tree.the_file(self._after, path)) if path in self._after else b""
        _tree.put(self._after, path, self._storage.tables.put(self._storage.engine, base + tail))

    def mkdir(self, path: str, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a directory, as `pathlib.Path.mkdir`."""
        self._begin(path)
        _tree.make_directory(self._after, path, parents=parents, exist_ok=exist_ok)

    def move(self, source: str, target: str) -> None:
        """Rename a file or a directory with all that is in it. A file replaces a file; nothing replaces a directory."""
        self._begin(source, target)
        _tree.move(self._after, source, target)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file or an empty directory, or with *recursive* a full one."""
        self._begin(path)
        _tree.remove(self._after, path, recursive=recursive)

    def __enter__(self) -> FileEdit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return
        if self._verdict is not None:
            raise self._verdict
        tx = self._storage.fence.write(self._pin, hold=self._hold)
        try:
            with tx:
                self._storage.tables.change(tx.connection, self._pin.scope, self._before, self._after)
        finally:
            # Also where it did commit and something failed afterwards.
            if tx.committed_pin is not None:
                self._files._adopt(tx.committed_pin, self._after)  # noqa: SLF001  ours

    def _begin(self, *paths: str) -> None:
        for path in paths:
            check_path(path)
        if self._verdict is not None:
            raise self._verdict
        if self._begun:
            return
        # Not needed for safety: the fence would refuse it all in the end. It spares the work, and tells at once.
        try:
            if self._hold is not None:
                self._hold.check()
            self._files.look()
        except (FencedError, FenceError) as error:
            self._verdict = error
            raise
        self._begun = True

    def _content(self, entry: Entry) -> bytes:
        with self._storage.engine.connect() as connection:
            data = self._storage.tables.data(connection, str(entry.digest))
        if data is None:
            self._verdict = ScopeLostError(
                f"the content of a file was collected meanwhile. scope=`{self._pin.scope}`",
                hint="reload, and try again",
                scope=self._pin.scope,
            )
            raise self._verdict
        return data
