"""
One writer at a time, and proof when the last one is gone.

The map of the house; each room imports only from rooms below it.

    _cli          the command                                     tenure run / status / whoami / judge
    _lease        who may write now                               WriterLease, Hold
    _judgement    one rule: lifeline, then identity, else unknown
    _store        five operations on a directory or in memory     open_store, tenure.stores
    _identity     who a process is                                ProcessIdentity, judge, Watch
    _core         the Rust core                                   its manual is _core.pyi
"""

from tenure._identity import Judgement, ProcessIdentity, Verdict, Watch, WatchSet, judge, judge_many
from tenure._lease._hold import Hold
from tenure._lease._lease import WriterLease
from tenure._lease._sight import LeaseStatus
from tenure.errors import (
    Error,
    FencedError,
    HoldError,
    IdentityError,
    RecordError,
    RecordTooNewError,
    StoreCannotLockError,
    StoreError,
    StoreUnavailableError,
    WriterBusyError,
)
from tenure.stores import open_store

__all__ = [
    "Error",
    "FencedError",
    "Hold",
    "HoldError",
    "IdentityError",
    "Judgement",
    "LeaseStatus",
    "ProcessIdentity",
    "RecordError",
    "RecordTooNewError",
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

# Users see where a name is to be imported from, not in which room it was made.
for _name in ("Hold", "LeaseStatus", "Verdict", "WriterLease", "judge", "judge_many"):
    globals()[_name].__module__ = __name__
del _name
