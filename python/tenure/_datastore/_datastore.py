"""The datastore: a log of versions and their content, in one store, with any number of checkouts and one writer."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from typing import Any, BinaryIO

from tenure._clock import Clock, SystemClock
from tenure._commit._log import CommitLog
from tenure._commit._put import PATIENCE_S
from tenure._datastore._apply import Progress
from tenure._datastore._blobs import Blobs
from tenure._datastore._checkout import Checkout
from tenure._datastore._names import normal
from tenure._datastore._verify import Damage, verify
from tenure._datastore._view import FileInfo, LogLine, View
from tenure._lease._claim import WorksIn
from tenure._lease._force import ForcedRelease
from tenure._lease._lease import WriterLease
from tenure._lease._sight import DEFAULT_SKEW, DEFAULT_TTL
from tenure.errors import RecordError, RecordTooNewError
from tenure.stores import Store, open_store

FORMAT_KEY = "format.json"
# The version of the whole layout. `reader` in the record is the lowest that may read it: raised only where an older one would
# read something wrong.
FORMAT = 1


class Datastore:
    """
    A versioned set of files with one writer at a time.

    Args:
        store: a store, or a URL or path for `open_store`, in which `Datastore.create` has made one.
        ttl, skew: of the writer's lease, in seconds; see `WriterLease`.
        host_id, host_id_is_unique: the operator's word about this host; see `judge`.
        patience_s: seconds for which an unclear answer of the store is asked again.
        clock: where time comes from; for tests.

    Raises:
        RecordTooNewError: a newer tenure made it; upgrade.
        RecordError: there is none, or it is damaged.
        StoreError: the store cannot be read.
        ValueError: the URL is not understood.

    Example:
        >>> import tempfile
        >>> datastore = Datastore.create(tempfile.mkdtemp() + "/data")
        >>> with datastore.checkout(tempfile.mkdtemp()) as checkout:
        ...     with checkout.writer(timeout=60) as writer:
        ...         writer.put("notes/hello.txt", b"hello")
        ...         version = writer.commit("say hello").slot
        >>> datastore.read("notes/hello.txt")
        b'hello'
        >>> [line.message for line in datastore.log() if line.kind == "commit"]
        ['say hello']
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        *,
        ttl: float = DEFAULT_TTL,
        skew: float = DEFAULT_SKEW,
        host_id: str | None = None,
        host_id_is_unique: bool | None = None,
        patience_s: float = PATIENCE_S,
        clock: Clock | None = None,
    ) -> None:
        self.store: Store = open_store(store) if isinstance(store, (str, os.PathLike)) else store
        self.clock: Clock = SystemClock() if clock is None else clock
        self.commits = CommitLog(self.store, patience_s=patience_s, clock=self.clock)
        self.blobs = Blobs(self.store)
        self._view = View(self.commits, self.blobs)
        self._terms: dict[str, Any] = {
            "ttl": ttl,
            "skew": skew,
            "host_id": host_id,
            "host_id_is_unique": host_id_is_unique,
            "clock": clock,
        }
        self.id = _identity_of(self.store)

    @classmethod
    def create(cls, store: Store | str | os.PathLike[str], **options: Any) -> Datastore:
        """
        Make a datastore in *store*, and open it; one that is there already is only opened.

        Raises:
            StoreError: the store cannot be written.
            ValueError: the URL is not understood.
        """
        opened: Store = open_store(store) if isinstance(store, (str, os.PathLike)) else store
        fields = {"v": 1, "kind": "datastore", "format": FORMAT, "reader": FORMAT, "id": secrets.token_hex(16)}
        opened.create(FORMAT_KEY, (json.dumps(fields) + "\n").encode())
        return cls(opened, **options)

    @property
    def url(self) -> str:
        """Of the store."""
        return self.store.url

    def checkout(self, path: str | os.PathLike[str], *, label: str | None = None) -> Checkout:
        """
        The checkout at *path*, made if it is not there. No file in it is changed yet.

        Args:
            path: a directory; what is in it already stays, and is moved aside where the datastore has a file of that name.
            label: what its writers do, shown to those who wait.

        Raises:
            RecordTooNewError: a newer tenure made it.
            RecordError: it is damaged, or one of another datastore; it is kept as it is.
            StoreError: it cannot be made or read.
        """
        return Checkout(self, path, label=label)

    def lease(self, works_in: WorksIn | None = None, label: str | None = None) -> WriterLease:
        """The writer's lease, to look at; `Checkout.writer` takes it."""
        return WriterLease(self.store, label=label, works_in=works_in, **self._terms)

    def force_release(self, nonce: str | None, *, even_if_alive: bool = False, dry_run: bool = False) -> ForcedRelease:
        """
        Break the writer's hold by force, and seal the log, so that not even a commit that it has under way lands any more.

        See `WriterLease.force_release` for the rest.

        Raises:
            RefusedError: another claim is there than the one that was looked at, or its holder is alive.
            StoreError: the store failed; call it again.
        """
        done = self.lease().force_release(nonce, even_if_alive=even_if_alive, dry_run=dry_run)
        if done.fence is not None:
            self.commits.shut_out(done.fence)
        return done

    def log(self, *, after: int = 0) -> Iterator[LogLine]:
        """
        What was committed, oldest first, above the version *after*; what was given up is not in it.

        Raises:
            RecordError, StoreError: as `CommitLog.read`.
        """
        return map(LogLine.of, self.commits.read(after=after))

    def read(self, name: str, *, at: int | None = None) -> bytes:
        """
        The content of the file *name*, in the version *at*, or the newest.

        Raises:
            FileNotFoundError: that version has no such file.
            ValueError: the name is not one, or there is no such version any more.
            RecordError: it is damaged.
            StoreError: the store cannot be read.
        """
        with self.open(name, at=at) as content:
            return content.read()

    def open(self, name: str, *, at: int | None = None, progress: Progress | None = None) -> BinaryIO:
        """
        The same as a stream, for content that is too large for memory. Its end is reached only if it is undamaged.

        *progress* is called while content arrives that is not in the log itself: with how many bytes have, and how many will.

        Raises:
            As `read`; while reading, too.
        """
        change = self._view.find(normal(name), at)
        if change is None or change.content is None:
            raise FileNotFoundError(f"there is no file {name!r} in version {at or 'newest'} of {self.url}")
        size = change.content.size
        return self.blobs.open(change.content, None if progress is None else lambda done: progress(done, size))

    def files(self, *, at: int | None = None) -> Iterator[FileInfo]:
        """
        The files of the version *at*, or the newest, sorted by name.

        Raises:
            ValueError: there is no such version any more.
            RecordError, StoreError: as `read`.
        """
        for change in self._view.files(at):
            if change.content is not None:
                yield FileInfo(change.name, change.content.size, change.content.sha256, change.slot)

    def verify(self) -> Iterator[Damage]:
        """
        Read everything that is kept, and compare it with its digests; what is wrong, one by one.

        Raises:
            StoreError: the store cannot be read.
        """
        return verify(self.commits, self.blobs)

    def __repr__(self) -> str:
        return f"<Datastore {self.url}>"


