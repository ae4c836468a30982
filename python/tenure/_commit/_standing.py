"""
One answer to "may I touch what this writer left?", for all five who ask.

The writer's lifeline is asked first, which its claim leads to, then its own identity; where neither knows, time and the fence
decide. What follows from the answer is one table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tenure._commit._author import Author
from tenure._identity import Judgement, ProcessIdentity, Verdict, judge_many
from tenure._judgement import RELEASED, Asker
from tenure._lease import _keys
from tenure._lease._beat import read_beat
from tenure._lease._claim import Claim
from tenure._lease._lease import WriterLease
from tenure._lease._sight import LeaseStatus, read_claim
from tenure._lease._tenancy import tenancy_of
from tenure._lifeline import asked
from tenure.errors import RecordError
from tenure.stores import as_directory

State = Literal["gone", "alive", "waiting", "over"]


@dataclass(frozen=True, slots=True)
class Standing:
    """
    Where the writer of a record stands.

    Attributes:
        state: `gone` and `alive` are proven. Nobody can judge the others from here: `waiting` may be alive as far as anybody
            knows; `over` has been silent for ttl + skew, or a higher fence has replaced it.
        judgement: what the evidence says.
        retry_after_s: seconds until a `waiting` one is over; None where time alone will not tell.
    """

    state: State
    judgement: Judgement
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Treatment:
    """What each of the five does about a writer."""

    lease: Literal["take", "busy"]
    catch_up: Literal["after_recovery", "refused", "under_own_claim"]
    marker: Literal["interrupted", "live"]
    outbox: Literal["land", "skip"]
    temp_files: Literal["remove", "keep"]


# "land" is always subject to the conflict rule, and "take" is followed by recovery. Files that lie about are removed only where
# their writer is proven gone: one whose time is over may still be writing into them.
TABLE: dict[State, Treatment] = {
    "gone": Treatment("take", "after_recovery", "interrupted", "land", "remove"),
    "alive": Treatment("busy", "refused", "live", "skip", "keep"),
    "waiting": Treatment("busy", "refused", "live", "skip", "keep"),
    "over": Treatment("take", "under_own_claim", "interrupted", "land", "keep"),
}


def treatment(standing: Standing) -> Treatment:
    """What to do about a writer that stands so."""
    return TABLE[standing.state]


class Standings:
    """
    Where writers stand, as seen in one pass: each is judged once and remembered. Make a new one for the next pass.

    Args:
        lease: the lease they wrote under. Without it no lifeline can be asked and nobody's time is ever over.
        fence: one that is known to have been taken, as that of one's own hold; whoever has a lower one is replaced.
    """

    def __init__(self, lease: WriterLease | None = None, *, fence: int = 0) -> None:
        self.probes = 0
        """How many writers were judged."""
        self._lease = lease
        # The operator's word about this host, given to the lease, holds for all that concerns it.
        self._asker = Asker() if lease is None else lease._asker  # noqa: SLF001  the same question, asked for other records
        self._fence = fence
        self._current: LeaseStatus | None = None
        self._known: dict[Author, Standing] = {}

    def of(self, author: Author) -> Standing:
        """
        Where *author* stands.

        Raises:
            RecordTooNewError: a newer tenure holds the lease.
            StoreError: the lease cannot be read.
        """
        if author not in self._known:
            self.learn([author])
        return self._known[author]

    def learn(self, authors: Iterable[Author]) -> None:
        """
        Judge many at once, for `of`: one probe per author that is not known yet.

        Raises:
            As `of`.
        """
        decided: dict[Author, Judgement] = {}
        # Those of whom no lifeline and no beat speaks, with the identity that is left to judge.
        left: dict[Author, ProcessIdentity | str | None] = {}
        for author in dict.fromkeys(authors):
            if author in self._known:
                continue
            claim = self._claim_of(author)
            judgement = None if claim is None else self._of_the_hold(claim)
            if judgement is not None:
                decided[author] = judgement
            else:
                left[author] = claim.holder if claim is not None and author.identity is None else author.identity
        processes = judge_many(
            left.values(), host_id=self._asker.host_id, host_id_is_unique=self._asker.host_id_is_unique
        )
        for author, judgement in zip(left, processes, strict=True):
            decided[author] = RELEASED if _has_ended_here(author) else judgement
        self.probes += len(decided)
        for author, judgement in decided.items():
            self._known[author] = self._weigh(author, judgement)

    def _of_the_hold(self, claim: Claim) -> Judgement | None:
        """What speaks of the hold itself: its lifeline, and the word "released". None if neither does."""
        assert self._lease is not None
        store = self._lease.store
        directory = as_directory(store)
        lifeline = None
        if directory is not None:
            lifeline = asked(directory, _keys.lifeline(claim.nonce), claim.lifeline)
        released = read_beat(store, claim.fence, claim.nonce).released
        if lifeline is None and not released:
            return None
        return self._asker.judge(None, lifeline=lifeline, released=released)

    def _claim_of(self, author: Author) -> Claim | None:
        """The claim of the author's fence, if it is the author's."""
        if self._lease is None or author.fence is None:
            return None
        try:
            claim = read_claim(self._lease.store, author.fence)
        except RecordError:
            # It says nothing that we understand; the author's own record may.
            return None
        return claim if claim is not None and claim.nonce == author.nonce else None

    def _weigh(self, author: Author, judgement: Judgement) -> Standing:
        if judgement.verdict is not Verdict.UNKNOWN:
            return Standing("gone" if judgement.verdict is Verdict.GONE else "alive", judgement)
        if author.fence is None:
            # It never had a hold that could be replaced or fall silent.
            return Standing("waiting", judgement)
        if author.fence < self._fence:
            return Standing("over", judgement)
        if self._lease is None:
            return Standing("waiting", judgement)
        if self._current is None:
            self._current = self._lease.inspect()
        current = self._current
        if current.fence > author.fence or (current.fence == author.fence and current.state == "free"):
            return Standing("over", judgement)
        # A claim that is missing, below a fence that was taken, proves nothing either.
        return Standing("waiting", judgement, current.retry_after_s if current.fence == author.fence else None)


def _has_ended_here(author: Author) -> bool:
    """Whether the author was this very process, which lives, and no longer has what it wrote under."""
    me, identity = ProcessIdentity.current(), author.identity
    if not isinstance(identity, ProcessIdentity) or _of_the_kernel(identity) != _of_the_kernel(me):
        return False
    if author.fence is not None:
        return tenancy_of(author.nonce) is None
    # It may have become another program since, which knows nothing of what the one before was writing.
    return identity.nonce not in (None, me.nonce)


def _of_the_kernel(identity: ProcessIdentity) -> tuple[object, ...]:
    """What stays the same over an exec."""
    return identity.os, identity.boot, identity.ns, identity.pid, identity.start, identity.uniq
