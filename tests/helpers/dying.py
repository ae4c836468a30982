"""Children that play a scene with a datastore and are killed in it: by `SIGKILL`, at a fail point."""

from __future__ import annotations

import os
import traceback
from pathlib import Path


def play(scene: str, place: str, points: str = "") -> int:
    """
    Play a scene of `tests.datastore.scenes` in a child with these fail points; the signal that ended it, or 0.

    Forked, and not started anew: there are hundreds of them. To be asked of an agent, which has one thread.
    """
    from tenure import _failpoints
    from tests.datastore import scenes

    child = os.fork()
    if not child:
        code = 1
        try:
            vars(_failpoints)["_points"] = _failpoints._parse(points)
            getattr(scenes, scene)(Path(place))
            code = 0
        except BaseException:  # noqa: BLE001  said here, since nothing of this process may go on
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"{scene} failed with {points!r}; see above")
    return os.WTERMSIG(status)
