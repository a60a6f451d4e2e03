"""Values of columns as Debezium's connectors write them in JSON (docs/debezium.md#values).

Numbers, texts, booleans and bytes are as `schemas.json.values` has them. Days, times and decimals are numbers or bytes
whose meaning is in the connector's settings, or in the schema that comes with a record. Source:
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Literal, NamedTuple

from schemas.errors import Code
from schemas.json.tokens import FieldSchema, JsonError, Kind, Token
from schemas.json.values import (
    Reader,
    SubMicros,
    date_of,
    decimal_of,
    from_base64,
    only,
    timestamp_of,
    upstream_reader,
)
from schemas.kinds.columns import ColumnDecimal, ColumnTime, Unsigned
from schemas.table import Column
from schemas.types import ColumnType, TypeName, Value

TimeMode = Literal["adaptive", "connect", "microseconds", "nanoseconds", "isostring"]
DecimalMode = Literal["precise", "string"]

MILLIS, MICROS, NANOS = 1_000, 1_000_000, 1_000_000_000
UNITS: Mapping[str, int] = {
    "connect": MILLIS,
    "milliseconds": MILLIS,
    "microseconds": MICROS,
    "nanoseconds": NANOS,
}
"""Units in a second, by `ColumnTime`."""
SEMANTIC_UNITS: Mapping[str, int] = {
    "io.debezium.time.Timestamp": MILLIS,
    "org.apache.kafka.connect.data.Timestamp": MILLIS,
    "io.debezium.time.MicroTimestamp": MICROS,
    "io.debezium.time.NanoTimestamp": NANOS,
}
DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
ISO_DATE, ISO_TIMESTAMP = "io.debezium.time.IsoDate", "io.debezium.time.IsoTimestamp"
ZONED_TIMESTAMP = "io.debezium.time.ZonedTimestamp"
"""A text in every mode."""
DECIMAL, VARIABLE_DECIMAL = "org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal"
MAX_UNSCALED_BYTES = 16
"""Hold every decimal of the contract."""
VARIABLE_SCALE = r'\{"scale":(-?[0-9]{1,3}),"value":"([A-Za-z0-9+/=]*)"\}'

_DAYS_TO_1970 = dt.date(1970, 1, 1).toordinal()
_UNIX_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_INFINITE = ("infinity", "-infinity")
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


class Meaning(Enum):
    """The meaning of a column's value in JSON."""

    AS_IS = "JSON's own value, or base64 for bytes"
    WRAPPED = "an unsigned number of 64 bits that was written as a signed one"
    NUMBER = "a number, or a text that holds one"
    DIGITS = "the same, of a database that has NaN and infinities as well"
    UNSCALED = "two's complement in base64, in units of 10**-`scale`"
    DATE = "year-month-day"
    ISO_DATE = "year-month-day, with or without a Z behind it"
    DAYS = "days since 1970"
    INSTANT = "ISO 8601 with an offset"
    TICKS = "time since 1970, `unit` of it in a second, or ISO 8601 with an offset; None: that alone"


class ValueForm(NamedTuple):
    """The form of a column's values. `scale` None: that of the column, or each value has its own."""

    meaning: Meaning
    unit: int | None = None
    scale: int | None = None


AS_IS = ValueForm(Meaning.AS_IS)


@dataclass(frozen=True, slots=True)
class DebeziumValues:
    """Values under the connector's settings `time.precision.mode` and `decimal.handling.mode`, or a column's own."""

    time: ColumnTime | None
    decimal: ColumnDecimal | None
    sub_micros: SubMicros = "refuse"
    unsigned: Unsigned | None = None

    def for_column(self, column: Column) -> DebeziumValues:
        """The settings of one column: its own where it has some, else these."""
        return replace(
            self,
            time=column.time or self.time,
            decimal=column.decimal or self.decimal,
            unsigned=column.unsigned,
        )

    def form_of(self, column: Column, schema: FieldSchema) -> ValueForm:
        """The form of a column's values that have this schema in their records.

        Raises: JsonError(SCHEMA_INCOMPATIBLE) with the column, where the schema contradicts the settings, or can't be
            understood.
        """
        match column.type.name:
            case TypeName.DATE:
                form = self._date(schema)
            case TypeName.TIMESTAMP:
                form = self._instant(schema)
            case TypeName.DECIMAL:
                form = self._decimal(schema)
            case _:
                return AS_IS
        if schema.fault is not None:
            raise _incompatible(schema.fault, column)
        if form is None:
            raise _incompatible(f"type {schema.type} and meaning {schema.meaning}", column)
        return form

    def _date(self, schema: FieldSchema) -> ValueForm | None:
        is_iso = self.time == "isostring"
        match schema.meaning:
            case None:
                return ValueForm(Meaning.ISO_DATE if is_iso else Meaning.DAYS)
            case meaning if meaning == ISO_DATE and (is_iso or self.time == "adaptive"):
                return ValueForm(Meaning.ISO_DATE)
            case meaning if meaning in DAYS and not is_iso:
                return ValueForm(Meaning.DAYS)
        return None

    def _instant(self, schema: FieldSchema) -> ValueForm | None:
        unit = UNITS.get(self.time or "")
        match schema.meaning:
            case None:
                pass
            case meaning if meaning == ZONED_TIMESTAMP:
                unit = None
            case meaning if meaning == ISO_TIMESTAMP and self.time in ("isostring", "adaptive"):
                unit = None
            case meaning if meaning in SEMANTIC_UNITS and self.time == "adaptive":
                unit = SEMANTIC_UNITS[meaning]
            case meaning if SEMANTIC_UNITS.get(meaning) != unit or unit is None:
                return None
        return ValueForm(Meaning.TICKS, unit=unit)

    def _decimal(self, schema: FieldSchema) -> ValueForm | None:
        is_bytes = schema.type in ("bytes", "struct") or schema.meaning is not None
        if self.unsigned is not None:
            return None if is_bytes or schema.type == "string" else ValueForm(Meaning.WRAPPED)
        if self.decimal != "precise":
            return None if is_bytes else ValueForm(Meaning.DIGITS)
        is_known = schema.meaning in (None, VARIABLE_DECIMAL) or (
            schema.meaning == DECIMAL and schema.scale is not None
        )
        if not is_known or schema.type not in (None, "bytes", "struct"):
            return None
        return ValueForm(Meaning.UNSCALED, scale=schema.scale)


