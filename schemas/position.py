"""Positions as text: the JSON array of a primary key's values.

Numbers and booleans as JSON, strings as they are, decimals as plain text, dates `2026-01-31`,
timestamps `2026-01-31T12:00:00.000000Z`. One text per value, so equal positions have equal texts.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from schemas.table import Column
from schemas.types import TypeName

Key = tuple[Any, ...]
"""A primary key's values in key order."""


def _to_json(value: Any) -> Any:
    match value:
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
        case dt.date():
            return value.isoformat()
        case _:
            return value


def position_to_text(key: Key) -> str:
    return json.dumps([_to_json(value) for value in key], ensure_ascii=False, separators=(",", ":"))


def _from_json(value: Any, kind: TypeName) -> Any:
    match kind:
        case TypeName.DECIMAL:
            return Decimal(value)
        case TypeName.TIMESTAMP:
            return dt.datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=dt.UTC)
        case TypeName.DATE:
            return dt.date.fromisoformat(value)
        case _:
            return value


def position_from_text(text: str, key_columns: Sequence[Column]) -> Key:
    """Read a position back. ValueError when it does not have one value of the right form a key column."""
    values = json.loads(text)
    if not isinstance(values, list) or len(values) != len(key_columns):
        raise ValueError(f"a position has {len(key_columns)} values in a JSON array")
    return tuple(_from_json(value, column.type.name) for value, column in zip(values, key_columns, strict=True))


def order_key(key: Key) -> Key:
    """The same key with strings as UTF-8 bytes: Python's `<` on the result is Spark's `<` on the columns.

    Code points and UTF-8 bytes order alike, but lone surrogates have no UTF-8 form: those raise.
    """
    return tuple(value.encode() if isinstance(value, str) else value for value in key)
