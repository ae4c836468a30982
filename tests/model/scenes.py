"""Who wants to write what, and how much may go wrong: small scenes for every day, large ones for a night."""

from __future__ import annotations

from types import MappingProxyType

from tests.model.state import Op, Scene

_A1, _A2, _B1, _C1 = Op("a1", 0), Op("a2", 0, "y"), Op("b1", 1), Op("c1", 2, "y")
# Stores content, loses interest in it, and needs the same content again under another name.
_AGAIN = (Op("a1", 0), Op("a2", 0, content=False), Op("a3", 0, "y"))


def _by_name(*scenes: Scene) -> MappingProxyType[str, Scene]:
    return MappingProxyType({scene.name: scene for scene in scenes})


# Each is explored to its end by every test run, by the rules of the design; and by wrong rules until they are caught.
DAILY = _by_name(
    Scene("takeover", (_A1,), crashes=1, late=1),
    Scene("three writers", (_A1, _B1, _C1), writers=3),
    Scene("conflict", (_A1, _B1)),
    Scene("landing", (_A1,), fences=4),
    Scene("undecided", (_A1, _A2), fences=2, late=2, snapshots=1, shared=False),
    Scene("unsent", (_A1, _A2), unsent=1, snapshots=1, shared=False),
    Scene("collection", (_A1,), late=1, snapshots=1, shared=False),
    Scene("stale seal", (_A1, _B1), snapshots=1, shared=False),
    Scene("skipping", (_A1,), snapshots=1, skips=True),
    Scene("reader", (_B1,), snapshots=1, reader=True),
    Scene("claims", (_A1,), claims_collected=True),
    Scene("joining", (_A1,), joins=True),
    Scene("blobs", _AGAIN, blobs=True),
    Scene("late deletion", _AGAIN, fences=2, blobs=True, late=1),
)

# Most have more than a million states.
SOAK = _by_name(
    Scene("takeover, a commit each", (_A1, _B1), crashes=1, late=1),
    Scene("three writers, a late request", (_A1, _B1, _C1), writers=3, late=1),
    Scene("three writers, one checkout each", (_A1, _B1), writers=3, late=1, snapshots=1, shared=False),
    Scene("two crashes, two late requests", (_A1, _A2, _B1), crashes=2, late=2),
    Scene("four fences", (_A1, _B1), fences=4, crashes=1, late=1),
    Scene("collection, one outbox", (_A1, _A2, _B1), late=1, snapshots=1, skips=True),
    Scene("collection, an outbox each", (_A1, _B1), crashes=1, late=1, snapshots=2, shared=False),
    Scene("blobs and collection", (*_AGAIN, _B1), late=1, snapshots=1, blobs=True, skips=True),
    Scene("reader and late requests", (_A1, _B1), late=1, snapshots=1, reader=True),
    Scene(
        "everything",
        (_A1, _B1),
        crashes=1,
        late=1,
        snapshots=1,
        claims_collected=True,
        skips=True,
        joins=True,
        blobs=True,
    ),
)
