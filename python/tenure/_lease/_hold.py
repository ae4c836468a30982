"""The hold: what a process has between acquire and release."""

from __future__ import annotations

import os
from types import TracebackType

from tenure._lease._tenancy import State, Tenancy
from tenure.errors import HoldError


class Hold:
    """
    The right to write, until it is released or lost. Made by `WriterLease.acquire`; a context manager.

    **held** → **expired** when no renewal has succeeded within ttl (nothing new may be started) → held again by one that
    succeeds, with the same fence, if nobody took over meanwhile; or **lost**, for good, once a higher claim exists.

    A second acquire in the same process joins: both holds have one fence, and the last release ends it. A hold belongs to
    the process that took it: in a forked child every method but `release` raises.
    """

    def __init__(self, tenancy: Tenancy) -> None:
        self._tenancy = tenancy
        self._pid = os.getpid()

    @property
    def fence(self) -> int:
        """The fencing token: higher than that of every earlier holder. Stamp it on what you write."""
        return self._tenancy.claim.fence

    @property
    def nonce(self) -> str:
        """Names the claim, for `WriterLease.force_release` and for records that say under which hold they were made."""
        return self._tenancy.claim.nonce

    @property
    def state(self) -> State:
        """
        `held`, `expired`, `lost` or `released`, as far as this process knows. For people and logs.

        It asks nobody, so it never says that you may write: that is what `check()` is for.
        """
        return self._tenancy.state() if self._tenancy.has(self) else "released"

    def check(self) -> None:
        """
        Ask the store whether this hold is still the current one. Call it before every step that must not be done twice.

        Also asks whether this process is still the one that took it (a restored checkpoint or a clone is not), and renews
        a hold that has expired. Returns nothing, so that there is no answer to forget.

        Raises:
            FencedError: it is lost, for good.
            HoldError: it was released, or this is a forked child.
            StoreError: the store cannot be asked; nothing is known, so nothing may be written.
            IdentityError: the platform would not say who this process is; likewise.
        """
        self._not_released()
        self._tenancy.check()

    def check_here(self) -> None:
        """
        All that `check` asks, except the store: is this the process that took it, with its lifeline, and not expired.

        For those whose very write is refused when a successor is there, as a commit to the log is: they need not ask
        first.

        Raises:
            As `check`.
        """
        self._not_released()
        self._tenancy.check_here()

    def renew(self) -> None:
        """
        Beat once and look whether anybody has taken over. The pulse does this every ttl / 3; nobody else needs to.

        Raises:
            As `check`.
        """
        self._not_released()
        self._tenancy.renew()

    def release(self) -> None:
        """
        Let go. The claim stays, so that the next fence is higher; nothing that a successor wrote is touched.

        A second release does nothing, as does one of a lost hold or in a forked child; one that Ctrl-C cut off can be
        repeated. Never raises for a store that cannot be reached: the lifeline is closed all the same, and others find
        the hold free.
        """
        self._tenancy.leave(self)

    def __del__(self) -> None:
        # A hold that nobody has can be checked by nobody. So an acquire that Ctrl-C cuts off after its last step leaves
        # nothing behind, and a hold that was dropped by mistake is not renewed for ever.
        tenancy = self.__dict__.get("_tenancy")
        if tenancy is not None and tenancy.has(self) and self._pid == os.getpid():
            try:
                if self.state == "lost":
                    return
                import warnings  # noqa: PLC0415  for a mistake

                warnings.warn(
                    f"a hold was dropped without release: {self!r}", ResourceWarning, source=self, stacklevel=2
                )
            except ImportError:
                # The interpreter is at its end.
                pass
            finally:
                tenancy.leave(self)

    def lifeline_fileno(self) -> int | None:
        """
        A descriptor to hand to a process that carries this hold on (`subprocess.Popen(pass_fds=…)`), or None.

        As long as anybody has it open the hold counts as alive, also after this process has ended.
        """
        self._not_released()
        return self._tenancy.lifeline_fileno()

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<Hold {self.state}: fence {self.fence} of {self._tenancy.url}>"

    def _not_released(self) -> None:
        if not self._tenancy.has(self) and self._pid == os.getpid():
            raise HoldError(f"this hold was released. fence=`{self.fence}`", hint="acquire again")
