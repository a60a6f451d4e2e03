"""Values of columns as Debezium's connectors write them in JSON, by whole columns: what `debezium_values` reads.

Arrow's reader has taken the objects apart, and its types are these:

    boolean, int, bigint, float, double    as they are: JSON's own
    string                                 text
    binary, decimal                        text; a decimal's unscaled value in base64, or its digits
    date, timestamp                        numbers; or ISO texts, as instants with a time zone are in every mode

Forms that connectors do not write (a decimal as a number, an instant with another zone than Z) are left to the twin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columns.cursor import spread
from schemas.avro.columns.decimals import decimals
from schemas.json.base64_columns import base64_texts, base64_values
from schemas.json.debezium_values import (
    MICROS,
    SEMANTIC_UNITS,
    UNAVAILABLE_BYTES,
    UNAVAILABLE_TEXTS,
    UNITS,
    DecimalMode,
    FieldSchema,
    TimeMode,
)
from schemas.json.parsing import text_columns
from schemas.json.parsing.text_columns import check_within
from schemas.records import OddRecordError, refuse
from schemas.table import Column
from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, ColumnType, TypeName

_PLACEHOLDERS = {TypeName.STRING: UNAVAILABLE_TEXTS, TypeName.BINARY: (UNAVAILABLE_BYTES,)}


@dataclass(frozen=True, slots=True)
class DebeziumColumnValues:
    """Under the connector's settings, as `DebeziumValues`. Whatever is odd is an OddRecordError.

    `schemas` are those that come with the records, None: they come without.
    """

    time: TimeMode | None
    decimal: DecimalMode | None
    schemas: Mapping[str, FieldSchema] | None = None

    def can_read(self, column: Column) -> bool:
        """Whether the settings say what values of the column mean. If not, a schema in each record does."""
        is_said = self.schemas is not None or self.time not in (None, "adaptive")
        return is_said or column.type.name is not TypeName.TIMESTAMP

    def field(self, column: Column, *, has_zone: bool = False) -> pa.Field:
        """What Arrow's reader is to take for the column. `has_zone`: its instants are texts in every mode."""
        match column.type.name:
            case TypeName.STRING | TypeName.BINARY | TypeName.DECIMAL:
                kind = pa.string()
            case TypeName.DATE:
                kind = pa.string() if self.time == "isostring" else pa.int32()
            case TypeName.TIMESTAMP:
                kind = pa.string() if has_zone or self.time == "isostring" else pa.int64()
            case _:
                kind = column.type.arrow
        return pa.field(column.name, kind)

    def placeholders(self, column: Column, found: pa.Array) -> pa.BooleanArray | None:
        """Where the connector left the value out; None for columns whose values it never leaves out."""
        texts = _PLACEHOLDERS.get(column.type.name)
        return None if texts is None else pc.is_in(found, pa.array(texts))

    def values(self, column: Column, found: pa.Array) -> pa.Array:
        """The column in its own type. Raises: OddRecordError."""
        try:
            return self._values(column.type, found, (self.schemas or {}).get(column.name, FieldSchema()))
        except (pa.ArrowInvalid, ValueError):
            raise OddRecordError from None

    def _values(self, kind: ColumnType, found: pa.Array, schema: FieldSchema) -> pa.Array:
        match kind.name:
            case TypeName.FLOAT | TypeName.DOUBLE:
                return _finite(found)
            case TypeName.BINARY:
                return _from_base64(found)
            case TypeName.DATE:
                return _dates(found)
            case TypeName.TIMESTAMP:
                return _timestamps(kind, found, self._unit(schema))
            case TypeName.DECIMAL if self.decimal == "precise":
                refuse(schema.scale not in (None, kind.scale))
                return _unscaled(kind, found)
            case TypeName.DECIMAL:
                return text_columns.decimals(found, kind)
        return found

    def _unit(self, schema: FieldSchema) -> int | None:
        """How many a second has of a number of them; None: they are no numbers."""
        if self.time == "adaptive":
            return SEMANTIC_UNITS.get(schema.meaning or "")
        return UNITS.get(self.time or "")


def _finite(numbers: pa.Array) -> pa.Array:
    """Without -0.0, which the twin reads as 0.0 where it is written as an integer."""
    held = numbers.drop_null().to_numpy()
    refuse(not np.isfinite(held).all() or ((held == 0) & np.signbit(held)).any())
    return numbers


def _from_base64(texts: pa.StringArray) -> pa.BinaryArray:
    given = texts.cast(pa.binary()).fill_null(b"")
    found = base64_values(given)
    refuse(not base64_texts(found).equals(given))
    return pc.if_else(texts.is_valid(), found, None) if texts.null_count else found


def _dates(found: pa.Array) -> pa.Array:
    if pa.types.is_string(found.type):
        return text_columns.days(found)
    check_within(found, FIRST_DAY, LAST_DAY)
    return found.view(pa.date32())


def _timestamps(kind: ColumnType, found: pa.Array, unit: int | None) -> pa.Array:
    if pa.types.is_string(found.type):
        return text_columns.instants(found, kind)
    if unit is None:
        refuse(found.null_count < len(found))
        micros = found
    else:
        micros = _in_micros(found, unit)
    check_within(micros, FIRST_US, LAST_US)
    return micros.view(kind.arrow)


def _in_micros(numbers: pa.Int64Array, unit: int) -> pa.Int64Array:
    if unit < MICROS:
        return pc.multiply_checked(numbers, MICROS // unit)
    whole = pc.divide(numbers, unit // MICROS)
    refuse(not pc.all(pc.equal(pc.multiply(whole, unit // MICROS), numbers), min_count=0).as_py())
    return whole


def _unscaled(kind: ColumnType, texts: pa.StringArray) -> pa.Array:
    data = _from_base64(texts.drop_null())
    offsets = np.frombuffer(data.buffers()[1], np.int32, len(data) + 1, 4 * data.offset).astype(np.int64)
    raw = np.frombuffer(data.buffers()[2] or b"", np.uint8)
    found = decimals(raw, offsets[:-1], np.diff(offsets), kind)
    return spread(found, texts.is_valid().to_numpy(zero_copy_only=False)) if texts.null_count else found
