"""Changes and keys to bytes and back with fastavro, one at a time: the reference of columns, and records for tests."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro

from schemas.avro.fallback import ChangeRecords, KeyRecords
from schemas.avro.output_schemas import change_schema, key_schema
from schemas.position import Key
from schemas.records import Change, Row
from schemas.table import Column
from schemas.types import TypeName, Value


class ChangeCodec(ChangeRecords):
    """Changes over one list of columns: all of a table, or those of a job. Rows are tuples in that order."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__(columns)
        self.columns = tuple(columns)
        self._names = tuple(column.name for column in columns)
        self._schema = fastavro.parse_schema(change_schema(columns))

    def encode(self, change: Change) -> bytes:
        """The record's value. ValueError, TypeError or the like for a row that the columns can't hold."""
        out = BytesIO()
        fastavro.schemaless_writer(out, self._schema, self._to_avro(change))
        return out.getvalue()

    def _to_avro(self, change: Change) -> dict[str, Any]:
        before, after = self._named(change.before), self._named(change.after)
        return {"op": change.op.name, "before": before, "after": after}

    def _named(self, row: Row | None) -> dict[str, Any] | None:
        return None if row is None else dict(zip(self._names, row, strict=True))


class KeyCodec(KeyRecords):
    """The key record of a table."""

    def __init__(self, key_columns: Sequence[Column]) -> None:
        super().__init__(key_columns)
        self._names = tuple(column.name for column in key_columns)
        self._schema = fastavro.parse_schema(key_schema(key_columns))

    def encode(self, key: Key) -> bytes:
        """The record's key. ValueError, TypeError or the like for a key that the columns can't hold."""
        out = BytesIO()
        fastavro.schemaless_writer(out, self._schema, dict(zip(self._names, key, strict=True)))
        return out.getvalue()


def canonical(value: Value, column: Column) -> Value:
    """A value as the codec would give it back.

    Decimals at the declared scale and without a negative zero, timestamps in UTC, floats rounded to 32 bits.

    Raises:
        ValueError: a decimal that does not fit the declared precision and scale exactly, a timestamp without
            a time zone (fastavro would take it for local time), a float beyond 32 bits.
    """
    match value:
        case Decimal():
            return _fixed_point(value, column)
        case dt.datetime():
            if value.tzinfo is None:
                raise ValueError(f"{column.name}: a timestamp needs a time zone")
            return value.astimezone(dt.UTC)
        case float() if column.type.name is TypeName.FLOAT:
            try:
                return struct.unpack("<f", struct.pack("<f", value))[0]
            except OverflowError:
                raise ValueError(f"{column.name}: a value beyond 32-bit floats") from None
        case _:
            return value


def _fixed_point(value: Decimal, column: Column) -> Decimal:
    fixed = column.type.exact(value)
    if fixed is None:
        raise ValueError(f"{column.name}: a value does not fit {column.type}")
    return fixed