def plain_form(column: Column) -> ValueForm:
    """The form of values that say themselves what they are (docs/formats.md#json-values)."""
    if column.unsigned is not None:
        return ValueForm(Meaning.WRAPPED)
    match column.type.name:
        case TypeName.DATE:
            return ValueForm(Meaning.DATE)
        case TypeName.TIMESTAMP:
            return ValueForm(Meaning.INSTANT)
        case TypeName.DECIMAL:
            return ValueForm(Meaning.NUMBER)
    return AS_IS


def reader_of(form: ValueForm, column: Column, sub_micros: SubMicros) -> Reader:
    """Reads values in a form, one at a time."""
    match form.meaning:
        case Meaning.ISO_DATE:
            return _iso_date
        case Meaning.DAYS:
            return _days
        case Meaning.TICKS:
            return partial(_timestamp, unit=form.unit, sub_micros=sub_micros)
        case Meaning.DIGITS:
            return _number
        case Meaning.UNSCALED:
            return partial(_unscaled, scale=form.scale)
    return upstream_reader(column, sub_micros)


def _incompatible(found: str, column: Column) -> JsonError:
    return JsonError(f"a schema in its frame with {found}", Code.SCHEMA_INCOMPATIBLE, column.name)


def _days(token: Token, _: ColumnType) -> dt.date:
    try:
        return dt.date.fromordinal(_DAYS_TO_1970 + int(only(token, Kind.INTEGER)))
    except ValueError:
        if token.kind is Kind.INTEGER:
            raise OverflowError from None
        raise


def _iso_date(token: Token, _: ColumnType) -> dt.date:
    return date_of(only(token, Kind.TEXT).removesuffix("Z"))


def _timestamp(token: Token, _: ColumnType, unit: int | None, sub_micros: SubMicros) -> dt.datetime:
    """A number of units, also in quotes, or ISO text: that is how instants with a time zone come in every mode."""
    text = only(token, Kind.TEXT, Kind.INTEGER)
    if text in _INFINITE:
        raise OverflowError
    if unit is None or not _WHOLE.fullmatch(text):
        if token.kind is Kind.INTEGER and unit is not None:
            raise OverflowError
        return timestamp_of(only(token, Kind.TEXT), sub_micros)
    micros, rest = divmod(int(text) * MICROS, unit)
    if rest and sub_micros == "refuse":
        raise OverflowError
    return _UNIX_ZERO + dt.timedelta(microseconds=micros)


def _unscaled(token: Token, kind: ColumnType, scale: int | None) -> Decimal:
    text = only(token, Kind.TEXT, Kind.NESTED)
    if token.kind is Kind.NESTED:
        variable = re.fullmatch(VARIABLE_SCALE, text)
        if variable is None:
            raise ValueError
        scale, text = int(variable[1]), variable[2]
    data = from_base64(text)
    if not data:
        raise ValueError
    if len(data) > MAX_UNSCALED_BYTES:
        raise OverflowError
    number = int.from_bytes(data, signed=True)
    places = kind.scale if scale is None else scale
    fixed = kind.exact(Decimal(f"{number}E{-(places or 0)}"))
    if fixed is None:
        raise OverflowError
    return fixed


def _number(token: Token, kind: ColumnType) -> Value:
    if token.kind is Kind.TEXT and token.text in _NO_NUMBERS:
        raise OverflowError
    return decimal_of(token, kind)
