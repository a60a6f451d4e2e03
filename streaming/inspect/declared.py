"""Columns from the schema of a record, in it (Connect) or in a registry (Avro): nothing is guessed from values.

Source of Connect's: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.avro.projection import branches_of
from schemas.avro.writers.meanings import MisfitError, Schema, decimal_scale, has_own_scale, meaning
from streaming.inspect.samples import Field

_CONNECT_TYPES = {
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
_CONNECT_MEANINGS = {
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


def described(schema: Mapping[str, Any], image: str | None = None) -> list[Field]:
    """The fields of a Connect schema, or those of its field `image`."""
    fields: Sequence[Mapping[str, Any]] = schema["fields"]
    if image is not None:
        fields = next(each["fields"] for each in fields if each.get("field") == image)
    return [connect_field(each) for each in fields]


def decimal_kind(precision: int, scale: int) -> str:
    """A type that holds decimals of so many digits; empty for a scale beyond those of columns."""
    whole = precision - scale
    if not -_DIGITS <= scale <= _DIGITS:
        return ""
    return f"decimal({max(1, min(_DIGITS, max(whole, 0) + max(scale, 0)))},{max(scale, 0)})"


def _number(text: object, otherwise: int) -> int:
    try:
        return int(str(text))
    except ValueError:
        return otherwise


def connect_field(schema: Mapping[str, Any]) -> Field:
    """A field of a struct in Connect's schema."""
    made = Field(schema["field"])
    meaning, kind = schema.get("name", ""), schema.get("type", "")
    parameters = schema.get("parameters") or {}
    if meaning in _CONNECT_MEANINGS:
        made.kind = _CONNECT_MEANINGS[meaning]
    elif meaning == _DECIMAL:
        precision, scale = parameters.get("connect.decimal.precision"), parameters.get("scale")
        made.kind = decimal_kind(_number(precision, _DIGITS), _number(scale, 0))
        if not made.kind:
            made.kind = "string"
            made.notes.append(f"a decimal of scale {scale}, which no column has: as its text of base64")
    elif meaning == _VARIABLE:
        made.kind = f"decimal({_DIGITS},10)"
        made.notes.append("numeric without a scale: as many digits behind the point as you need")
    elif kind in _CONNECT_TYPES:
        made.kind = _CONNECT_TYPES[kind]
    else:
        made.kind, made.is_nested = "string", True
        made.notes.append(f"{kind}, taken as its JSON text")
    return made


_AVRO_TYPES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "enum": "string",
    "bytes": "binary",
    "fixed": "binary",
}
_AVRO_MEANINGS = {
    ("int", "date"): "date",
    **{("long", f"timestamp-{unit}"): "timestamp" for unit in ("millis", "micros", "nanos")},
}
_TEXTS = {
    "io.debezium.time.ZonedTimestamp": "timestamp",
    "io.debezium.time.IsoTimestamp": "timestamp",
    "io.debezium.time.IsoDate": "date",
}
"""By `connect.name`."""


def is_event(schema: Schema) -> bool:
    """True if records of the schema are change events."""
    return _row_of(schema, "after") is not None and "op" in _fields(schema)


def rows_of(schema: Schema) -> Sequence[Field]:
    """The fields of a record, or of the row in an event."""
    row = _row_of(schema, "after") if is_event(schema) else schema
    return [registered_field(name, kind) for name, kind in _fields(row).items()]


def _fields(schema: Schema) -> dict[str, Schema]:
    if not isinstance(schema, dict) or schema["type"] != "record":
        return {}
    return {each["name"]: each["type"] for each in schema["fields"]}


def _row_of(schema: Schema, name: str) -> Schema | None:
    kinds = branches_of(_fields(schema).get(name, "null"))
    return dict(kinds[0]) if len(kinds) == 1 and kinds[0]["type"] == "record" else None


def registered_field(name: str, schema: Schema) -> Field:
    """A field of a record in Avro."""
    made, kinds = Field(name), branches_of(schema)
    kind = kinds[0] if len(kinds) == 1 else {"type": "a choice of types" if kinds else "null"}
    try:
        avro, logical = kind["type"], meaning(kind)
        scale = decimal_scale(kind) if logical == "decimal" else 0
    except MisfitError:
        made.is_nested = True
        return made  # no column can be read from it
    if logical == "decimal":
        made.kind = decimal_kind(int(kind.get("precision", _DIGITS)), scale)
    elif avro == "record" and has_own_scale(kind):
        made.kind = f"decimal({_DIGITS},10)"
        made.notes.append("numeric without a scale: as many digits behind the point as you need")
    elif avro == "string" and kind.get("connect.name") in _TEXTS:
        made.kind = _TEXTS[kind["connect.name"]]
    else:
        made.kind = _AVRO_MEANINGS.get((avro, logical or ""), _AVRO_TYPES.get(avro, ""))
        made.is_nested = not made.kind
    return made
