"""The three answers. A leaf, so that the Rust core can hand out members of a real enum."""

from enum import Enum


class Verdict(Enum):
    """Whether a recorded process still lives. There are three answers, because "I cannot tell from here" is one."""

    ALIVE = "alive"
    """Proven alive: nobody else may take what it holds, whatever a clock says."""
    GONE = "gone"
    """Proven gone, for good. The only verdict that is final."""
    UNKNOWN = "unknown"
    """Not knowable from here: another host, another namespace, no identity. Only time and the fence decide."""
