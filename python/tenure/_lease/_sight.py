"""
One look at a lease: the highest claim, its beat, its lifeline, and what they say together.

A look reads and never writes, so it works on a read-only mount and beside a stopped holder.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Literal

from tenure._clock import Clock, SystemClock, iso
from tenure._core import glance
from tenure._core import highest_fence as highest_in_directory
from tenure._identity import Judgement, ProcessIdentity, Verdict
from tenure._judgement import BROKEN, RELEASED, Asker
from tenure._lease import _keys
from tenure._lease._beat import Beat, nonce_of_released, read_beat, read_swapped
from tenure._lease._claim import MAX_BYTES, Claim, WorksIn
from tenure._lease._lifelines import Lifelines
from tenure._lease._memory import Memory
from tenure._lease._silence import Seen, Silence, Watched
from tenure._lease._survey import Survey, list_lacks
from tenure.errors import RecordError, RecordTooNewError, StoreError, StoreUnavailableError
from tenure.stores import Store, as_directory

# For a claim that nobody can read: the longest that a writer who never thought about it would have asked for.
DEFAULT_TTL, DEFAULT_SKEW = 30.0, 10.0

_DAMAGED = Judgement(Verdict.UNKNOWN, "malformed", "record", "the claim itself cannot be read")


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """
    A lease at one moment, as `WriterLease.inspect()` and `tenure status` show it.

    Attributes:
        url: the store.
        state: `free` (never taken, released, or its holder is proven gone), `held` (its holder is proven alive) or
            `unknown` (nobody can tell from here; time and the fence decide).
        fence: the highest fence taken so far; 0 if the lease was never taken.
        judgement: on the holder; None if there never was one.
        holder: who took that fence; None where there was nobody, or the record names nobody that can be understood.
        host_name: what the holder's machine calls itself, for people.
        label: what it said it is doing.
        since: when it says it took the lease (its own wall clock), for people.
        ttl, skew: of the record, in seconds.
        nonce: of the claim; an operator names it to break the lease.
        beat: number of the last heartbeat; 0 if none was seen.
        last_beat: when it was written, by the file system's clock, for people; None where the store does not say.
        retry_after_s: seconds until the earliest takeover: 0 when free, None while the holder is proven alive.
        checkout: the checkout that its holder works in, where it named one.
        problem: what is wrong with the claim, where it cannot be read.
    """

    url: str
    state: Literal["free", "held", "unknown"]
    fence: int = 0
    judgement: Judgement | None = None
    holder: ProcessIdentity | None = None
    host_name: str | None = None
    label: str | None = None
    since: str | None = None
    ttl: float | None = None
    skew: float | None = None
    nonce: str | None = None
    beat: int = 0
    last_beat: str | None = None
    retry_after_s: float | None = 0.0
    checkout: WorksIn | None = None
    problem: str | None = None

    def holder_for_people(self) -> str:
        """The holder in one word: `host/pid`, or what is known instead."""
        if self.holder is None:
            return self.host_name or "somebody unknown"
        return f"{self.host_name or 'unnamed host'}/{self.holder.pid}"


class Observer:
    """Looks at one lease, again and again, and remembers how long it has been silent."""

    def __init__(self, store: Store, asker: Asker, clock: Clock) -> None:
        self._store = store
        self._directory = as_directory(store)
        self._lifelines = Lifelines(store)
        self._asker = asker
        self._clock = clock
        self._silence = Silence()
        # Only for the machine's own clocks, and for a store that is there in the next process: to another one of the same
        # name, or to a test's clock, what was watched here means nothing.
        lasts = isinstance(clock, SystemClock) and not store.url.startswith("memory:")
        self._memory = Memory(store.url) if lasts else None
        self._remembered = Watched([], 0.0, 0.0)
        # The last claim that was read, and its record: a waiter sees the same one again and again.
        self._known: tuple[bytes | None, Claim | None] = None, None
        # Where each question is a request: what was seen so far need not be asked again.
        self._survey = Survey(store) if self._directory is None else None
        self._seen: tuple[Claim, Beat] | None = None
        self._glances = 0
        self.highest_beat: int | None = None

    def expect(self, fence: int) -> None:
        """Note that the claim of *fence* is there: somebody else was first to take it."""
        if self._survey is not None:
            self._survey.expect(fence)

    def glance(self) -> LeaseStatus | None:
        """
        What there is to see by one request, if the holder seen last is silent or beats on; None: look.

        Raises:
            StoreError: the store cannot be read.
        """
        if self._seen is None or self._glances >= _GLANCES:
            return None
        self._glances += 1
        claim, before = self._seen
        beat = read_beat(self._store, claim.fence, claim.nonce)
        if beat.released or beat.number < before.number:
            return None
        status = self._status(claim, beat)
        return None if status.state == "free" else status

    def look(self, *, to_take: bool = False) -> LeaseStatus:
        """
        What there is to see now. Writes nothing.

        With *to_take* no more is asked than whether it may be taken: a claim that is released is not read.

        Raises:
            RecordTooNewError: a newer tenure holds the lease.
            StoreError: the store cannot be read.
        """
        url = self._store.url
        self._glances = 0
        for _ in range(_ATTEMPTS):
            quick = self._in_one_go()
            if quick is not None:
                fence = quick[0]
            elif self._survey is None:
                fence = highest_fence(self._store)
            else:
                fence, self.highest_beat = self._survey.look()
            if fence == 0:
                return LeaseStatus(url, "free")
            record = None
            if self.highest_beat is not None:
                record = read_swapped(self._store, fence) if fence <= self.highest_beat else b""
            if to_take and record and (nonce := nonce_of_released(record)) and not self._lifelines.files(nonce):
                return LeaseStatus(url, "free", fence=fence, judgement=RELEASED, nonce=nonce)
            try:
                claim = self._claim(fence, None if quick is None else quick[1])
            except RecordTooNewError:
                raise
            except RecordError as error:
                return self._unreadable(fence, error.reason)
            if claim is not None:
                if quick is not None:
                    beat = Beat.decode(quick[2], claim.nonce, quick[3])
                else:
                    beat = (
                        read_beat(self._store, fence, claim.nonce)
                        if record is None
                        else Beat.decode(record, claim.nonce)
                    )
                return self._status(claim, beat)
            # Collected, which happens only below a higher claim: look again.
        raise StoreUnavailableError(f"claims vanish as fast as they are read. store=`{url}`", hint="try again")

    def _in_one_go(self) -> tuple[int, bytes, bytes, int] | None:
        """All that is to be read of a directory; None for another store, or where reading piece by piece has to say what is wrong."""
        if self._directory is None:
            return None
        try:
            return glance(self._directory.root, _keys.PREFIX[:-1], _keys.BEATS[len(_keys.PREFIX) : -1], MAX_BYTES)
        except OSError:
            return None

    def _understand(self, fence: int, record: bytes | None) -> Claim | None:
        if record is None:
            return None
        known, claim = self._known
        if record != known or claim is None or claim.fence != fence:
            claim = Claim.decode(_keys.claim(fence), record)
            self.learn(claim, record)
        return claim

    def learn(self, claim: Claim, record: bytes) -> None:
        """Know *claim* by its *record*, which need not be understood again: no claim is ever changed."""
        self._known = record, claim

    def remember(self) -> None:
        """Keep what was watched for a later process of this host."""
        watched = self._silence.watched()
        if self._memory is None or watched is None:
            return
        # Not at every look of somebody who comes back ten times a second: the gap since counts anyway.
        if watched.seen != self._remembered.seen or watched.looked_at >= self._remembered.looked_at + 1.0:
            self._memory.remember(watched)
            self._remembered = watched

    def _claim(self, fence: int, record: bytes | None) -> Claim | None:
        if record is None:
            # Write-once, so what was read of it stays true.
            if self._seen is not None and self._seen[0].fence == fence:
                return self._seen[0]
            record = read_record(self._store, fence)
        return self._understand(fence, record)

    def _status(self, claim: Claim, beat: Beat) -> LeaseStatus:
        if self._survey is not None:
            self._seen = claim, beat
        if claim.tombstone:
            judgement = BROKEN
        else:
            lifeline = self._lifelines.asked(claim.nonce, claim.lifeline)
            judgement = self._asker.judge(claim.holder, lifeline=lifeline, released=beat.released)
        seen: Seen = [claim.fence, claim.nonce, beat.number, beat.stamp]
        state, retry_after = self._weigh(judgement, seen, claim.ttl, claim.skew)
        return LeaseStatus(
            url=self._store.url,
            state=state,
            fence=claim.fence,
            judgement=judgement,
            holder=claim.holder if isinstance(claim.holder, ProcessIdentity) else None,
            host_name=claim.host_name,
            label=claim.label,
            since=claim.acquired_at,
            ttl=claim.ttl,
            skew=claim.skew,
            nonce=claim.nonce,
            beat=beat.number,
            last_beat=None if not beat.stamp else iso(beat.stamp),
            retry_after_s=retry_after,
            checkout=claim.checkout,
        )

    def _unreadable(self, fence: int, problem: str) -> LeaseStatus:
        """Torn, empty or oversized: the fence is used, the owner unknown, the bytes kept."""
        state, retry_after = self._weigh(_DAMAGED, [fence, problem, None, None], DEFAULT_TTL, DEFAULT_SKEW)
        return LeaseStatus(
            url=self._store.url,
            state=state,
            fence=fence,
            judgement=_DAMAGED,
            ttl=DEFAULT_TTL,
            skew=DEFAULT_SKEW,
            retry_after_s=retry_after,
            problem=problem,
        )

    def _weigh(
        self, judgement: Judgement, seen: Seen, ttl: float, skew: float
    ) -> tuple[Literal["free", "held", "unknown"], float | None]:
        if judgement.verdict is not Verdict.UNKNOWN:
            # Silence counts for those whom nobody can judge. One who was alive a moment ago has not been silent: a single
            # question that the kernel could not answer must not end a stopped process's hold.
            self._silence.forget()
            return ("free", 0.0) if judgement.verdict is Verdict.GONE else ("held", None)
        earlier = None
        if self._memory is not None and not self._silence.knows(seen):
            earlier = self._memory.recall()
        left = self._silence.look(seen, self._clock.awake(), ttl=ttl, skew=skew, earlier=earlier)
        return ("unknown", left) if left > 0 else ("free", 0.0)


# Each time round a collector must have removed the very claim that was the highest a moment before.
_ATTEMPTS = 10
# How often a waiter asks for the heartbeat alone. Of a successor that could not overwrite it, it hears by the next look.
_GLANCES = 15


def read_claim(store: Store, fence: int) -> Claim | None:
    """
    The claim of *fence*; None if there is none.

    Raises:
        RecordTooNewError, RecordError: as `Claim.decode` and `read_record`.
        StoreError: the store cannot be read.
    """
    record = read_record(store, fence)
    return None if record is None else Claim.decode(_keys.claim(fence), record)


def read_record(store: Store, fence: int) -> bytes | None:
    """
    What is written under the claim of *fence*; None if there is none.

    Raises:
        RecordError: it is too large to be read.
        StoreError: the store cannot be read.
    """
    key = _keys.claim(fence)
    try:
        stored = store.read(key)
    except StoreError as error:
        if error.errno != errno.EFBIG:
            raise
        raise RecordError(str(error), key=key, reason=str(error)) from error
    return None if stored is None else stored.data


def highest_beat(store: Store) -> int:
    """
    The highest fence that any heartbeat belongs to; 0 if there is none.

    A second witness for the counter: whoever deletes the claim of a living holder must not make its fence be given out
    again.
    """
    quick = _highest_file(store, _keys.BEATS)
    if quick is not None:
        return quick
    numbers = (_keys.fence_of_beat(key) for key in store.list(_keys.BEATS))
    return max((fence for fence in numbers if fence is not None), default=0)


def next_fence(store: Store, judged: int, *, beat: int | None = None) -> int | None:
    """
    The fence to take for whoever has judged the claim of fence *judged*; None if there is a later claim by now.

    A heartbeat is made after its claim. So one above the claim that was judged is that of a new holder, whom nobody has
    judged, unless its claim is not there: then somebody deletes claims, and its number must not be given out again.

    *beat* is the highest fence of any heartbeat, where that look has seen it.
    """
    if beat is None:
        beat = highest_beat(store)
    if beat > judged and highest_fence(store) > judged:
        return None
    return max(judged, beat) + 1


def highest_fence(store: Store, *, including: int | None = None) -> int:
    """
    The highest fence that any claim has taken; 0 if there is none.

    Raises:
        StoreUnavailableError: the claim of the fence *including*, which must be there, is not in the list: the list is
            not to be believed.
    """
    quick = _highest_file(store, _keys.PREFIX)
    if quick is not None and (including is None or quick >= including):
        return quick
    # From just below our own claim where there is one: what is older does not matter.
    highest, seen_own = 0, including is None
    for key in store.list(_keys.PREFIX, after=_keys.claim(including - 1) if including else ""):
        fence = _keys.fence_of(key)
        if fence is None:
            # Digits sort before letters, so the claims are over.
            if key > _keys.claim(_keys.MAX_FENCE):
                break
            continue
        highest = fence
        seen_own = seen_own or fence == including
    # A higher one is proof enough, also where ours has been collected meanwhile.
    if including is not None and not seen_own and highest < including:
        raise list_lacks(store, including)
    return highest


def _highest_file(store: Store, prefix: str) -> int | None:
    """The same for a directory, without a list of it; None for another store, or where the list has to say what is wrong."""
    directory = as_directory(store)
    if directory is None:
        return None
    try:
        return highest_in_directory(f"{directory.root}/{prefix[:-1]}")
    except OSError:
        return None
