"""
Bringing the files of a checkout into a committed state.

What anybody changed there without committing it is not overwritten: it is moved aside and listed. Cut off anywhere, it is simply
done again: files first, then the catalog that vouches for them, with one sync of the file system in between.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from tenure._commit._entry import Entry
from tenure._core import sync_filesystem
from tenure._datastore._blobs import Blobs, Content
from tenure._datastore._catalog import Catalog, Tracked
from tenure._datastore._changes import Body, Change, body_of
from tenure._datastore._worktree import Stamp, Worktree, digest_of, writing
from tenure._failpoints import reach
from tenure._store._failures import told
from tenure._store._kernel import close
from tenure._store._tree import write_all
from tenure.errors import RecordError, StoreError

# How much is gathered before it is written: memory stays flat, and one sync serves many files.
_FILES, _BYTES = 5000, 16 << 20

Progress = Callable[[int, int], None]


class _Written(NamedTuple):
    """What lies in the files and is not vouched for yet."""

    changed: list[Tracked]
    gone: list[str]
    position: int
    synced: Future[None] | None


class Applier:
    """
    Applies committed changes to one checkout, under its lock.

    Args:
        worktree: the files.
        catalog: what they are known to be.
        blobs: where content comes from.
        aside: the directory below `.tenure` that takes what somebody changed and did not commit.
        before_batch: called before files are touched, and raises if they must not be.
        progress: called after each batch with how many changes are done, and how many are known of.
    """

    def __init__(
        self,
        worktree: Worktree,
        catalog: Catalog,
        blobs: Blobs,
        *,
        aside: str,
        before_batch: Callable[[], None] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._worktree = worktree
        self._catalog = catalog
        self._blobs = blobs
        self._aside = aside
        self._before_batch = before_batch
        self._progress = progress
        self._pending: dict[str, Change] = {}
        self._bytes = 0
        self._done = 0
        self._known = 0
        self._written: _Written | None = None
        self._background = ThreadPoolExecutor(1, thread_name_prefix="tenure-sync")
        self.moved_aside: list[str] = []
        """Where what was in the way is now, relative to the checkout."""

    def follow(self, entries: Iterable[Entry]) -> int:
        """Apply *entries*, which follow on the catalog's position; how many files were changed."""
        position = self._catalog.position
        following = iter(entries)
        while (found := self._next(following, position)) is not None:
            entry, body = found
            # One right behind our position says nothing new.
            replaces_all = entry.kind == "snapshot" and entry.slot != position + 1
            changes = self._whole(body.read(self._blobs)) if replaces_all else body.read(self._blobs)
            if entry.kind == "commit" or replaces_all:
                self._known += body.count
                for change in changes:
                    self._take(Change(change.name, change.content, change.slot or entry.slot), position)
            if body.condemned:
                self._finish(position)
                self._catalog.condemn(body.condemned, entry.slot)
            position = entry.slot
        self._finish(position)
        return self._done

    def _next(self, entries: Iterator[Entry], position: int) -> tuple[Entry, Body] | None:
        try:
            entry = next(entries, None)
            return None if entry is None else (entry, body_of(entry))
        except RecordError:
            # What comes before it is whole.
            self._finish(position)
            raise

    def restore(self, tracked: Tracked) -> bool:
        """Put the committed content of one file back where it is not; whether anything had to be done."""
        stamp = self._worktree.stamp(tracked.name)
        if stamp == tracked.stamp:
            return False
        if stamp is not None and self._worktree.digest(tracked.name) == (tracked.content.size, tracked.content.sha256):
            self._catalog.restamp(tracked.name, stamp)
            return False
        self.move_aside(tracked.name)
        reach("checkout.moved")
        self._catalog.restamp(tracked.name, self._write(tracked.name, tracked.content))
        return True

    def move_aside(self, name: str) -> None:
        """Move whatever is at *name* out of the way, and note where to."""
        to = self._worktree.move_aside(name, self._aside)
        if to is not None:
            self.moved_aside.append(to)

    def _whole(self, manifest: Iterator[Change]) -> Iterator[Change]:
        """A snapshot's list, with what it lacks as removed: both are sorted by name."""
        present = self._catalog.files()
        ours = next(present, None)
        for change in manifest:
            while ours is not None and ours.name < change.name:
                yield Change(ours.name, None)
                ours = next(present, None)
            if ours is not None and ours.name == change.name:
                ours = next(present, None)
            yield change
        while ours is not None:
            yield Change(ours.name, None)
            ours = next(present, None)

    def _take(self, change: Change, position: int) -> None:
        self._pending[change.name] = change
        self._bytes += 200 + len(change.content.data or b"") if change.content is not None else 200
        if len(self._pending) >= _FILES or self._bytes >= _BYTES:
            self._flush(position)

    def _finish(self, position: int) -> None:
        self._flush(position)
        self._vouch()

    def _flush(self, position: int) -> None:
        """Bring what was gathered to the files, of which *position* is the last slot that is done whole; `_vouch` does the rest."""
        self._vouch()
        if self._before_batch is not None and self._pending:
            self._before_batch()
        changes = sorted(self._pending.values(), key=lambda change: change.name)
        self._pending, self._bytes = {}, 0
        known = self._catalog.several([change.name for change in changes])
        # Removed first: a directory may be needed where a file was.
        gone = [change.name for change in changes if change.content is None]
        for name in gone:
            self._remove(name, known.get(name))
        # Most of a new checkout: the rename itself says whether anything is there, and nothing can come in between.
        fresh = self._worktree.write_new(
            (change.name, change.content.data)
            for change in changes
            if change.content is not None and change.content.data is not None and change.name not in known
        )
        changed = [
            Tracked(
                change.name,
                change.content,
                change.slot,
                fresh.get(change.name) or self._place(change.name, change.content, known.get(change.name)),
            )
            for change in changes
            if change.content is not None
        ]
        # Meanwhile the next ones are read.
        synced = self._background.submit(self._sync) if changes else None
        self._written = _Written(changed, gone, position, synced)

    def _vouch(self) -> None:
        """Let the catalog vouch for what was written last, once that is durable."""
        written, self._written = self._written, None
        if written is None:
            return
        if written.synced is not None:
            written.synced.result()
            reach("checkout.applied")
        if written.synced is not None or written.position != self._catalog.position:
            self._catalog.apply(written.changed, written.gone, written.position)
        done = len(written.changed) + len(written.gone)
        self._done += done
        if self._progress is not None and done:
            self._progress(self._done, max(self._done, self._known))

    def _remove(self, name: str, known: Tracked | None) -> None:
        stamp = self._worktree.stamp(name)
        if stamp is None:
            return
        if self._is_uncommitted(name, stamp, known):
            self.move_aside(name)
        else:
            self._worktree.remove(name)

    def _place(self, name: str, content: Content, known: Tracked | None) -> Stamp:
        stamp = self._worktree.stamp(name)
        if stamp is None:
            return self._write(name, content)
        if known is not None and stamp == known.stamp:
            return stamp if content.is_same_as(known.content) else self._write(name, content)
        if stamp.size == content.size and self._worktree.digest(name) == (content.size, content.sha256):
            # Committed by the one who wrote it here.
            return stamp
        if self._is_uncommitted(name, stamp, known):
            self.move_aside(name)
        return self._write(name, content)

    def _is_uncommitted(self, name: str, stamp: Stamp, known: Tracked | None) -> bool:
        if known is not None and stamp == known.stamp:
            return False
        # Touched, but not changed: nothing is lost with it.
        found = None if known is None else self._worktree.digest(name)
        return found is None or known is None or found != (known.content.size, known.content.sha256)

    def _write(self, name: str, content: Content) -> Stamp:
        try:
            return self._fill(name, content)
        except StoreError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            obstacle = self._worktree.obstacle(name)
            if obstacle is None:
                raise
            self.move_aside(obstacle)
        return self._fill(name, content)

    def _fill(self, name: str, content: Content) -> Stamp:
        if content.data is not None:
            return self._worktree.write(name, writing(content.data))
        with self._blobs.open(content) as source:

            def fill(fd: int) -> None:
                digest_of(source, lambda piece: write_all(fd, piece))

            return self._worktree.write(name, fill)

    def _sync(self) -> None:
        with told(str(self._worktree.root), "sync the checkout"):
            fd = os.open(self._worktree.root, os.O_RDONLY)
            try:
                sync_filesystem(fd)
            finally:
                close(fd)
