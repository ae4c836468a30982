"""
Room 2: one rule for everybody who asks whether a holder still lives.

Two kinds of evidence feed it. The lifeline speaks of the hold, the identity of the process. Where an admissible lifeline
exists it decides, both ways; elsewhere the identity decides; elsewhere nobody knows, and time and the fence do the work.
The rule is a function of evidence: it opens nothing and knows no store.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure._identity import Judgement, ProcessIdentity, Verdict, judge

LIFELINE_HELD = Judgement(Verdict.ALIVE, "lifeline_held", "lifeline")
LIFELINE_FREE = Judgement(Verdict.GONE, "lifeline_free", "lifeline")
RELEASED = Judgement(Verdict.GONE, "released", "beat")
BROKEN = Judgement(Verdict.GONE, "released", "record", "by force")


@dataclass(frozen=True, slots=True)
class Asker:
    """Who judges: the operator's word about this host. See `judge` for what the two mean."""

    host_id: str | None = None
    host_id_is_unique: bool | None = None

    def me(self) -> ProcessIdentity:
        return ProcessIdentity.current(host_id=self.host_id)

    def judge(
        self, holder: ProcessIdentity | str | None, *, lifeline: bool | None = None, released: bool = False
    ) -> Judgement:
        """
        Whether a hold is still alive.

        Args:
            holder: who took it, as an identity or as the record's own text.
            lifeline: held (True), free (False), or nothing that could be believed (None).
            released: whether its holder wrote that it let go. Less than a lifeline: a command that was started under
                the hold may carry it on.
        """
        if lifeline is not None:
            return LIFELINE_HELD if lifeline else LIFELINE_FREE
        if released:
            return RELEASED
        return judge(holder, host_id=self.host_id, host_id_is_unique=self.host_id_is_unique)
