"""
The claim: a write-once record that takes a fence and says who took it.

An older reader ignores fields it does not know. A newer schema is refused, never read as damage. A wrong identity makes
a claim without identity (time and the fence decide), never an invalid claim.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

from tenure._identity import ProcessIdentity
from tenure._lease import _keys
from tenure._lifeline import Place
from tenure.errors import RecordError, RecordTooNewError

SCHEMA = 1
# A claim of ours has about 700 bytes. What is larger is not one, and is not parsed.
MAX_BYTES = 16_384
# Shorter cannot be kept by a busy machine, longer is a mistake: nobody waits a day for a silent holder.
MIN_TTL, MAX_TTL = 0.05, 86_400.0
_MAX_LABEL = 200
_MAX_PATH = 4096


@dataclass(frozen=True, slots=True)
class WorksIn:
    """
    The checkout that a holder writes in. Its `id` decides, its `path` is for people.

    In the claim, because a file of its own beside the claim could be rewritten or removed by a holder that was replaced.
    """

    id: str
    path: str

    @staticmethod
    def from_record(record: object) -> WorksIn | None:
        """None for whatever is not one."""
        if not isinstance(record, dict):
            return None
        name, path = (_text(record.get(field), _MAX_PATH) for field in ("id", "path"))
        return WorksIn(name, path or "") if name else None


@dataclass(frozen=True, slots=True)
class Claim:
    """
    What a claim says.

    `holder` is the record's own text where it holds no identity we understand, so that the judgement can say why.
    `host_name` and `acquired_at` are for people and decide nothing. A `tombstone` holds nothing: it is what a forced
    release leaves, so that the fence it broke is below another; an older reader takes it for a claim whose holder has
    ended.
    """

    fence: int
    nonce: str
    holder: ProcessIdentity | str | None
    ttl: float
    skew: float
    label: str | None
    host_name: str | None
    acquired_at: str | None
    lifeline: Place | None
    checkout: WorksIn | None = None
    tombstone: bool = False

    def encode(self) -> bytes:
        holder = self.holder.to_json() if isinstance(self.holder, ProcessIdentity) else self.holder
        fields: dict[str, object] = {
            "v": SCHEMA,
            "fence": str(self.fence),
            "nonce": self.nonce,
            "holder": None if holder is None else json.loads(holder),
            "ttl": self.ttl,
            "skew": self.skew,
            "label": self.label,
            "host_name": self.host_name,
            "acquired_at": self.acquired_at,
            "lifeline": None if self.lifeline is None else self.lifeline.to_record(),
        }
        if self.checkout is not None:
            fields["checkout"] = {"id": self.checkout.id, "path": self.checkout.path}
        if self.tombstone:
            fields["tombstone"] = True
        return (json.dumps(fields, separators=(",", ":")) + "\n").encode()

    @staticmethod
    def decode(key: str, data: bytes) -> Claim:
        """
        Read the claim found under *key*.

        Raises:
            RecordTooNewError: a newer tenure wrote it.
            RecordError: it is torn, empty, oversized or not a claim; it takes its fence all the same.
        """
        fields = _object(key, data)
        fence = fields.get("fence")
        if fence != str(_keys.fence_of(key)):
            _damaged(key, f"fence: it takes another fence than its key, {_cut(fence)}")
        nonce = fields.get("nonce")
        if not (isinstance(nonce, str) and len(nonce) == 32 and set(nonce) <= set("0123456789abcdef")):
            _damaged(key, f"nonce: expected 32 hex digits, found {_cut(nonce)}")
        return Claim(
            fence=int(fence),
            nonce=nonce,
            holder=_holder(fields.get("holder")),
            ttl=_seconds(key, "ttl", fields.get("ttl"), MIN_TTL),
            skew=_seconds(key, "skew", fields.get("skew"), 0.0),
            label=_text(fields.get("label"), _MAX_LABEL),
            host_name=_text(fields.get("host_name"), 255),
            acquired_at=_text(fields.get("acquired_at"), 64),
            lifeline=Place.from_record(fields.get("lifeline")),
            checkout=WorksIn.from_record(fields.get("checkout")),
            tombstone=fields.get("tombstone") is True,
        )


def check_terms(ttl: float, skew: float, label: str | None) -> None:
    """
    Refuse what should never be written.

    Raises:
        ValueError: says which, and what is allowed.
    """
    if not _in_range(ttl, MIN_TTL):
        raise ValueError(f"ttl must be {MIN_TTL} to {MAX_TTL:.0f} seconds, not {ttl!r}")
    if not _in_range(skew, 0.0):
        raise ValueError(f"skew must be 0 to {MAX_TTL:.0f} seconds, not {skew!r}")
    if label is not None and (not label or len(label) > _MAX_LABEL or not label.isprintable()):
        raise ValueError(f"label must be 1 to {_MAX_LABEL} printable characters on one line, not {label!r}")


def _in_range(value: object, least: float) -> bool:
    # bool is an int to Python, and nan compares as False with everything.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= MAX_TTL


def _object(key: str, data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        _damaged(key, f"it has {len(data)} bytes, more than {MAX_BYTES}")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        _damaged(key, f"not JSON: {error}" if data else "it is empty", error)
    if not isinstance(fields, dict):
        _damaged(key, "not a JSON object")
    schema = fields.get("v")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        _damaged(key, f"v: expected a schema number, found {_cut(schema)}")
    if schema > SCHEMA:
        raise RecordTooNewError(
            f"a newer tenure wrote this claim. key=`{key}`, schema=`{schema}`, understood=`{SCHEMA}`",
            hint="upgrade tenure on this machine",
            key=key,
            reason=f"schema {schema}",
            schema=schema,
            understood=SCHEMA,
        )
    return fields


def _holder(record: object) -> ProcessIdentity | str | None:
    if record is None:
        return None
    text = json.dumps(record)
    try:
        return ProcessIdentity.from_json(text)
    except RecordError:
        return text


def _seconds(key: str, name: str, value: Any, least: float) -> float:
    if not _in_range(value, least) or math.isnan(value):
        _damaged(key, f"{name}: expected {least} to {MAX_TTL:.0f} seconds, found {_cut(value)}")
    return float(value)


def _text(value: object, most: int) -> str | None:
    """For people only, so nothing is refused; but what reaches a terminal must not steer it."""
    if not isinstance(value, str):
        return None
    return "".join(character if character.isprintable() else "�" for character in value[:most]) or None


def _cut(value: object) -> str:
    return repr(value)[:60]


def _damaged(key: str, reason: str, cause: BaseException | None = None) -> NoReturn:
    raise RecordError(
        f"this claim is damaged. key=`{key}`, reason=`{reason}`",
        hint="its fence is used and its bytes are kept; it is passed after ttl + skew",
        key=key,
        reason=reason,
    ) from cause
