"""Play seeds until the time is over: `python -m tests.simulation --seconds 600`; or one of them again: `--seed 30 --scene files`."""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time
from collections.abc import Callable
from functools import partial

from tests.simulation import files, ledger
from tests.simulation.bucket import bucket

SCENES: dict[str, Callable[[int], ledger.Result]] = {
    "ledger": ledger.play,
    "ledger-bucket": partial(ledger.play, access=bucket),
    "files": files.play,
    "files-bucket": partial(files.play, access=bucket),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="play this one alone")
    parser.add_argument("--first", type=int, default=100_000, help="where to begin; the suite has the ones from 0 on")
    parser.add_argument("--scene", choices=SCENES, action="append")
    asked = parser.parse_args()
    logging.getLogger("tenure.lease").setLevel(logging.ERROR)
    scenes = asked.scene or list(SCENES)
    seeds = itertools.count(asked.first) if asked.seed is None else [asked.seed]
    end = time.monotonic() + asked.seconds
    played = landed = failed = 0
    for seed in seeds:
        for scene in scenes:
            result = SCENES[scene](seed)
            played, landed = played + 1, landed + result.landed
            if result.wrong:
                failed += 1
                print(f"seed {seed} of {scene}: {result.wrong}", flush=True)
        if time.monotonic() > end:
            break
    print(f"{played} runs, {landed} commits landed, {failed} runs wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
