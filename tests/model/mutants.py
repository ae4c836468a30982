"""
The protocol with one rule left out, each under the name of the mistake.

A checker that finds nothing proves nothing unless it finds these. `breaks` is the promise that suffers; `scene` the small
scene in which that is seen, and in which the rules of the design keep every promise.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from tests.model.scenes import DAILY
from tests.model.state import Model, Rules


class Mutant(NamedTuple):
    rules: Rules
    scene: str
    breaks: str

    def model(self) -> Model:
        return Model(DAILY[self.scene], self.rules)


_FAILED = "what is reported failed is not in the log"
_LOST = "what is acknowledged is in the log"
_TWICE = "a commit lands once"
_OVERTAKEN = "an opened log is closed to older fences"
_CONTENT = "live content is there"

MUTANTS = MappingProxyType(
    {
        "no seal": Mutant(Rules(seals=False), "takeover", _OVERTAKEN),
        "check that I am current, then put": Mutant(Rules(put_is_conditional=False), "takeover", _TWICE),
        "an unclear answer is a failure": Mutant(Rules(unclear_is_unknown=False), "takeover", _FAILED),
        "recovery without the landing mark": Mutant(Rules(landing_is_marked=False), "takeover", _FAILED),
        "recovery before the seal": Mutant(Rules(seal_before_recovery=False), "takeover", _TWICE),
        "a seal that ignores a higher fence": Mutant(
            Rules(seal_heeds_higher_fence=False), "takeover", "fences never fall"
        ),
        "a seal not checked after its create": Mutant(Rules(seal_checked=False), "stale seal", "an open log is sealed"),
        "seals collected": Mutant(Rules(seals_kept=False), "stale seal", _LOST),
        "claims collected without a look above": Mutant(
            Rules(look_above_claim=False), "claims", "no fence is taken twice"
        ),
        "an unclear put and a higher claim: withdraw": Mutant(Rules(only_slot_decides=False), "takeover", _FAILED),
        "below the floor is not applied": Mutant(Rules(reign_decides_below_floor=False), "collection", _FAILED),
        "a reader of ghosts": Mutant(Rules(reader_looks_at_floor=False), "reader", "a reader applies the truth"),
        "the floor past a skipped entry": Mutant(
            Rules(floor_waits_for_undecided=False), "skipping", "what is skipped stays landable"
        ),
        "a lost hold is joined": Mutant(Rules(join_asks=False), "joining", "a lost hold is joined by nobody"),
        "a blob deleted without condemning": Mutant(Rules(condemned_before_deleted=False), "blobs", _CONTENT),
        "another commit for the slot of an undecided one": Mutant(
            Rules(undecided_keeps_its_slot=False), "undecided", _LOST
        ),
        "another commit for the slot of one that was never sent": Mutant(
            Rules(unsent_is_withdrawn=False), "unsent", "what is marked landed is in the log"
        ),
        "an answer from a freed slot": Mutant(Rules(floor_read_after_slot=False), "collection", _FAILED),
        "a seal in a freed slot is not applied": Mutant(Rules(foreign_seal_tells_nothing=False), "collection", _FAILED),
        "a landing row taken on by a lower fence": Mutant(Rules(only_higher_takes_on=False), "landing", _TWICE),
        "late landing whatever has changed since": Mutant(
            Rules(conflicts_are_kept=False), "conflict", "nothing newer is rewound"
        ),
        "condemned content used again": Mutant(Rules(condemned_is_stored_anew=False), "blobs", _CONTENT),
        "a hold condemns what it stored itself": Mutant(Rules(own_blobs_spared=False), "late deletion", _CONTENT),
    }
)
