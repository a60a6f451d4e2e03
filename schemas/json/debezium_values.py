"""Values of columns as Debezium's connectors write them in JSON (docs/debezium.md#values).

Numbers, texts, booleans and bytes are as `schemas.json.values` has them. Days, times and decimals are numbers or bytes
whose meaning is in the connector's settings, or in the schema that comes with a record. Source:
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from schemas.json.parsing.tokens import Kind, Token
from schemas.json.values import Reader, date_of, from_base64, only, read_by, timestamp_of, value_of
from schemas.table import Column
from schemas.types import ColumnType, TypeName, Value

TimeMode = Literal["adaptive", "connect", "microseconds", "nanoseconds", "isostring"]
DecimalMode = Literal["precise", "string"]

UNAVAILABLE = "__debezium_unavailable_value"
"""In place of a value that the database did not log, as it is what it was."""
UNAVAILABLE_BYTES = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
"""The same in base64."""
UNAVAILABLE_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""The same as a uuid: version 3, of the text's MD5 without a namespace."""
UNAVAILABLE_NUMBERS = f"[{','.join(map(str, UNAVAILABLE.encode()))}]"
"""The same as an array of integers, which are its bytes."""
UNAVAILABLE_TEXTS = (
    UNAVAILABLE,
    f'["{UNAVAILABLE}"]',
    f'["{UNAVAILABLE_BYTES}"]',
    UNAVAILABLE_NUMBERS,
    f'["{UNAVAILABLE_UUID}"]',
    f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}',
)
"""The same in place of a text, of arrays of texts, bytes, integers and uuids, and of an hstore."""

MILLIS, MICROS, NANOS = 1_000, 1_000_000, 1_000_000_000
UNITS: Mapping[str, int] = {"connect": MILLIS, "microseconds": MICROS, "nanoseconds": NANOS}
"""In a second, by `TimeMode`."""
SEMANTIC_UNITS: Mapping[str, int] = {
    "io.debezium.time.Timestamp": MILLIS,
    "org.apache.kafka.connect.data.Timestamp": MILLIS,
    "io.debezium.time.MicroTimestamp": MICROS,
    "io.debezium.time.NanoTimestamp": NANOS,
}
MAX_UNSCALED_BYTES = 16
"""Hold every decimal of the contract."""
VARIABLE_SCALE = r'\{"scale":([0-9]{1,3}),"value":"([A-Za-z0-9+/=]*)"\}'

_DAYS_TO_1970 = dt.date(1970, 1, 1).toordinal()
_UNIX_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_INFINITE = ("infinity", "-infinity")
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """A column in the schema that comes with a record: the meaning of its values, and the scale of a decimal."""

    meaning: str | None = None
    scale: int | None = None


def field_schemas(frame: Token, half: str | None = None) -> dict[str, FieldSchema]:
    """The fields in the `schema` of a record, or those of its field `half`; empty if it describes none."""
    try:
        fields = json.loads(frame.text)["fields"]
        if half is not None:
            fields = next(each for each in fields if each.get("field") == half)["fields"]
        return {each["field"]: _described(each) for each in fields}
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration):
        return {}


def _described(field: Mapping[str, object]) -> FieldSchema:
    meaning, parameters = field.get("name"), field.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    return FieldSchema(
        meaning if isinstance(meaning, str) else None,
        int(scale) if isinstance(scale, str) and re.fullmatch("[0-9]{1,3}", scale) else None,
    )


@dataclass(frozen=True, slots=True)
class DebeziumValues:
    """Values under the connector's settings `time.precision.mode` and `decimal.handling.mode`."""

    time: TimeMode | None
    decimal: DecimalMode | None

    def value_of(self, token: Token, column: Column, schema: FieldSchema | None = None) -> Value:
        """What a JSON value stands for in a column. Raises: JsonError, as `schemas.json.values.value_of`."""
        schema = schema or FieldSchema()
        reader: Reader
        match column.type.name:
            case TypeName.DATE:
                reader = _iso_date if self.time == "isostring" else _days
            case TypeName.TIMESTAMP:
                unit = (
                    SEMANTIC_UNITS.get(schema.meaning or "")
                    if self.time == "adaptive"
                    else UNITS.get(self.time or "")
                )
                reader = lambda token, _: _timestamp(token, unit)  # noqa: E731
            case TypeName.DECIMAL if self.decimal == "precise":
                reader = lambda token, kind: _unscaled(token, kind, schema.scale)  # noqa: E731
            case TypeName.DECIMAL if token.kind is Kind.TEXT and token.text in _NO_NUMBERS:
                reader = _beyond
            case _:
                return value_of(token, column)
        return read_by(reader, token, column)


def _days(token: Token, _: ColumnType) -> dt.date:
    try:
        return dt.date.fromordinal(_DAYS_TO_1970 + int(only(token, Kind.INTEGER)))
    except ValueError:
        if token.kind is Kind.INTEGER:
            raise OverflowError from None
        raise


def _iso_date(token: Token, _: ColumnType) -> dt.date:
    return date_of(only(token, Kind.TEXT).removesuffix("Z"))


def _timestamp(token: Token, unit: int | None) -> dt.datetime:
    """A number of units, also in quotes, or ISO text: that is how instants with a time zone come in every mode."""
    text = only(token, Kind.TEXT, Kind.INTEGER)
    if text in _INFINITE:
        raise OverflowError
    if unit is None or not _WHOLE.fullmatch(text):
        if token.kind is Kind.INTEGER and unit is not None:
            raise OverflowError
        return timestamp_of(text)
    micros, rest = divmod(int(text) * MICROS, unit)
    if rest:
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
    fixed = kind.exact(Decimal(f"{number}E-{kind.scale if scale is None else scale}"))
    if fixed is None:
        raise OverflowError
    return fixed


def _beyond(token: Token, kind: ColumnType) -> Value:
    raise OverflowError(f"{token.kind} where {kind} holds no such number")
