"""Columns from a schema of a registry: nothing has to be guessed from values."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.avro.projection import branches_of
from schemas.avro.writers.meanings import MisfitError, Schema, decimal_scale, has_own_scale, meaning
from streaming.inspect.frames import decimal_kind
from streaming.inspect.samples import Field

_PLAIN = {
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
_MEANINGS = {
    ("int", "date"): "date",
    **{("long", f"timestamp-{unit}"): "timestamp" for unit in ("millis", "micros", "nanos")},
}
_TEXTS = {
    "io.debezium.time.ZonedTimestamp": "timestamp",
    "io.debezium.time.IsoTimestamp": "timestamp",
    "io.debezium.time.IsoDate": "date",
}
"""By the name that Connect gives them."""
_DIGITS = 38


def is_event(schema: Schema) -> bool:
    """Whether records of a schema are change events."""
    return _half(schema, "after") is not None and "op" in _fields(schema)


def rows_of(schema: Schema) -> Sequence[Field]:
    """The fields of a record, or of the row in an event."""
    row = _half(schema, "after") if is_event(schema) else schema
    return [_field(name, kind) for name, kind in _fields(row).items()]


def _fields(schema: Schema) -> dict[str, Schema]:
    if not isinstance(schema, dict) or schema["type"] != "record":
        return {}
    return {each["name"]: each["type"] for each in schema["fields"]}


def _half(schema: Schema, name: str) -> Schema | None:
    kinds = branches_of(_fields(schema).get(name, "null"))
    return dict(kinds[0]) if len(kinds) == 1 and kinds[0]["type"] == "record" else None


def _field(name: str, schema: Schema) -> Field:
    made, kinds = Field(name), branches_of(schema)
    kind = kinds[0] if len(kinds) == 1 else {"type": "a choice of types" if kinds else "null"}
    try:
        avro, logical = kind["type"], meaning(kind)
        scale = decimal_scale(kind) if logical == "decimal" else 0
    except MisfitError:
        return made  # no column can be read from it
    if logical == "decimal":
        made.kind = decimal_kind(kind.get("precision", _DIGITS), scale)
    elif avro == "record" and has_own_scale(kind):
        made.kind = f"decimal({_DIGITS},10)"
        made.notes.append("numeric without a scale: as many digits behind the point as you need")
    elif avro == "string" and kind.get("connect.name") in _TEXTS:
        made.kind = _TEXTS[kind["connect.name"]]
    else:
        made.kind = _MEANINGS.get((avro, logical or ""), _PLAIN.get(avro, ""))
    return made
