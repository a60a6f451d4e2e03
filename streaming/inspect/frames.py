"""Columns from the schema that comes with a Connect record: nothing has to be guessed from values.

Source: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streaming.inspect.samples import Field

_PLAIN = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "string": "string",
    "bytes": "binary",
}
_MEANINGS = {
    **dict.fromkeys(("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"), "date"),
    **dict.fromkeys(("io.debezium.time.IsoDate",), "date"),
    **dict.fromkeys(
        (
            "io.debezium.time.Timestamp",
            "io.debezium.time.MicroTimestamp",
            "io.debezium.time.NanoTimestamp",
            "io.debezium.time.ZonedTimestamp",
            "io.debezium.time.IsoTimestamp",
            "org.apache.kafka.connect.data.Timestamp",
        ),
        "timestamp",
    ),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_DIGITS = 38


def described(schema: Mapping[str, Any], half: str | None = None) -> list[Field]:
    """The fields of a schema of Connect's, or of those of one of them."""
    fields: Sequence[Mapping[str, Any]] = schema["fields"]
    if half is not None:
        fields = next(each["fields"] for each in fields if each.get("field") == half)
    return [_field(each) for each in fields]


def decimal_kind(precision: int, scale: int) -> str:
    """A type that holds decimals of so many digits; empty for a scale that none has."""
    whole = precision - scale
    if not -_DIGITS <= scale <= _DIGITS:
        return ""
    return f"decimal({max(1, min(_DIGITS, max(whole, 0) + max(scale, 0)))},{max(scale, 0)})"


def _number(text: object, otherwise: int) -> int:
    try:
        return int(str(text))
    except ValueError:
        return otherwise


def _field(schema: Mapping[str, Any]) -> Field:
    made = Field(schema["field"])
    meaning, kind = schema.get("name", ""), schema.get("type", "")
    parameters = schema.get("parameters") or {}
    if meaning in _MEANINGS:
        made.kind = _MEANINGS[meaning]
    elif meaning == _DECIMAL:
        precision, scale = parameters.get("connect.decimal.precision"), parameters.get("scale")
        made.kind = decimal_kind(_number(precision, _DIGITS), _number(scale, 0))
        if not made.kind:
            made.kind = "string"
            made.notes.append(f"a decimal of scale {scale}, which no column has: as its text of base64")
    elif meaning == _VARIABLE:
        made.kind = f"decimal({_DIGITS},10)"
        made.notes.append("numeric without a scale: as many digits behind the point as you need")
    elif kind in _PLAIN:
        made.kind = _PLAIN[kind]
    else:
        made.kind = "string"
        made.notes.append(f"{kind}, taken as its JSON text")
    return made
