"""
An entry of the log: a write-once record at an exact slot, with the fence of the writer who put it there.

An older reader keeps no entry and ignores fields it does not know; a newer schema is refused, never read as damage.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from tenure._commit import _keys
from tenure._store._records import MAX_SIZE_BYTES
from tenure.errors import RecordError, RecordTooNewError

SCHEMA = 1
Kind = Literal["seal", "commit", "snapshot"]
_KINDS: tuple[Kind, ...] = ("seal", "commit", "snapshot")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_NONCE = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Entry:
    """
    What stands at one slot of the log.

    Attributes:
        slot: its place; the first is 1.
        fence: of the writer; never falls along the log.
        nonce: names that writer's claim.
        kind: `seal` (a new writer closed the log to lower fences), `commit`, or `snapshot` (replaces all before it).
        id: of the commit; the same commit tried again has the same one.
        base: the newest slot that the author had read when it made the commit; 0 for none.
        body: what the author wrote: anything that JSON can carry.
        at: when, by the writer's wall clock, ISO 8601; for people.
        replaces: of a snapshot: the ids of the newest commits before it, oldest first.
    """

    slot: int
    fence: int
    nonce: str
    kind: Kind
    id: str
    base: int
    body: Any
    at: str | None = None
    replaces: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """
        The record's bytes; `decode` makes the same entry of them.

        Raises:
            ValueError: the body is no JSON, or too large.
        """
        fields: dict[str, object] = {
            "v": SCHEMA,
            "slot": str(self.slot),
            "fence": str(self.fence),
            "nonce": self.nonce,
            "kind": self.kind,
            "id": self.id,
            "base": str(self.base),
            "at": self.at,
        }
        if self.kind == "snapshot":
            fields["replaces"] = self.replaces
        fields["body"] = self.body
        try:
            data = json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, UnicodeEncodeError, RecursionError) as error:
            raise ValueError(f"the body of a commit must be what JSON can carry: {error}") from error
        if len(data) > MAX_SIZE_BYTES:
            raise ValueError(
                f"too large for an entry of the log: put the content elsewhere first, and its name into the commit. "
                f"size_bytes={len(data)}, limit_bytes={MAX_SIZE_BYTES}"
            )
        return data

    @staticmethod
    def decode(key: str, data: bytes) -> Entry:
        """
        Read the entry found under *key*.

        Raises:
            RecordTooNewError: a newer tenure wrote it.
            RecordError: it is torn, empty or no entry of this slot.
        """
        fields = _object(key, data)
        slot = _keys.slot_of(key)
        if fields.get("slot") != str(slot):
            _damaged(key, f"slot: it says another one than its key, {fields.get('slot')!r:.60}")
        kind, nonce, name = fields.get("kind"), fields.get("nonce"), fields.get("id")
        if kind not in _KINDS:
            _damaged(key, f"kind: unknown, {kind!r:.60}")
        if not (isinstance(nonce, str) and _NONCE.fullmatch(nonce)):
            _damaged(key, f"nonce: expected 32 hex digits, found {nonce!r:.60}")
        if not (isinstance(name, str) and _ID.fullmatch(name)):
            _damaged(key, f"id: not the id of a commit, {name!r:.60}")
        replaces = fields.get("replaces", [])
        if not (isinstance(replaces, list) and all(isinstance(one, str) for one in replaces)):
            _damaged(key, f"replaces: expected a list of ids, found {replaces!r:.60}")
        at = fields.get("at")
        return Entry(
            slot=int(fields["slot"]),
            fence=_number(key, "fence", fields.get("fence"), 1),
            nonce=nonce,
            kind=kind,
            id=name,
            base=_number(key, "base", fields.get("base"), 0),
            body=fields.get("body"),
            at=at if isinstance(at, str) and at.isprintable() else None,
            replaces=tuple(replaces),
        )


def check_id(commit_id: str) -> None:
    """Raise `ValueError` unless *commit_id* may name a commit."""
    if not _ID.fullmatch(commit_id):
        raise ValueError(
            f"not an id of a commit: {commit_id!r:.120}. It has 1 to 100 letters, digits and . _ : -, a letter or digit first"
        )


def _object(key: str, data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        _damaged(key, f"not JSON: {error}" if data else "it is empty", error)
    if not isinstance(fields, dict):
        _damaged(key, "not a JSON object")
    schema = fields.get("v")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        _damaged(key, f"v: expected a schema number, found {schema!r:.60}")
    if schema > SCHEMA:
        raise RecordTooNewError(
            f"a newer tenure wrote this entry. key=`{key}`, schema=`{schema}`, understood=`{SCHEMA}`",
            hint="upgrade tenure on this machine",
            key=key,
            reason=f"schema {schema}",
            schema=schema,
            understood=SCHEMA,
        )
    return fields


def _number(key: str, name: str, text: object, least: int) -> int:
    number = int(text) if isinstance(text, str) and 0 < len(text) <= 19 and text.isascii() and text.isdigit() else -1
    if not least <= number <= _keys.MAX_SLOT:
        _damaged(key, f"{name}: expected a number of at least {least} as text, found {text!r:.60}")
    return number


def _damaged(key: str, reason: str, cause: BaseException | None = None) -> NoReturn:
    raise RecordError(
        f"this entry of the log is damaged. key=`{key}`, reason=`{reason}`",
        hint="nothing after it is read; its bytes are kept: restore the file, or ask whoever may write there",
        key=key,
        reason=reason,
    ) from cause