def _identity_of(store: Store) -> str:
    stored = store.read(FORMAT_KEY)
    if stored is None:
        raise RecordError(
            f"there is no datastore here. store=`{store.url}`",
            hint=f"make one with `tenure init {store.url}` or `Datastore.create`",
            key=FORMAT_KEY,
            reason="missing",
        )
    try:
        fields = json.loads(stored.data)
    except (ValueError, RecursionError) as error:
        raise _damaged(store, f"not JSON: {error}") from error
    if not isinstance(fields, dict) or fields.get("kind") != "datastore":
        raise _damaged(store, "it describes no datastore")
    reader, identity = fields.get("reader"), fields.get("id")
    if isinstance(reader, bool) or not isinstance(reader, int) or not isinstance(identity, str) or not identity:
        raise _damaged(store, "reader or id is missing")
    if reader > FORMAT:
        raise RecordTooNewError(
            f"a newer tenure made this datastore. store=`{store.url}`, needs=`{reader}`, understood=`{FORMAT}`",
            hint="upgrade tenure on this machine",
            key=FORMAT_KEY,
            reason=f"format {reader}",
            schema=reader,
            understood=FORMAT,
        )
    return identity


def _damaged(store: Store, reason: str) -> RecordError:
    return RecordError(
        f"the description of this datastore is damaged. store=`{store.url}`, reason=`{reason}`",
        hint=f"restore the record `{FORMAT_KEY}` from a backup",
        key=FORMAT_KEY,
        reason=reason,
    )
