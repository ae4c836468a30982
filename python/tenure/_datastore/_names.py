"""
What a file in a datastore may be called: the same name on every system, and never one that leads out of the checkout.

Refused is what some file system would change, fold or take for a device: a checkout may be on any of them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TypeGuard

# Beside a checkout's own directory; nothing of the datastore lies there.
RESERVED = ".tenure"
_MAX_BYTES, _MAX_SEGMENT_BYTES = 1024, 255
# Source: "Naming Files, Paths, and Namespaces", Microsoft; the superscript digits count as well.
_DEVICES = "con|prn|aux|nul|com[0-9]|lpt[0-9]"
_DEVICE = re.compile(rf"(?:{_DEVICES}|(?:com|lpt)[¹²³]|conin\$|conout\$)(?:\..*)?", re.IGNORECASE)
_FORBIDDEN = set('<>:"|?*\\')
# Most names are of letters, digits, `_`, `-` and inner dots, and short: nothing in them is special to any system but the devices.
# Said once more in short, since a catch-up looks at the name of every file.
_PLAIN_SEGMENT = rf"(?!(?:{_DEVICES})(?:[./]|\Z))[\w-]+(?:\.[\w-]+)*"
_PLAIN = re.compile(rf"{_PLAIN_SEGMENT}(?:/{_PLAIN_SEGMENT})*", re.IGNORECASE | re.ASCII)


def normal(name: str) -> str:
    """
    *name* in the one form that is kept: NFC, which is what people type and what most systems keep.

    Raises:
        ValueError: says what is wrong with it.
    """
    if not isinstance(name, str):
        raise TypeError(f"a name is a str, not {type(name).__name__}")
    if is_plain(name):
        return name
    name = unicodedata.normalize("NFC", name)
    problem = _problem(name)
    if problem is not None:
        raise ValueError(f"not a name for a file in a datastore: {problem}. name={name!r:.200}")
    return name


def folded(name: str) -> str:
    """Equal for two names that some file system takes for one."""
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name.casefold())


def is_normal(name: object) -> TypeGuard[str]:
    """Whether *name* is a name as `normal` returns it: for records, which anybody may have written."""
    if not isinstance(name, str):
        return False
    return is_plain(name) or (unicodedata.is_normalized("NFC", name) and _problem(name) is None)


def is_plain(name: str) -> bool:
    """Whether one look is enough to see that *name* is normal."""
    return len(name) <= _MAX_SEGMENT_BYTES and _PLAIN.fullmatch(name) is not None


def parents(name: str) -> list[str]:
    """The directories above *name*, outermost first."""
    segments = name.split("/")
    return ["/".join(segments[:depth]) for depth in range(1, len(segments))]


def _problem(name: str) -> str | None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if not name:
        return "it is empty"
    if size > _MAX_BYTES:
        return f"it has {size} bytes, more than {_MAX_BYTES}"
    if name.startswith("/"):
        return "it is absolute"
    segments = name.split("/")
    if folded(segments[0]) == RESERVED:
        return f"{RESERVED} belongs to the checkout itself"
    return next((problem for segment in segments if (problem := _problem_of_segment(segment)) is not None), None)


def _problem_of_segment(segment: str) -> str | None:
    if segment in ("", ".", ".."):
        return f"a part of it is {segment!r}"
    if len(segment.encode()) > _MAX_SEGMENT_BYTES:
        return f"a part of it has more than {_MAX_SEGMENT_BYTES} bytes"
    if segment[-1] in ". ":
        return f"a part of it ends with {segment[-1]!r}, which Windows drops"
    bad = next((character for character in segment if character in _FORBIDDEN or not character.isprintable()), None)
    if bad is not None:
        return f"it contains {bad!r}"
    if _DEVICE.fullmatch(segment):
        return f"{segment!r} is a device on Windows"
    return None
