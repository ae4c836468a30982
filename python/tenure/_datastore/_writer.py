"""The writer of a checkout: puts files, and commits them together or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO, cast

from tenure._commit._author import Author
from tenure._commit._marker import Mark
from tenure._commit._writer import Committed, LogWriter, Prepared
from tenure._datastore._apply import Applier, Progress
from tenure._datastore._blobs import Checked, Content
from tenure._datastore._catalog import Tracked
from tenure._datastore._changes import INLINE_BYTES, Change, collect_body
from tenure._datastore._names import normal
from tenure._datastore._recovery import Recovered
from tenure._datastore._retention import Retained, check_terms, oldest_wanted, retain
from tenure._datastore._staging import Journal, Staged, Staging
from tenure._datastore._workspace import Workspace
from tenure._datastore._worktree import Digest, digest_of, writing
from tenure._failpoints import reach
from tenure._lease._hold import Hold
from tenure._store._tree import write_all
from tenure.errors import CommitUnknownError, ContentMismatchError, Error, FencedError, HoldError

# After how many entries the next commit makes a snapshot, so that nobody has to read further back; or after a quarter as many
# as there are files, so that a large datastore does not write its whole list over and over.
SNAPSHOT_EVERY = 1000
_PIECE = 1 << 20


class CheckoutWriter:
    """
    The right to change the files of one checkout and to commit them, made by `Checkout.writer`; a context manager.

    A file is changed in the checkout when it is put; others see it when it is committed. What was put and not committed when this
    is closed, or when the process dies, is moved aside, and what was committed is put back.
    """

    def __init__(self, workspace: Workspace, hold: Hold, log: LogWriter, leave: Callable[[Hold], None]) -> None:
        self._workspace = workspace
        self._leave = leave
        self._hold = hold
        self._log = log
        self._staging = Staging(workspace.catalog)
        self._journal = Journal(workspace.worktree.own, hold.fence)
        self._mark: Mark | None = None
        # Until it is decided, here and in the outbox: nothing else may be meant for its slot.
        self._pending: Prepared | None = None
        self._closed = False
        self.recovered = Recovered()
        """What had to be put right when this writer began."""

    @property
    def fence(self) -> int:
        """The fencing token of the hold."""
        return self._hold.fence

    @property
    def hold(self) -> Hold:
        """The hold that it writes under."""
        return self._hold

    @property
    def position(self) -> int:
        """The version that it builds on: the newest one."""
        return self._workspace.catalog.position

    def put(self, name: str, source: bytes | str | os.PathLike[str] | BinaryIO | None = None) -> None:
        """
        Change the file *name* in the checkout, and stage it for the next commit.

        Args:
            name: relative, with ``/`` between its parts; see `docs/concepts/datastore.md` for what it may be.
            source: the content; a path (`str` or path-like) to copy it from; an open binary file to read it from; or None to stage
                the file as it lies in the checkout, for whoever has changed it in place.

        Raises:
            ValueError: the name is not allowed, or clashes with another one.
            FileNotFoundError: there is no such file to stage or to copy.
            HoldError: this writer was closed.
            StoreError: the checkout cannot be written.
        """
        name = normal(name)
        self._usable()
        self._staging.check(name)
        if isinstance(source, (str, os.PathLike)):
            with open(source, "rb") as opened:
                self._put(name, opened)
        else:
            self._put(name, source)

    def _put(self, name: str, source: bytes | BinaryIO | None) -> None:
        self._begin(name)
        worktree = self._workspace.worktree
        kept = bytearray()
        if isinstance(source, bytes):
            digest = Digest(len(source), hashlib.sha256(source).hexdigest())
            stamp = worktree.write(name, writing(source))
            kept += source[: INLINE_BYTES + 1]
        elif source is None:
            there = worktree.open(name)
            if there is None:
                raise FileNotFoundError(f"there is no file {name!r} in the checkout {worktree.root}")
            with there:
                digest = digest_of(there, lambda piece: _keep(kept, piece))
            found = worktree.stamp(name)
            assert found is not None
            stamp = found
        else:
            digests: list[Digest] = []

            def fill(fd: int) -> None:
                def take(piece: bytes) -> None:
                    write_all(fd, piece)
                    _keep(kept, piece)

                digests.append(digest_of(source, take))

            stamp = worktree.write(name, fill)
            digest = digests[0]
        data = bytes(kept) if digest.size <= INLINE_BYTES else None
        self._staging.add(name, Staged(digest, stamp, data))
        reach("checkout.put")

    def delete(self, name: str) -> None:
        """
        Remove the file *name* from the checkout, and stage that for the next commit.

        Raises:
            FileNotFoundError: the datastore has no such file.
            ValueError, HoldError, StoreError: as `put`.
        """
        name = normal(name)
        self._usable()
        tracked = self._workspace.catalog.get(name)
        if self._staging.files.get(name, tracked) is None:
            raise FileNotFoundError(f"there is no file {name!r} in the datastore")
        self._begin(name)
        self._workspace.worktree.remove(name)
        self._staging.add(name, None)
        reach("checkout.put")

    def commit(
        self,
        message: str | None = None,
        *,
        id: str | None = None,  # noqa: A002  the log's word
        progress: Progress | None = None,
    ) -> Committed | None:
        """
        Commit all that was staged, as one version that everybody sees whole or not at all; None if nothing has changed.

        Content that is not in the entry itself is read once more and compared with what was staged. After a
        `CommitUnknownError`, calling it again settles that commit first.

        Args:
            message: for people, one line or more.
            id: names the commit; the same one, tried again, lands once. See `LogWriter.commit`.
            progress: called while content is stored that is not in the entry itself, with how many bytes of it were read, and how
                many there are. A bucket has the last 64 MiB of them under way then.

        Raises:
            FencedError: somebody has taken over; nothing of it is visible, and this writer is over.
            CommitUnknownError: no clear answer in time.
            ContentMismatchError: a file is not what was staged; the whole commit is refused, and stays staged.
            StoreError: refused before anything was sent; it stays staged.
        """
        self._usable()
        settled = self._settle()
        if settled is not None and not self._staging.files:
            return settled
        if id is not None:
            known = self._log.known(id)
            if known is not None:
                self._staging.clear()
                self._follow()
                return known
        # Anything that has come to be in the log through this very writer is known by now, so this is the newest state.
        changes = self._changes(progress)
        if not changes:
            self._staging.clear()
            return None
        body = collect_body(changes, self._workspace.blobs, self.fence, message=message)
        reach("checkout.stored")
        prepared = self._pending = self._log.prepare(body.to_json(), id=id)
        self._workspace.outbox.prepare(
            prepared.id, prepared.data, author=Author.from_hold(self._hold), slot=prepared.slot
        )
        done = self._put_prepared(prepared)
        self._record(done, changes)
        self._snapshot_if_due()
        return done

    def retain(self, *, keep: int | None = None, older_than: float | None = None) -> Retained:
        """
        Give up old versions and the content that only they had. See `Checkout.retain`.

        Raises:
            ValueError: neither is given, or one is out of range.
            StoreError: the store failed; what was not removed is removed next time.
        """
        check_terms(keep, older_than)
        self._usable()
        self._settle()
        return retain(self, self._workspace, self._log, oldest_wanted(self._workspace, keep, older_than))

    def close(self) -> tuple[str, ...]:
        """
        End writing, and let go. Returns where uncommitted files are now, relative to the checkout.

        A second close does nothing. One that was replaced touches nothing: the files are its successor's.
        """
        if self._closed:
            return ()
        self._closed = True
        moved: tuple[str, ...] = ()
        try:
            if self._hold.state in ("held", "expired") and self._is_current():
                moved = self._discard()
                reach("checkout.discarded")
                if self._mark is not None:
                    self._journal.remove()
                    self._mark.finish()
        finally:
            self._journal.close()
            self._leave(self._hold)
        return moved

    def __enter__(self) -> CheckoutWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<CheckoutWriter fence {self.fence} in {self._workspace.worktree.root}>"

    def begin(self) -> None:
        """Say, durably, that files are about to be changed; once. For recovery, which is as much under way as a put."""
        if self._mark is None:
            self._mark = self._workspace.marker.begin(self._hold, label=self._workspace.label)

    def _begin(self, name: str) -> None:
        self._hold.check_here()
        self.begin()
        self._journal.note(name)
        reach("checkout.noted")

    def _changes(self, progress: Progress | None) -> list[Change]:
        changed: list[tuple[str, Staged | None]] = []
        for name in sorted(self._staging.files):
            staged, tracked = self._staging.files[name], self._workspace.catalog.get(name)
            if staged is None:
                if tracked is not None:
                    changed.append((name, None))
            elif tracked is None or staged.digest != (tracked.content.size, tracked.content.sha256):
                changed.append((name, staged))
        done, total = 0, sum(_in_a_blob(staged) for _, staged in changed)

        def tell(size: int) -> None:
            if progress is not None:
                progress(done + size, total)

        changes: list[Change] = []
        for name, staged in changed:
            changes.append(Change(name, None if staged is None else self._stored(name, staged, tell)))
            done += _in_a_blob(staged)
        return changes

    def _stored(self, name: str, staged: Staged, progress: Callable[[int], None]) -> Content:
        """The content, where everybody can get it: in the entry itself, or in a blob that is durable."""
        size, sha256 = staged.digest
        if staged.data is not None:
            return Content(size, sha256, data=staged.data)
        catalog = self._workspace.catalog
        content = catalog.blob_of(size, sha256) or Content(size, sha256, fence=self.fence)
        while catalog.is_condemned(content.key):
            content = Content(size, sha256, fence=self.fence, turn=content.turn + 1)

        def mismatch(found_size: int, found_sha256: str) -> ContentMismatchError:
            return self._mismatch(name, staged.digest, f"{found_size}:{found_sha256}")

        there = self._workspace.worktree.open(name)
        if there is None:
            raise self._mismatch(name, staged.digest, "missing")
        with Checked(there, size, sha256, mismatch, progress) as source:
            self._workspace.blobs.put(content, cast("BinaryIO", source))
            # A blob that was there already has not been compared with the file.
            while source.read(_PIECE):
                pass
        return content

    def _mismatch(self, name: str, staged: Digest, found: str) -> ContentMismatchError:
        return ContentMismatchError(
            f"a file was changed between put and commit, so nothing was committed. path=`{name}`, "
            f"staged=`{staged.size}:{staged.sha256}`, found=`{found}`",
            hint="find out who writes there, put it again, and commit",
            path=name,
            staged=f"{staged.size}:{staged.sha256}",
            found=found,
        )

    def _put_prepared(self, prepared: Prepared) -> Committed:
        try:
            return self._log.put(prepared)
        except CommitUnknownError:
            raise
        except Error as error:
            self._withdraw(prepared, error)
            raise

    def _withdraw(self, prepared: Prepared, reason: Error | None) -> None:
        """Take back what the log has refused, or what was never sent to it."""
        if self._workspace.outbox.get(prepared.id) is not None and not self._workspace.outbox.withdraw(prepared.id):
            # Somebody recovers this checkout at this very moment, and may land it after all.
            raise CommitUnknownError(
                f"the commit was not accepted, but a recovery has taken it on and may land it. commit_id=`{prepared.id}`",
                hint="ask `CommitLog.resolve(error.attempt)`, or look for the id in `tenure log`",
                applied=None,
                commit_id=prepared.id,
                attempt=prepared,
            ) from reason
        self._pending = None

    def _record(self, done: Committed, changes: list[Change]) -> None:
        changed = [
            Tracked(change.name, change.content, done.slot, staged.stamp)
            for change in changes
            if change.content is not None and (staged := self._staging.files[change.name]) is not None
        ]
        gone = [change.name for change in changes if change.content is None]
        with self._workspace.catalog.database.transaction():
            self._workspace.outbox.landed(done.id)
            self._workspace.catalog.apply(changed, gone, done.slot)
        reach("checkout.recorded")
        self._pending = None
        self._staging.clear()

    def _settle(self) -> Committed | None:
        """Decide the commit that was cut off or unknown, if there is one; then its files are no longer staged."""
        prepared = self._pending
        try:
            done = self._log.settle()
        except FencedError as error:
            if prepared is not None:
                self._withdraw(prepared, error)
            raise
        if prepared is None:
            if done is not None:
                # A snapshot that got no answer.
                self._follow()
            return None
        if done is None and self._log.head < prepared.slot:
            # Cut off before it was sent.
            self._withdraw(prepared, None)
            return None
        self._workspace.outbox.landed(prepared.id)
        self._pending = None
        self._follow()
        for name, staged in list(self._staging.files.items()):
            tracked = self._workspace.catalog.get(name)
            now = None if tracked is None else (tracked.content.size, tracked.content.sha256)
            if (None if staged is None else staged.digest) == now:
                del self._staging.files[name]
        return Committed(prepared.id, prepared.slot)

    def _follow(self) -> None:
        workspace = self._workspace
        workspace.applier(aside=f"interrupted/{self.fence}").follow(
            workspace.log.read(after=workspace.catalog.position)
        )

    def _snapshot_if_due(self) -> None:
        behind = self._workspace.catalog.position - self._workspace.snapshot
        # Counted only then: it takes as long as there are files.
        if behind < SNAPSHOT_EVERY or behind < self._workspace.catalog.count() // 4:
            return
        try:
            self.snapshot()
        except Error:
            # The commit has landed, and nothing that goes wrong after it may say otherwise. The next one tries again, and hears
            # of it if we were replaced.
            pass

    def snapshot(self) -> Committed:
        """
        Write down the whole list of files, so that readers begin here and older versions can be given up. Happens by itself.

        Raises:
            As `commit`.
        """
        self._usable()
        self._settle()
        workspace = self._workspace
        files = (Change(one.name, one.content, one.slot) for one in workspace.catalog.files())
        done = self._log.snapshot(collect_body(files, workspace.blobs, self.fence).to_json())
        workspace.catalog.apply((), (), done.slot)
        workspace.snapshot = done.slot
        return done

    def _discard(self) -> tuple[str, ...]:
        applier: Applier = self._workspace.applier(aside=f"interrupted/{self.fence}")
        for name, staged in self._staging.files.items():
            tracked = self._workspace.catalog.get(name)
            if tracked is not None:
                applier.restore(tracked)
            elif staged is not None:
                applier.move_aside(name)
        self._staging.clear()
        return tuple(applier.moved_aside)

    def _is_current(self) -> bool:
        try:
            self._hold.check()
        except Error:
            # Replaced, or nobody knows: then whoever comes next puts it right.
            return False
        return True

    def _usable(self) -> None:
        if self._closed:
            raise HoldError("this writer was closed", hint="open another one with `Checkout.writer`")


def _keep(kept: bytearray, piece: bytes) -> None:
    if len(kept) <= INLINE_BYTES:
        kept += piece[: INLINE_BYTES + 1 - len(kept)]


def _in_a_blob(staged: Staged | None) -> int:
    """How many bytes of it do not travel in the entry."""
    return staged.digest.size if staged is not None and staged.data is None else 0
