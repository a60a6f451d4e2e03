"""Positions as text: the JSON array of a primary key's values (docs/contract.md#tables-and-vnodes).

Numbers and booleans as JSON, strings as they are, decimals as plain text, dates `2026-01-31`,
timestamps `2026-01-31T12:00:00.000000Z`. One text per value, so equal positions have equal texts.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from schemas.table import Column
from schemas.types import TypeName, Value, json_literal

Key = tuple[Any, ...]
"""A primary key's values in key order."""

_JSON_FORM: dict[TypeName, type] = {TypeName.BOOLEAN: bool, TypeName.INT: int, TypeName.BIGINT: int}
"""JSON's form of a value; a string for other types."""


def position_to_text(key: Key) -> str:
    """The text of a key whose decimals are at their declared scale (as the codec gives them)."""
    return json.dumps([json_literal(value) for value in key], ensure_ascii=False, separators=(",", ":"))


def position_from_text(text: str, key_columns: Sequence[Column]) -> Key:
    """Read a position back. ValueError when it does not have one value of the right form a key column."""
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("a position is a flat JSON array") from None
    if not isinstance(values, list) or len(values) != len(key_columns):
        raise ValueError(f"a position has {len(key_columns)} values in a JSON array")
    return tuple(_from_json(value, column) for value, column in zip(values, key_columns, strict=True))


def _from_json(value: Value, column: Column) -> Value:
    kind = column.type.name
    if type(value) is not _JSON_FORM.get(kind, str):
        raise ValueError(f"a position's value for {column.name} is no {column.type}")
    parsed = _parsed(value, kind)
    # The parsers read more forms than the contract has; a value has one text only.
    if json_literal(parsed) != value:
        raise ValueError(f"a position's value for {column.name} is not written as {column.type} is")
    return parsed


def _parsed(value: Value, kind: TypeName) -> Value:
    match kind:
        case TypeName.DECIMAL:
            try:
                number = Decimal(value)
            except InvalidOperation:
                raise ValueError("not a decimal") from None
            if not number.is_finite():
                raise ValueError("not a finite decimal")
            return number
        case TypeName.TIMESTAMP:
            return dt.datetime.fromisoformat(value)
        case TypeName.DATE:
            return dt.date.fromisoformat(value)
        case TypeName.STRING:
            value.encode()  # a lone surrogate, which JSON can spell, is no text
            return value
        case _:
            return value


def order_key(key: Key) -> Key:
    """The key with strings as UTF-8 bytes: Python's `<` on the result is Spark's `<` on the columns.

    Code points and UTF-8 bytes order alike, but lone surrogates have no UTF-8 form: those raise.
    """
    return tuple(value.encode() if isinstance(value, str) else value for value in key)
