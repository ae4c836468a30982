"""
The SQL epoch fence: a writer that was replaced fails inside the database, at its COMMIT.

    fence = EpochFence(engine)
    fence.migrate()                            # at boot, from every process
    with fence.read("doc:42") as snap:         # one moment: the pin first, then your load
        pin, body = snap.pin, load(snap)
    with fence.write(pin) as tx:               # BEGIN and the fence; StaleEpochError if somebody was faster
        tx.execute(update, {"body": body + "A"})
    pin = tx.committed_pin

The map; each module uses only those below it.

    _files         FileStorage and ScopedFiles: file trees behind the fence
    _file_tables   ... the tables they are in
    _tree          ... and a tree as a value
    _aio           AsyncEpochFence, the same for asyncio
    _fence         EpochFence, on SQLAlchemy 2
    _transaction   what a program has of a fenced transaction, and of a load
    _psycopg       PsycopgFence and epoch_fence, without SQLAlchemy
    _base          what these forms share
    _retrying      load and write again, after a refusal
    _publishing    what is told to others after a commit
    _alchemy       SQLAlchemy's connection as a link
    _scope         one transaction, from BEGIN to COMMIT, and its verdict
    _operations    look, resolve, migrate, prune
    _diagnosis     why no row matched
    _link          a connection, as the fence needs it
    _roundtrip     BEGIN and several statements in one round trip to PostgreSQL
    _drivers       what a driver knows without asking the server
    _failures      what a driver's error means
    _settings      what a fence is told once
    _statements    the statements, in the words of each database
    _pin           pins, and the tokens of commits
    _errors        what can go wrong
"""

# typing.TYPE_CHECKING without typing: nobody should pay for SQLAlchemy to use psycopg, or the other way round.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.sql._aio import AsyncEpochFence, AsyncFencedTransaction, AsyncSnapshot
    from tenure.sql._errors import (
        CommitUnknownError,
        ContextError,
        FenceError,
        LeaseLostAppliedError,
        PinError,
        PublishFailedError,
        ScopeExistsError,
        ScopeGoneError,
        ScopeLostError,
        StaleEpochError,
    )
    from tenure.sql._fence import EpochFence
    from tenure.sql._files import FileEdit, FileStorage, ScopedFiles
    from tenure.sql._operations import Applied, NotApplied, Resolution, Unknown
    from tenure.sql._pin import CommitToken, Pin
    from tenure.sql._psycopg import FencedCursor, PsycopgFence, epoch_fence
    from tenure.sql._publishing import Notice, freshness
    from tenure.sql._settings import AdvisoryXactLock, SetLocal
    from tenure.sql._transaction import FencedTransaction, Snapshot

__all__ = [
    "AdvisoryXactLock",
    "Applied",
    "AsyncEpochFence",
    "AsyncFencedTransaction",
    "AsyncSnapshot",
    "CommitToken",
    "CommitUnknownError",
    "ContextError",
    "EpochFence",
    "FenceError",
    "FencedCursor",
    "FencedTransaction",
    "FileEdit",
    "FileStorage",
    "LeaseLostAppliedError",
    "NotApplied",
    "Notice",
    "Pin",
    "PinError",
    "PsycopgFence",
    "PublishFailedError",
    "Resolution",
    "ScopeExistsError",
    "ScopeGoneError",
    "ScopeLostError",
    "ScopedFiles",
    "SetLocal",
    "Snapshot",
    "StaleEpochError",
    "Unknown",
    "epoch_fence",
    "freshness",
]

_ROOMS = {
    "AdvisoryXactLock": "_settings",
    "Applied": "_operations",
    "AsyncEpochFence": "_aio",
    "AsyncFencedTransaction": "_aio",
    "AsyncSnapshot": "_aio",
    "CommitToken": "_pin",
    "CommitUnknownError": "_errors",
    "ContextError": "_errors",
    "EpochFence": "_fence",
    "FenceError": "_errors",
    "FencedCursor": "_psycopg",
    "FencedTransaction": "_transaction",
    "FileEdit": "_files",
    "FileStorage": "_files",
    "LeaseLostAppliedError": "_errors",
    "NotApplied": "_operations",
    "Notice": "_publishing",
    "Pin": "_pin",
    "PinError": "_errors",
    "PsycopgFence": "_psycopg",
    "PublishFailedError": "_errors",
    "Resolution": "_operations",
    "ScopeExistsError": "_errors",
    "ScopeGoneError": "_errors",
    "ScopeLostError": "_errors",
    "ScopedFiles": "_files",
    "SetLocal": "_settings",
    "Snapshot": "_transaction",
    "StaleEpochError": "_errors",
    "Unknown": "_operations",
    "epoch_fence": "_psycopg",
    "freshness": "_publishing",
}
_EXTRAS = {"sqlalchemy": "sql", "psycopg": "postgresql"}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  see above

    try:
        value: object = getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _EXTRAS:
            raise
        raise ModuleNotFoundError(
            f"tenure.sql.{name} needs {library}, which is not installed: pip install 'tenure[{_EXTRAS[library]}]'",
            name=library,
        ) from error
    if isinstance(value, type) or callable(value):
        value.__module__ = __name__
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
