"""
Fail points: places between two steps at which a test can make this process die, stop, stall or fail.

They are in the shipped code, because faults between steps are what random kills do not find. Without the environment
variable `TENURE_FAILPOINTS` a point costs one look at an empty dictionary.

    TENURE_FAILPOINTS="publish.linked=kill;lease.claimed=sleep:0.2;lease.beat=error"

| point | what has just happened |
|---|---|
| `publish.written` | a record is in its temporary file, not yet synced |
| `publish.synced` | ... and synced, not yet under its key |
| `publish.linked` | it is under its key, the directory not yet synced |
| `lease.looked` | the lease was found free |
| `lease.lifeline` | the lifeline is locked, nothing is claimed |
| `lease.claimed` | the claim is in the store, nothing above it was looked for |
| `lease.started` | the heartbeat exists, the pulse has not started |
| `lease.beat` | a renewal is about to be written |
| `lease.releasing` | the last hold was given back: the pulse still runs, nothing says "released" yet |
| `log.looked` | the end of the log is known, no seal is there |
| `log.sealed` | the seal is in the log, nobody has looked whether it may stand there |
| `log.putting` | a commit is about to be put |
| `log.put` | it is in its slot, nobody has been told |
| `log.snapshot` | a snapshot is in its slot, nothing says that readers can begin there |
| `log.floor` | the new floor is noted, nothing below it removed |
| `outbox.prepared` | an entry is in the outbox, nothing of it was sent |
| `outbox.landing` | a recovery has marked a batch of entries as its own |
| `outbox.put` | one of them is in the log, the outbox does not know it |
| `outbox.landed` | the batch is settled |
| `checkout.noted` | the marker and the list of what is under way name a file, nothing has touched it |
| `checkout.put` | a file of the checkout is changed and staged |
| `checkout.stored` | the content of a commit is in blobs, nothing of the commit itself is written |
| `checkout.recorded` | outbox and catalog know that a commit has landed, its writer has not said so |
| `checkout.discarded` | a writer that closes has put back what it did not commit, its marker is there |
| `checkout.applied` | a batch of files is in its new state, the catalog does not vouch for it |
| `checkout.moved` | what was not committed is moved aside, the committed content is not back |
| `checkout.restored` | ... and it is back, everywhere; what is new has not been looked at |
| `checkout.cleaned` | the files are put right, the dead writer's marker is there |
| `checkout.cleared` | its marker is gone |
| `retention.collected` | old entries are removed, nothing is condemned |
| `retention.condemned` | blobs are condemned, those of the pass before are not deleted |
| `retention.deleted` | one of these is deleted, the catalog does not know it |

| action | what happens there |
|---|---|
| `kill` | this process dies as by kill -9 |
| `stop` | it is stopped, until somebody continues it |
| `sleep:SECONDS` | this thread sleeps |
| `error` | `StoreUnavailableError` is raised |

`NAME=ACTION@N` acts at the Nth time only; otherwise at every time.
"""

from __future__ import annotations

import os

VARIABLE = "TENURE_FAILPOINTS"


def _parse(text: str) -> dict[str, tuple[str, float, int]]:
    points: dict[str, tuple[str, float, int]] = {}
    for entry in filter(None, (entry.strip() for entry in text.split(";"))):
        name, equals, action = entry.partition("=")
        action, _, nth = action.partition("@")
        action, _, seconds = action.partition(":")
        if not equals or action not in ("kill", "stop", "sleep", "error"):
            raise ValueError(f"{VARIABLE}: expected NAME=kill|stop|sleep:SECONDS|error, found {entry!r}")
        points[name] = (action, float(seconds or 0), int(nth or 0))
    return points


_points = _parse(os.environ.get(VARIABLE, ""))
_reached: dict[str, int] = {}


def reach(name: str) -> None:
    """Pass the point *name*, unless somebody has asked for something to happen there."""
    if _points and name in _points:
        _act(name)


def _act(name: str) -> None:
    import signal  # noqa: PLC0415  only when it is wanted
    import time  # noqa: PLC0415  likewise

    from tenure.errors import StoreUnavailableError  # noqa: PLC0415  likewise

    action, seconds, nth = _points[name]
    _reached[name] = _reached.get(name, 0) + 1
    if nth and _reached[name] != nth:
        return
    if action in ("kill", "stop"):
        # To ourselves, and only where a test has asked for it. By name, since Windows has neither.
        signal.raise_signal(getattr(signal, f"SIG{action.upper()}"))  # noqa: TID251  the fault is the point
    elif action == "sleep":
        time.sleep(seconds)  # noqa: TID251  the delay is the point
    else:
        raise StoreUnavailableError(f"the fail point was reached. point=`{name}`", hint=f"{VARIABLE} asks for it")
