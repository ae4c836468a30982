"""
The crash marker: which files were under way when a writer died.

It is there before the first file is changed and gone after the last one, durably both times, and each writer has its own. So
whatever marker is found is that of somebody who works, or who was interrupted; and who it is decides which.

The record is one line of JSON, schema number first. An older reader ignores fields that it does not know. A newer schema, and
whatever cannot be read, is shown with what is wrong with it, judged by the fence in its name, and kept.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from tenure._clock import SystemClock
from tenure._commit._author import Author
from tenure._commit._standing import Standings, treatment
from tenure._identity import Judgement
from tenure._lease._hold import Hold
from tenure._store._file import FileStore
from tenure.errors import HoldError, RecordError, RecordTooNewError, RefusedError, StoreError

SCHEMA = 1
_MAX_LABEL = 200


@dataclass(frozen=True, slots=True)
class Run:
    """
    What one marker says, and what became of its writer.

    Attributes:
        state: `running`: its writer is proven alive. `interrupted`: it is proven gone, or was replaced. `unknown`: nobody can
            tell from here; its files are to be left alone like those of a running one.
        author: who wrote it; for a marker that cannot be read, the fence in its name alone.
        judgement: what the evidence says about its writer.
        leftovers: `remove` where temporary files of its writer may go: it is proven gone. Else `keep`.
        label, since: what it said it was doing, and since when by its own wall clock; for people. None if it does not say.
        paths: what it was changing, as it wrote them: anybody who may write here can write any path.
        problem: what is wrong with the marker; None if it can be read.
        file: where it lies.
    """

    state: Literal["running", "interrupted", "unknown"]
    author: Author
    judgement: Judgement
    leftovers: Literal["remove", "keep"]
    label: str | None
    since: str | None
    paths: tuple[str, ...]
    problem: str | None
    file: str


@dataclass(frozen=True, slots=True)
class _Record:
    author: Author
    label: str | None = None
    since: str | None = None
    paths: tuple[str, ...] = ()
    problem: str | None = None
    too_new: int | None = None

    def encode(self) -> bytes:
        fields = {
            "v": SCHEMA,
            "author": self.author.to_record(),
            "label": self.label,
            "since": self.since,
            "paths": self.paths,
        }
        return (json.dumps(fields, separators=(",", ":")) + "\n").encode()

    @staticmethod
    def decode(data: bytes, named: Author) -> _Record:
        """What *data* says; what is wrong with it, and the author that its name gives, where it says nothing."""
        try:
            fields: Any = json.loads(data)
        except (ValueError, RecursionError) as error:
            return _Record(named, problem=f"not JSON: {error}" if data else "it is empty")
        schema = fields.get("v") if isinstance(fields, dict) else None
        if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
            return _Record(named, problem="no marker: it has no schema number")
        if schema > SCHEMA:
            return _Record(named, problem=f"a newer tenure wrote it: schema {schema}", too_new=schema)
        author = Author.from_record(fields.get("author"))
        if author.fence not in (None, named.fence) or (named.fence is None and author.nonce != named.nonce):
            return _Record(named, problem="its name is that of another writer")
        paths = fields.get("paths")
        return _Record(
            # The name wins where the record says nothing.
            Author(named.fence, author.nonce, author.identity),
            label=_text(fields.get("label"), _MAX_LABEL),
            since=_text(fields.get("since"), 64),
            paths=tuple(path for path in paths if isinstance(path, str)) if isinstance(paths, list) else (),
        )


class CrashMarker:
    """
    The markers of one directory.

    Begin before the first change in place, finish after the last; whoever comes next looks at `runs()`, recovers what
    was interrupted *under a marker of its own* (a crash while recovering is a crash too), and then `clear`s it.

    Args:
        directory: where the markers lie; made, with mode 0700, if it is not there. Its parent must be.
        name: what their names begin with: `writer.12` under the hold with fence 12. Lower case letters, digits, ``_ -``.

    Example:
        >>> import tempfile
        >>> marker = CrashMarker(tempfile.mkdtemp())
        >>> with marker.begin(label="import", paths=["index.txt"]):
        ...     [(run.state, run.label) for run in marker.runs()]
        [('running', 'import')]
        >>> marker.runs()
        []
    """

    def __init__(self, directory: str | os.PathLike[str], name: str = "writer") -> None:
        self._store = FileStore(directory)
        self._prefix = f"{name}."
        # Refused at once, and not when the first writer begins.
        self._store.path_of(f"{name}.1")
        if "." in name or "/" in name:
            raise ValueError(f"not a name for markers: {name!r}. It is lower-case letters, digits, '_' and '-'")

    def begin(
        self, hold: Hold | None = None, *, label: str | None = None, paths: Sequence[str | os.PathLike[str]] = ()
    ) -> Mark:
        """
        Say that files are about to be changed, durably; nothing may be changed before this returns.

        As a context manager the mark is finished at the end of the block, and stays when the block raises: what was
        changed by then may be half of it. Whoever has put everything right again calls `Mark.finish` itself.

        Args:
            hold: the hold it is done under, asked first whether it is current; None for a writer that has no lease.
            label: what is being done, for people; one printable line of at most 200 characters.
            paths: what will be changed; all of it within 1 MiB.

        Raises:
            FencedError: another writer has taken over.
            RefusedError: a marker of this very writer is there already.
            StoreError: it cannot be written; nothing may be changed.
            ValueError: the label is no such line, or there are too many paths.
        """
        if label is not None and (not label or len(label) > _MAX_LABEL or not label.isprintable()):
            raise ValueError(f"label must be 1 to {_MAX_LABEL} printable characters on one line, not {label!r}")
        if hold is None:
            author = Author.without_hold()
        else:
            hold.check()
            author = Author.from_hold(hold)
        record = _Record(author, label, SystemClock().wall(), tuple(map(str, paths)))
        key = f"{self._prefix}{author.nonce if author.fence is None else author.fence}"
        if not self._store.create(key, record.encode()).won:
            raise RefusedError(
                f"a marker of this writer is there already. path=`{self._store.path_of(key)}`",
                hint="one writer has one marker: finish the first one before the next begins",
                fence=author.fence or 0,
                nonce=author.nonce,
                judgement=None,
            )
        return Mark(self._store, key, author)

    def runs(self, standings: Standings | None = None) -> list[Run]:
        """
        Each marker that is there, and what became of its writer; in the order of their names. Writes nothing.

        Args:
            standings: who is alive; by default each writer's process is judged, and whoever cannot be stays `unknown`.

        Raises:
            RecordTooNewError: a newer tenure holds the lease.
            StoreError: the directory, or the lease, cannot be read.
        """
        standings = Standings() if standings is None else standings
        found = [(key, record) for key in self._keys() if (record := self._read(key)) is not None]
        standings.learn(record.author for _, record in found)
        return [self._run(key, record, standings) for key, record in found]

    def clear(self, run: Run, hold: Hold | None = None) -> None:
        """
        Remove the marker of an interrupted *run*, once its files are put right. One that is gone already is no error.

        One that cannot be read is kept beside it, as `damaged-` and its name.

        Args:
            run: as `runs` gave it.
            hold: a current one with a higher fence. None only where the run had no hold itself.

        Raises:
            RefusedError: the run is not interrupted, or not below *hold*; or another marker lies there by now.
            RecordTooNewError: a newer tenure wrote the marker.
            FencedError, StoreError: as `Hold.check`.
        """
        if hold is not None:
            hold.check()
        fence = run.author.fence
        if run.state != "interrupted":
            raise _refused(run, f"its run is {run.state}")
        if fence is not None and (hold is None or fence >= hold.fence):
            raise _refused(run, "its fence is not below that of the hold")
        key = Path(run.file).name
        record = self._read(key)
        if record is None:
            return
        if record.author != run.author:
            raise _refused(run, "it is another one by now")
        if record.too_new is not None:
            raise RecordTooNewError(
                f"a newer tenure wrote this marker. path=`{run.file}`, schema=`{record.too_new}`, understood=`{SCHEMA}`",
                hint="upgrade tenure on this machine",
                key=run.file,
                reason=f"schema {record.too_new}",
                schema=record.too_new,
                understood=SCHEMA,
            )
        stored = self._store.read(key)
        if record.problem is not None and stored is not None:
            self._store.create(f"damaged-{key}", stored.data)
        self._store.delete(key)

    def _keys(self) -> Iterator[str]:
        for key in self._store.list("", after=self._prefix):
            if not key.startswith(self._prefix):
                return
            yield key

    def _read(self, key: str) -> _Record | None:
        named = _named(key.removeprefix(self._prefix))
        try:
            stored = self._store.read(key)
        except StoreError as error:
            if error.errno != errno.EFBIG:
                raise
            # Nothing that we have written; shown like everything else.
            return _Record(named, problem=str(error))
        return None if stored is None else _Record.decode(stored.data, named)

    def _run(self, key: str, record: _Record, standings: Standings) -> Run:
        standing = standings.of(record.author)
        treated = treatment(standing)
        if treated.marker == "interrupted":
            state: Literal["running", "interrupted", "unknown"] = "interrupted"
        else:
            state = "running" if standing.state == "alive" else "unknown"
        return Run(
            state=state,
            author=record.author,
            judgement=standing.judgement,
            leftovers=treated.temp_files,
            label=record.label,
            since=record.since,
            paths=record.paths,
            problem=record.problem,
            file=str(self._store.path_of(key)),
        )


class Mark:
    """A marker of this process, made by `CrashMarker.begin`; a context manager."""

    def __init__(self, store: FileStore, key: str, author: Author) -> None:
        self._store = store
        self._key = key
        self._author = author
        self._pid = os.getpid()
        self._finished = False

    def finish(self) -> None:
        """
        Say that the files are whole again: the marker is gone, durably, when this returns. A second time does nothing.

        Raises:
            StoreError: it could not be removed; the work counts as interrupted until a repetition succeeds.
            RecordError: it is gone already, or another one lies there: somebody has recovered what you were changing.
            HoldError: this is a forked child; the mark is its parent's.
        """
        if self._pid != os.getpid():
            raise HoldError(
                f"this mark belongs to the process that began it, not to its forked child. key=`{self._key}`",
                hint="finish it there, or begin one of your own",
            )
        if self._finished:
            return
        stored = self._store.read(self._key)
        author = None if stored is None else _Record.decode(stored.data, self._author).author
        if author is None or author.nonce != self._author.nonce:
            reason = "it is gone" if author is None else "it is another writer's"
            raise RecordError(
                f"this marker is not there any more. path=`{self._store.path_of(self._key)}`, reason=`{reason}`",
                hint="somebody has recovered the files meanwhile: look at them before you go on",
                key=self._key,
                reason=reason,
            )
        self._store.delete(self._key)
        self._finished = True

    def __enter__(self) -> Mark:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._pid == os.getpid():
            self.finish()


def _refused(run: Run, why: str) -> RefusedError:
    return RefusedError(
        f"this marker stays: {why}. path=`{run.file}`, fence=`{run.author.fence}`",
        hint="a marker is removed by its own writer, or by the recovery of a higher fence",
        fence=run.author.fence or 0,
        nonce=run.author.nonce,
        judgement=run.judgement,
    )


def _named(suffix: str) -> Author:
    """The author that a marker's name gives."""
    return Author.from_record({"fence": suffix, "nonce": suffix})


def _text(value: object, most: int) -> str | None:
    """For people only, so nothing is refused; but what reaches a terminal must not steer it."""
    if not isinstance(value, str):
        return None
    return "".join(character if character.isprintable() else "�" for character in value[:most]) or None
