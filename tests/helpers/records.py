"""Records changed by hand."""

from __future__ import annotations

import json
from typing import Any

OTHER_BOOT = "3f9c1a52-0d7e-4b61-9a3c-6e2f8b4d7c10"
OTHER_HOST = "5f1c" * 8
OTHER_NONCE = "0123456789abcdef" * 2


def fields(record: str) -> dict[str, Any]:
    loaded = json.loads(record)
    assert isinstance(loaded, dict)
    return loaded


def changed(record: str, **changes: Any) -> str:
    """*record* with other values; None takes the field away."""
    merged = fields(record) | changes
    return json.dumps({name: value for name, value in merged.items() if value is not None})


def later(record: str, field: str, by: int = 1) -> str:
    """*record* with the decimal string of *field* raised."""
    there = fields(record).get(field)
    return record if there is None else changed(record, **{field: str(int(there) + by)})
