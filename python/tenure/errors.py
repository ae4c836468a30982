"""
What can go wrong, drawn, then the classes.

    Error
    ├── WriterBusyError(TimeoutError)   somebody holds the lease                       exit 75
    ├── FencedError                     we have been replaced                          exit 1
    ├── CommitUnknownError              a commit may have landed: ask before all else  exit 1
    ├── ContentMismatchError            a file changed between staging and commit      exit 1
    ├── RecordError(ValueError)         a record is damaged; its bytes are kept        exit 1
    │   └── RecordTooNewError           a newer tenure wrote it: upgrade               exit 1
    ├── StoreError(OSError)             the store failed                               exit 1
    │   ├── StoreUnavailableError       ... for now; try again                         exit 75
    │   └── StoreCannotLockError        ... for good: it cannot keep the promises      exit 78
    ├── RefusedError                    a force was refused: look again                exit 1
    ├── HoldError                       a hold was used where it is not one            exit 1
    └── IdentityError(OSError)          the platform would not say who a process is    exit 1

A class exists where the caller would act differently; everything else is a field or a better sentence. `kind` is a
promise and may be matched; messages may change. Every error pickles, and the cause travels as `__cause__`.
"""

from __future__ import annotations

# typing.TYPE_CHECKING without typing: whoever only judges should not pay for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from tenure._commit._writer import Prepared
    from tenure._core import Judgement

__all__ = [
    "CommitUnknownError",
    "ContentMismatchError",
    "Error",
    "FencedError",
    "HoldError",
    "IdentityError",
    "RecordError",
    "RecordTooNewError",
    "RefusedError",
    "StoreCannotLockError",
    "StoreError",
    "StoreUnavailableError",
    "WriterBusyError",
]

# sysexits.h: "temporary failure, the user is invited to retry" and "something was found in an unconfigured state".
EX_TEMPFAIL = 75
EX_CONFIG = 78


class Error(Exception):
    """
    Base of everything tenure raises on purpose.

    Attributes:
        kind: stable slug; match on this, never on the message.
        exit_code: what a command should exit with.
        hint: one sentence on what to do next, or None.
        applied: whether the change asked for took effect: False, True, or None for "nobody can tell yet".
    """

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    hint: str | None
    applied: bool | None

    def __init__(self, message: str, *, hint: str | None = None, applied: bool | None = False, **fields: Any) -> None:
        super().__init__(message)
        self.hint = hint
        self.applied = applied
        for name, value in fields.items():
            # Not into `__dict__`: an OSError keeps `errno` and `filename` in slots of its own.
            setattr(self, name, value)

    def __str__(self) -> str:
        # OSError would otherwise print its errno in front of our sentence.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default hands `args` alone to the class and would lose every field.
        fields = dict(self.__dict__)
        if isinstance(self, OSError):
            fields.update(errno=self.errno, filename=self.filename)
        return _rebuild, (type(self), str(self), fields)


def _rebuild(cls: type[Error], message: str, fields: dict[str, Any]) -> Error:
    return cls(message, **fields)


class WriterBusyError(Error, TimeoutError):
    """
    Somebody holds the lease, or may. Nothing was changed; it is safe to try again.

    Attributes:
        fence: the fence of the holder's claim.
        holder: one line for people: who, on which host.
        judgement: what the evidence says about the holder: verdict, reason, evidence.
        label: what the holder said it was doing, or None.
        since: when it says it took the lease (its own wall clock, ISO 8601, for people only), or None.
        retry_after_s: seconds until the earliest takeover; None while the holder is proven alive.
    """

    kind = "writer_busy"
    exit_code = EX_TEMPFAIL

    fence: int
    holder: str
    judgement: Judgement
    label: str | None
    since: str | None
    retry_after_s: float | None


class FencedError(Error):
    """
    We have been replaced by a higher fence, or are no longer who our claim says. Not safe to repeat blindly: read again first.

    Attributes:
        ours: our fence.
        current: the highest fence seen, equal to `ours` when it is our own identity that no longer fits.
    """

    kind = "fenced"

    ours: int
    current: int


class CommitUnknownError(Error):
    """
    No clear answer came in time: the commit may have landed, or may yet. Ask `CommitLog.resolve` before anything else.

    Attributes:
        commit_id: the commit's id; committing again with the same one lands it once.
        attempt: what was sent, for `CommitLog.resolve`.
    """

    kind = "commit_unknown"

    commit_id: str
    attempt: Prepared


class ContentMismatchError(Error):
    """
    What was staged is not what the file holds at the commit; the whole commit is refused, and nothing of it is visible.

    Attributes:
        path: the file.
        staged: size and SHA-256 when it was staged, as ``SIZE:DIGEST``.
        found: the same at the commit; `missing` where there is no file any more.
    """

    kind = "content_mismatch"

    path: str
    staged: str
    found: str


class RecordError(Error, ValueError):
    """
    A record cannot be understood. Its bytes are left where they are, for the operator.

    Attributes:
        key: where it was read, or None for one handed in directly.
        reason: what is wrong with it, for people.
    """

    kind = "record_damaged"

    key: str | None
    reason: str


class RecordTooNewError(RecordError):
    """
    A newer tenure wrote this record. Upgrade; nothing is damaged.

    Attributes:
        schema: the record's schema number.
        understood: the highest one this version reads.
    """

    kind = "record_too_new"

    schema: int
    understood: int


class StoreError(Error, OSError):
    """The store failed. `__cause__` has the system's own words and `errno`, where there is one, its number."""

    kind = "store_failed"


class StoreUnavailableError(StoreError):
    """The store failed for now (disk full, stale handle, no answer): the same call may succeed later."""

    kind = "store_unavailable"
    exit_code = EX_TEMPFAIL


class StoreCannotLockError(StoreError):
    """The store cannot keep the promises that a lease needs; another store or another mount is needed."""

    kind = "store_cannot_lock"
    exit_code = EX_CONFIG


class RefusedError(Error):
    """
    A forced release was refused: the lease is not the one that was looked at, or its holder is proven alive.

    Attributes:
        fence: the fence of the claim that is there now.
        nonce: its nonce, or None where the claim cannot be read.
        judgement: on its holder.
    """

    kind = "refused"

    fence: int
    nonce: str | None
    judgement: Judgement | None


class HoldError(Error):
    """A hold was used where it is not one: after its release, or in a forked child, which holds nothing."""

    kind = "not_the_holder"


class IdentityError(Error, OSError):
    """The platform would not say who a process is."""

    kind = "identity_unknown"
