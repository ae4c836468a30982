"""The lease itself: look, judge, claim."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Callable, Iterator

from tenure._clock import Clock, SystemClock
from tenure._failpoints import reach
from tenure._identity import host_name
from tenure._judgement import Asker
from tenure._lease import _keys, _log
from tenure._lease._attempt import Attempt
from tenure._lease._beat import supersede
from tenure._lease._claim import Claim, WorksIn, check_terms
from tenure._lease._collection import collect
from tenure._lease._force import ForcedRelease, force_release
from tenure._lease._forsaken import is_forsaken
from tenure._lease._history import PastHold, history
from tenure._lease._hold import Hold
from tenure._lease._lifelines import Lifelines
from tenure._lease._sight import DEFAULT_SKEW, DEFAULT_TTL, LeaseStatus, Observer, highest_fence, next_fence
from tenure._lease._tenancy import Tenancy, tenancy_of, turn
from tenure._lease._waiting import Waiting
from tenure.errors import FencedError, StoreError, StoreUnavailableError, WriterBusyError
from tenure.stores import Store, as_directory, open_store

# How often one acquire may lose the race for a fence before it says busy; each loss means that somebody else won.
_RACES = 16


class WriterLease:
    """
    One writer at a time for one store, with a fence that only rises.

    A holder that is proven gone is replaced at once; one that is proven alive never, whatever a clock says; one that
    nobody can judge from here after ttl + skew of watched silence. A holder that was replaced finds out at its next
    `check()`, and storage that compares fences refuses it.

    Args:
        store: a store, or a URL or path for `open_store`.
        ttl: seconds for which one heartbeat is good; 0.05 to 86400. Renewed every third of it.
        skew: seconds that a taker waits beyond the ttl, for clocks that run at different speeds; 0 to 86400.
        label: what this writer is doing, shown to those who wait for it; one printable line of at most 200 characters.
        on_lost: called once, from any thread, with the hold that was lost. An exception in it is logged.
        host_id, host_id_is_unique: the operator's word about this host; see `judge`.
        works_in: the checkout that this writer changes files in, for those who would touch the same files.
        clock: where time comes from; for tests.

    Raises:
        ValueError: a value is out of range, or the URL is not understood.

    Example:
        >>> lease = WriterLease("memory:docs", label="nightly import")
        >>> with lease.acquire(timeout=60) as hold:
        ...     hold.check()
        ...     hold.fence
        1
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        *,
        ttl: float = DEFAULT_TTL,
        skew: float = DEFAULT_SKEW,
        label: str | None = None,
        on_lost: Callable[[Hold], None] | None = None,
        host_id: str | None = None,
        host_id_is_unique: bool | None = None,
        works_in: WorksIn | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_terms(ttl, skew, label)
        self._store: Store = open_store(store) if isinstance(store, (str, os.PathLike)) else store
        self._ttl = float(ttl)
        self._skew = float(skew)
        self._label = label
        self._on_lost = on_lost
        self._works_in = works_in
        self._asker = Asker(host_id, host_id_is_unique)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._observer = Observer(self._store, self._asker, self._clock)

    @property
    def store(self) -> Store:
        """Where the lease lives."""
        return self._store

    def inspect(self) -> LeaseStatus:
        """
        Look at the lease. Writes nothing, waits for nobody, disturbs no process.

        Raises:
            RecordTooNewError: a newer tenure holds the lease.
            StoreError: the store cannot be read.
        """
        return self._observer.look()

    def acquire(self, timeout: float = 0.0) -> Hold:
        """
        Take the lease, waiting up to *timeout* seconds; 0 tries once.

        Raises:
            WriterBusyError: still held; says by whom, and `retry_after_s` when to try again.
            RecordTooNewError: a newer tenure holds the lease.
            StoreUnavailableError: the store did not answer in time.
            StoreError: the store cannot be read or written.
        """
        if not timeout >= 0:
            raise ValueError(f"timeout must be 0 or more seconds, not {timeout!r}")
        with self.waiting(timeout) as waiting:
            while True:
                outcome = self.attempt(waiting)
                if isinstance(outcome, Hold):
                    return outcome
                waiting.a_while(outcome)

    def waiting(self, timeout: float) -> Waiting:
        """The time of one acquire; for those who wait in their own way."""
        return Waiting(self._store, self._clock, timeout)

    def attempt(self, waiting: Waiting) -> Hold | LeaseStatus | None:
        """
        Look once and take the lease if it is free: a hold, or what was seen instead, or None for a store that failed.

        The step that every way of waiting repeats.

        Raises:
            WriterBusyError, StoreUnavailableError: and there is no time left.
            RecordTooNewError, StoreError: as `acquire`.
        """
        waiting.forget()
        try:
            with turn(self._store.url):
                outcome = self._look_and_take(again=waiting.again())
        except StoreUnavailableError:
            if waiting.is_over():
                raise
            return None
        if not isinstance(outcome, Hold) and waiting.is_over():
            if outcome.state == "unknown":
                self._observer.remember()
            raise _busy(outcome)
        return outcome

    def _look_and_take(self, *, again: bool) -> Hold | LeaseStatus:
        for _ in range(_RACES):
            seen = (self._observer.glance() if again else None) or self._observer.look(to_take=True)
            again = False
            hold = self._join(seen)
            if hold is not None:
                return hold
            if seen.state != "free" and not is_forsaken(seen.nonce):
                return seen
            hold = self._claim(seen)
            if hold is not None:
                return hold
            # Lost the race: somebody else is there to be seen now.
        return self._observer.look()

    def _join(self, seen: LeaseStatus) -> Hold | None:
        """Join this process's own hold, if the claim that is the highest in the store is its."""
        tenancy = tenancy_of(seen.nonce)
        if tenancy is None:
            return None
        hold = Hold(tenancy)
        try:
            if not tenancy.join(hold):
                return None
            hold.check()
            self._tell_when_lost(hold, tenancy)
        except FencedError:
            hold.release()
            return None
        except BaseException:
            # Cut off by Ctrl-C too, or the hold would be counted for ever and nobody could release it.
            hold.release()
            raise
        return hold

    def _tell_when_lost(self, hold: Hold, tenancy: Tenancy) -> None:
        if self._on_lost is None:
            return
        callback, held = self._on_lost, weakref.ref(hold)

        def tell() -> None:
            # By a weak reference: what is to be told must not keep alive what nobody else has.
            hold = held()
            if hold is not None:
                callback(hold)

        tenancy.call_when_lost(tell)

    def force_release(self, nonce: str | None, *, even_if_alive: bool = False, dry_run: bool = False) -> ForcedRelease:
        """
        Break the hold whose *nonce* `inspect()` has shown, by burning a fence above it. Takes nothing, waits for nobody.

        The holder is not stopped: it is fenced at its next `check()`, and by storage that compares fences. A free lease
        is left as it is.

        Args:
            nonce: names the claim; None for one that cannot be read.
            even_if_alive: also a holder that is proven alive.
            dry_run: only say what would be done.

        Raises:
            RefusedError: another claim is there than the one that was looked at, or its holder is alive.
            RecordTooNewError, StoreError: as `acquire`.
        """
        return force_release(
            self._store,
            self._observer,
            self._asker,
            self._clock,
            nonce=nonce,
            even_if_alive=even_if_alive,
            dry_run=dry_run,
        )

    def history(self) -> Iterator[PastHold]:
        """
        Who held the lease before, from the oldest claim that is still there to the newest. Writes nothing.

        Raises:
            StoreError: the store cannot be read.
        """
        return history(self._store)

    def _claim(self, seen: LeaseStatus) -> Hold | None:
        """Take the next fence; None if somebody else did."""
        reach("lease.looked")
        attempt = Attempt(self._store, secrets.token_hex(16), self._clock)
        try:
            hold = self._try(attempt, seen)
        except BaseException:
            # Cut off anywhere, by Ctrl-C too: what may have been claimed blocks nobody, ourselves included.
            attempt.abandon()
            raise
        if hold is None:
            attempt.abandon()
        elif seen.judgement is not None and seen.judgement.reason != "released":
            if as_directory(self._store) is None:
                supersede(self._store, seen.fence, attempt.nonce)
            _log.warning(
                "the writer lease was taken over: fence %d from %s (%s), store %s",
                hold.fence,
                seen.holder_for_people(),
                seen.judgement.reason,
                self._store.url,
            )
        return hold

    def _try(self, attempt: Attempt, seen: LeaseStatus) -> Hold | None:
        # Locked before the claim can be seen: nobody ever finds it free while we are alive.
        attempt.lifeline = Lifelines(self._store).create(attempt.nonce)
        reach("lease.lifeline")
        fence = next_fence(self._store, seen.fence, beat=self._observer.highest_beat)
        if fence is None:
            return None
        if fence > _keys.MAX_FENCE:
            raise StoreError(f"there is no fence left. store=`{self._store.url}`", hint="start a new store")
        claim = Claim(
            fence=fence,
            nonce=attempt.nonce,
            holder=self._asker.me(),
            ttl=self._ttl,
            skew=self._skew,
            label=self._label,
            host_name=host_name() or None,
            acquired_at=self._clock.wall(),
            lifeline=None if attempt.lifeline is None else attempt.lifeline.place,
            checkout=self._works_in,
        )
        attempt.record = claim.encode()
        attempt.claimed_at = self._clock.elapsed()
        attempt.claim = claim
        if not self._win(claim.fence, attempt.record):
            return None
        self._observer.learn(claim, attempt.record)
        pulse = attempt.start_pulse()
        reach("lease.started")
        tenancy = Tenancy(self._store.url, claim, pulse=pulse, lifeline=attempt.lifeline, clock=self._clock)
        hold = Hold(tenancy)
        attempt.tenancy = tenancy
        tenancy.begin(hold)
        self._tell_when_lost(hold, tenancy)
        collect(self._store, fence)
        return hold

    def _win(self, fence: int, record: bytes) -> bool:
        key = _keys.claim(fence)
        try:
            found = self._store.create(key, record).data
        except StoreError as error:
            # The reply may be lost, and then only the key knows.
            stored = self._store.read(key, durable=True) if error.applied is None else None
            if stored is None:
                raise
            found = stored.data
        reach("lease.claimed")
        # By content, not by who was first: a store may tell even a winner that the key exists.
        if found != record:
            self._observer.expect(fence)
            return False
        # A collected number can be created again by whoever stalled between its look and its claim.
        return highest_fence(self._store, including=fence) == fence


def _busy(seen: LeaseStatus) -> WriterBusyError:
    judgement = seen.judgement
    facts = {
        "holder": seen.holder_for_people(),
        "doing": seen.label,
        "since": seen.since,
        "fence": seen.fence,
        "verdict": None if judgement is None else judgement.verdict.value,
        "reason": None if judgement is None else judgement.reason,
        "problem": seen.problem,
        "retry_after_s": None if seen.retry_after_s is None else f"{seen.retry_after_s:.1f}",
    }
    said = ", ".join(f"{name}=`{value}`" for name, value in facts.items() if value is not None)
    until = "until it ends or lets go" if seen.retry_after_s is None else "and try again"
    return WriterBusyError(
        f"the writer lease is held by another process. {said}",
        hint=f"wait {until}; `tenure status {seen.url}` shows more",
        holder=seen.holder_for_people(),
        judgement=judgement,
        fence=seen.fence,
        label=seen.label,
        since=seen.since,
        retry_after_s=seen.retry_after_s,
    )
