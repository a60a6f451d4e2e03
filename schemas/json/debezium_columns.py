"""Values of columns as Debezium's connectors write them in JSON, by whole columns: what `debezium_values` reads.

Arrow's reader has taken the objects apart, and its types are these:

    boolean, int, bigint, float, double    as they are: JSON's own
    string                                 text
    binary, decimal                        text; a decimal's unscaled value in base64, or its digits
    decimal, wrapped                       numbers of 64 bits
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
from schemas.json.debezium_values import ISO_DATE, MICROS, SEMANTIC_UNITS, UNITS, DebeziumValues
from schemas.json.parsing import text_columns
from schemas.json.parsing.field_schemas import UNDESCRIBED, FieldSchema
from schemas.json.parsing.placeholder import Placeholder
from schemas.json.parsing.text_columns import check_within
from schemas.json.parsing.tokens import JsonError
from schemas.records import OddRecordError, refuse
from schemas.table import Column
from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, ColumnType, TypeName


@dataclass(frozen=True, slots=True)
class DebeziumColumnValues:
    """Under the connector's settings, as `DebeziumValues`. Whatever is odd is an OddRecordError.

    `schemas` are those that come with the records, None: they come without.
    """

    settings: DebeziumValues
    placeholder: Placeholder
    schemas: Mapping[str, FieldSchema] | None = None

    def can_read(self, column: Column) -> bool:
        """Whether the settings say what values of the column mean. If not, a schema in each record does."""
        is_said = self.schemas is not None or self._of(column).time not in (None, "adaptive")
        return is_said or column.type.name is not TypeName.TIMESTAMP

    def check_schema(self, column: Column) -> None:
        """Raises: OddRecordError where the schema in the records contradicts the settings."""
        try:
            self._of(column).reader_of(column, self._schema(column))
        except JsonError:
            raise OddRecordError from None

    def field(self, column: Column, *, has_zone: bool = False) -> pa.Field:
        """What Arrow's reader is to take for the column. `has_zone`: its instants are texts in every mode."""
        settings = self._of(column)
        match column.type.name:
            case TypeName.DECIMAL if settings.unsigned:
                kind = pa.int64()
            case TypeName.STRING | TypeName.BINARY | TypeName.DECIMAL:
                kind = pa.string()
            case TypeName.DATE:
                is_iso = settings.time == "isostring" or self._schema(column).meaning == ISO_DATE
                kind = pa.string() if is_iso else pa.int32()
            case TypeName.TIMESTAMP:
                kind = pa.string() if has_zone or settings.time == "isostring" else pa.int64()
            case _:
                kind = column.type.arrow
        return pa.field(column.name, kind)

    def placeholders(self, column: Column, found: pa.Array) -> pa.BooleanArray | None:
        """Where the connector left the value out; None for columns whose values it never leaves out."""
        match column.type.name:
            case TypeName.STRING:
                return pc.is_in(found, pa.array(sorted(self.placeholder.texts)))
            case TypeName.BINARY:
                return pc.equal(found, self.placeholder.base64)
        return None

    def values(self, column: Column, found: pa.Array) -> pa.Array:
        """The column in its own type. Raises: OddRecordError."""
        try:
            return self._values(column.type, found, self._of(column), self._schema(column))
        except (pa.ArrowInvalid, ValueError):
            raise OddRecordError from None

    def _values(
        self, kind: ColumnType, found: pa.Array, settings: DebeziumValues, schema: FieldSchema
    ) -> pa.Array:
        match kind.name:
            case TypeName.FLOAT | TypeName.DOUBLE:
                return _finite(found)
            case TypeName.BINARY:
                return _from_base64(found)
            case TypeName.DATE:
                return _dates(found)
            case TypeName.TIMESTAMP:
                return _timestamps(kind, found, settings, schema)
            case TypeName.DECIMAL if settings.unsigned:
                return text_columns.unsigned(found, kind)
            case TypeName.DECIMAL if settings.decimal == "precise":
                return _unscaled(_at_scale(kind, schema.scale), found).cast(kind.arrow)
            case TypeName.DECIMAL:
                return text_columns.decimals(found, kind)
        return found

    def _of(self, column: Column) -> DebeziumValues:
        return self.settings.for_column(column)

    def _schema(self, column: Column) -> FieldSchema:
        return (self.schemas or {}).get(column.name, UNDESCRIBED)


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


def _timestamps(kind: ColumnType, found: pa.Array, settings: DebeziumValues, schema: FieldSchema) -> pa.Array:
    if pa.types.is_string(found.type):
        return text_columns.instants(found, kind)
    unit = UNITS.get(settings.time or "") if schema.meaning is None else SEMANTIC_UNITS.get(schema.meaning)
    if unit is None:  # they are no numbers
        refuse(found.null_count < len(found))
        micros = found
    else:
        micros = _in_micros(found, unit, cuts=settings.sub_micros == "truncate")
    check_within(micros, FIRST_US, LAST_US)
    return micros.view(kind.arrow)


def _in_micros(numbers: pa.Int64Array, unit: int, *, cuts: bool) -> pa.Int64Array:
    """`cuts`: what is beyond a microsecond is left out, of instants before 1970 as of later ones."""
    if unit < MICROS:
        return pc.multiply_checked(numbers, MICROS // unit)
    step = unit // MICROS
    whole = pc.divide(numbers, step)
    back = pc.multiply(whole, step)
    if cuts:
        return pc.subtract(whole, pc.greater(back, numbers).cast(pa.int64()))
    refuse(not pc.all(pc.equal(back, numbers), min_count=0).as_py())
    return whole


def _at_scale(kind: ColumnType, scale: int | None) -> ColumnType:
    """The decimals of a smaller scale that fit one of this type. Raises: OddRecordError for other scales."""
    own = kind.scale or 0
    places = own if scale is None else scale
    digits = (kind.precision or 0) - own + places
    refuse(not 0 <= places <= own or digits < 1)
    return ColumnType(TypeName.DECIMAL, digits, places)


def _unscaled(kind: ColumnType, texts: pa.StringArray) -> pa.Array:
    data = _from_base64(texts.drop_null())
    offsets = np.frombuffer(data.buffers()[1], np.int32, len(data) + 1, 4 * data.offset).astype(np.int64)
    raw = np.frombuffer(data.buffers()[2] or b"", np.uint8)
    found = decimals(raw, offsets[:-1], np.diff(offsets), kind)
    return spread(found, texts.is_valid().to_numpy(zero_copy_only=False)) if texts.null_count else found
