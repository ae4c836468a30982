"""
What can go wrong at the fence, drawn, then the classes. All are a `tenure.Error`.

    FenceError                   retry         applied   HTTP
    ├── StaleEpochError          reload        False     409   also a FencedError
    ├── ScopeGoneError           never         False     404
    ├── ScopeExistsError         never         False     409
    ├── ScopeLostError           reload, same  False     503
    ├── ContextError             never         False     500
    ├── PinError                 never         False     400   also a ValueError
    ├── CommitUnknownError       never         None      503
    ├── PublishFailedError       never         True      503
    └── LeaseLostAppliedError    never         True      503

`applied` says what became of the write, `retry` what may be done about it: `reload` (load again, then write again),
`same` (the same pin is still good) or `never`. A database that cannot keep the promises at all (autocommit, a read
replica, a missing migration) is a `tenure.StoreCannotLockError`, which says what to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from tenure.errors import EX_TEMPFAIL, Error, FencedError

if TYPE_CHECKING:
    from tenure.sql._pin import CommitToken

Retry = Literal["reload", "same", "never"]


class FenceError(Error):
    """
    Base of what the SQL fence raises.

    Attributes:
        retry: `reload`, `same` or `never`; what may be tried without applying anything twice.
        http_status: what a web handler should answer. With 503 and `retry` of `never` a client must not repeat.
        scope: whose write it was, where that is known.
    """

    kind = "fence_failed"
    http_status: ClassVar[int] = 503

    retry: Retry = "never"
    scope: str | None = None


class StaleEpochError(FenceError, FencedError):
    """
    Somebody has committed, or claimed the scope, since the data was loaded. Nothing was applied: load again.

    Attributes:
        ours: the epoch of the pin.
        current: the epoch that the database has now.
    """

    kind = "stale_epoch"
    http_status = 409
    retry: Retry = "reload"


class ScopeGoneError(FenceError):
    """The scope was destroyed, or never made. Nothing was applied."""

    kind = "scope_gone"
    http_status = 404


class ScopeExistsError(FenceError):
    """A scope of this name is alive already. Nothing was applied."""

    kind = "scope_exists"
    http_status = 409


class ScopeLostError(FenceError):
    """
    The transaction was lost before its COMMIT, and rolled back; nothing was applied.

    By a deadlock, a time-out, a serialization failure, a dead connection, or a failed statement whose error the program
    swallowed.
    """

    kind = "scope_lost"
    exit_code = EX_TEMPFAIL
    retry: Retry = "reload"


class ContextError(FenceError):
    """
    The row-level security context hides the scope from this connection. Nothing was applied, and nobody was stale.

    Without this answer a wrong context would look exactly like a stale writer: no row matches.
    """

    kind = "wrong_context"
    http_status = 500


class PinError(FenceError, ValueError):
    """A pin, a token or a scope's name that the fence never made, or made elsewhere. Nothing was applied."""

    kind = "bad_pin"
    http_status = 400


class CommitUnknownError(FenceError):
    """
    COMMIT was sent and no answer came. Ask `resolve(error.token)` before anything else; repeating could apply it twice.

    Attributes:
        token: names the commit.
    """

    kind = "commit_unknown"

    token: CommitToken


class PublishFailedError(FenceError):
    """Committed; then telling others failed. The notice is kept: `publish_deferred()` tries again."""

    kind = "publish_failed"


class LeaseLostAppliedError(FenceError):
    """Committed, since nobody had passed the fence before; but the lease was lost meanwhile. Start nothing new."""

    kind = "lease_lost_applied"
