"""The model from the command line: `python -m tests.model --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.model.mutants import MUTANTS
from tests.model.scenes import DAILY, SOAK
from tests.model.search import explore
from tests.model.state import Model


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if the rules of the design break a promise, or a mutant breaks none."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--soak", action="store_true", help="the large scenes; without a bound each takes minutes")
    parser.add_argument("--scene", action="append", choices=[*DAILY, *SOAK], help="only this one; may be repeated")
    parser.add_argument("--states", type=int, help="leave a scene after that many states")
    parser.add_argument("--mutant", choices=[*MUTANTS], help="tell how this mistake ends")
    chosen = parser.parse_args(arguments)
    if chosen.mutant is not None:
        mutant = MUTANTS[chosen.mutant]
        found = explore(mutant.model(), chosen.states, mutant.breaks)
        print(found)
        return 0 if found.broken else 1
    scenes = DAILY | SOAK
    names = chosen.scene or [*(SOAK if chosen.soak else DAILY)]
    kept = True
    for name in names:
        found = explore(Model(scenes[name]), chosen.states)
        print(f"{name}: {found}", flush=True)
        kept = kept and not found.broken
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
