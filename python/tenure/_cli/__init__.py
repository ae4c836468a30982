"""Room 6: the command. It imports click and rich only when it runs, so that a plain install can say what it lacks."""

from __future__ import annotations

import sys


def main() -> int:
    """The entry point of `tenure` and of `python -m tenure`; what it returns is the exit code."""
    try:
        try:
            from tenure._cli._app import run  # noqa: PLC0415  the reason stands above
        except ModuleNotFoundError as missing:
            # One of ours that is missing is a broken install, and its traceback says which.
            if missing.name is None or missing.name.partition(".")[0] not in ("click", "rich"):
                raise
            print(
                f"tenure: the command needs {missing.name}, which is not installed: pip install 'tenure[cli]'",
                file=sys.stderr,
            )
            return 1
        return run()
    except KeyboardInterrupt:
        # 128 + SIGINT, as shells say it.
        return 130
