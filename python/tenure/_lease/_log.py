"""
What the lease says by the way, to the logger `tenure.lease`: a takeover and a loss as one warning each, the rest as debug.

`logging` is imported when there is something to say, since it costs more than all of tenure.
"""

from __future__ import annotations


def debug(message: str, *values: object) -> None:
    """Something that may help whoever looks for a fault."""
    import logging  # noqa: PLC0415  see above

    logging.getLogger("tenure.lease").debug(message, *values)


def warning(message: str, *values: object, failed: bool = False) -> None:
    """Something that an operator should see. With *failed*, the exception under way goes with it."""
    import logging  # noqa: PLC0415  see above

    logging.getLogger("tenure.lease").warning(message, *values, exc_info=failed)
