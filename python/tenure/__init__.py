"""
One writer at a time, and proof when the last one is gone.

The map of the house; each room imports only from rooms below it.

    _cli          the command                                     tenure run / status / release / doctor ...
    aio           the lease for asyncio                           tenure.aio
    _datastore    files in many checkouts, one writer              Datastore, Checkout
    _commit       what was committed, in order, for good          CommitLog, Outbox, CrashMarker
    _pidfile      the lease behind a file that old tools read     PidFile
    _lease        who may write now                               WriterLease, Hold
    _judgement    one rule: lifeline, then identity, else unknown
    _lifeline     a lock that ends with whoever carries the hold
    _store        five operations on a directory or in memory     open_store, tenure.stores
    _identity     who a process is                                ProcessIdentity, judge, Watch
    _core         the Rust core                                   its manual is _core.pyi
"""

from tenure._identity import Judgement, ProcessIdentity, Verdict, Watch, WatchSet, judge, judge_many
from tenure.errors import (
    CommitUnknownError,
    ContentMismatchError,
    Error,
    FencedError,
    HoldError,
    IdentityError,
    RecordError,
    RecordTooNewError,
    RefusedError,
    StoreCannotLockError,
    StoreError,
    StoreUnavailableError,
    WriterBusyError,
)

# typing.TYPE_CHECKING without typing, which takes longer to import than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure._commit._author import Author
    from tenure._commit._entry import Entry
    from tenure._commit._log import CommitLog
    from tenure._commit._marker import CrashMarker, Mark, Run
    from tenure._commit._outbox import Outbox
    from tenure._commit._outbox_recovery import RecoveryReport
    from tenure._commit._outbox_table import OutboxEntry
    from tenure._commit._standing import Standing, Standings
    from tenure._commit._writer import Committed, LogWriter, Prepared
    from tenure._datastore._checkout import CaughtUp, Checkout, CheckoutStatus
    from tenure._datastore._datastore import Datastore
    from tenure._datastore._recovery import Recovered
    from tenure._datastore._retention import Retained
    from tenure._datastore._verify import Damage
    from tenure._datastore._view import FileInfo, LogLine
    from tenure._datastore._writer import CheckoutWriter
    from tenure._lease._force import ForcedRelease
    from tenure._lease._history import PastHold
    from tenure._lease._hold import Hold
    from tenure._lease._lease import WriterLease
    from tenure._lease._sight import LeaseStatus
    from tenure._pidfile import PidFile
    from tenure.stores import open_store

__all__ = [
    "Author",
    "CaughtUp",
    "Checkout",
    "CheckoutStatus",
    "CheckoutWriter",
    "CommitLog",
    "CommitUnknownError",
    "Committed",
    "ContentMismatchError",
    "CrashMarker",
    "Damage",
    "Datastore",
    "Entry",
    "Error",
    "FencedError",
    "FileInfo",
    "ForcedRelease",
    "Hold",
    "HoldError",
    "IdentityError",
    "Judgement",
    "LeaseStatus",
    "LogLine",
    "LogWriter",
    "Mark",
    "Outbox",
    "OutboxEntry",
    "PastHold",
    "PidFile",
    "Prepared",
    "ProcessIdentity",
    "RecordError",
    "RecordTooNewError",
    "Recovered",
    "RecoveryReport",
    "RefusedError",
    "Retained",
    "Run",
    "Standing",
    "Standings",
    "StoreCannotLockError",
    "StoreError",
    "StoreUnavailableError",
    "Verdict",
    "Watch",
    "WatchSet",
    "WriterBusyError",
    "WriterLease",
    "judge",
    "judge_many",
    "open_store",
]

# Made when first asked for (PEP 562): a program that only judges need not pay for json, dataclasses and a store.
_ROOMS = {
    "Author": "tenure._commit._author",
    "CaughtUp": "tenure._datastore._checkout",
    "Checkout": "tenure._datastore._checkout",
    "CheckoutStatus": "tenure._datastore._checkout",
    "CheckoutWriter": "tenure._datastore._writer",
    "CommitLog": "tenure._commit._log",
    "Committed": "tenure._commit._writer",
    "CrashMarker": "tenure._commit._marker",
    "Damage": "tenure._datastore._verify",
    "Datastore": "tenure._datastore._datastore",
    "Entry": "tenure._commit._entry",
    "FileInfo": "tenure._datastore._view",
    "ForcedRelease": "tenure._lease._force",
    "Hold": "tenure._lease._hold",
    "LeaseStatus": "tenure._lease._sight",
    "LogLine": "tenure._datastore._view",
    "LogWriter": "tenure._commit._writer",
    "Mark": "tenure._commit._marker",
    "Outbox": "tenure._commit._outbox",
    "OutboxEntry": "tenure._commit._outbox_table",
    "PastHold": "tenure._lease._history",
    "PidFile": "tenure._pidfile",
    "Prepared": "tenure._commit._writer",
    "Recovered": "tenure._datastore._recovery",
    "RecoveryReport": "tenure._commit._outbox_recovery",
    "Retained": "tenure._datastore._retention",
    "Run": "tenure._commit._marker",
    "Standing": "tenure._commit._standing",
    "Standings": "tenure._commit._standing",
    "WriterLease": "tenure._lease._lease",
    "open_store": "tenure.stores",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  see above

    value: object = getattr(import_module(_ROOMS[name]), name)
    if not _ROOMS[name].startswith("tenure.s"):
        # Users see where a name is to be imported from, not in which room it was made.
        value.__module__ = __name__
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


for _name in ("Verdict", "judge", "judge_many"):
    globals()[_name].__module__ = __name__
del _name
