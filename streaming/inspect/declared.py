"""Columns from the schema of a record, in it (Connect) or in a registry (Avro): nothing is guessed from values.

The fill of a column is what the upstream's own table has in rows from before the column: the default that its first
schema gives it, if that is a literal. Debezium writes a default that is computed, such as the time of the insert, as 0:
that of a date or time is none.

Source of Connect's: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import fastavro

from schemas.avro.projection import branches_of, of_record
from schemas.avro.record_bytes import RecordBytes
from schemas.avro.registered import WriterSchema
from schemas.avro.writer_schemas import (
    Schema,
    WriterSchemaError,
    decimal_scale,
    has_own_scale,
    meaning,
    parsed,
    unwrapped,
)
from schemas.codec.json.rows import ColumnForms
from schemas.codec.json.text import read_value
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.with_registry import RegistryFormat
from schemas.json.debezium_values import (
    DAYS,
    DECIMAL,
    ISO_DATE,
    ISO_TIMESTAMP,
    SEMANTIC_UNITS,
    VARIABLE_DECIMAL,
    ZONED_TIMESTAMP,
    DebeziumValues,
)
from schemas.json.tokens import JsonError, field_schemas
from schemas.kinds.columns import IDENTIFIER, RESERVED_PREFIX, declared_columns
from schemas.kinds.fills import fill_of
from schemas.kinds.table_changes import AddColumn, IgnoreField, TableChange
from schemas.table import Column
from schemas.types import ColumnType, Value, json_literal
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
    **dict.fromkeys((*DAYS, ISO_DATE), "date"),
    **dict.fromkeys((*SEMANTIC_UNITS, ZONED_TIMESTAMP, ISO_TIMESTAMP), "timestamp"),
}
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
    # A producer may write anything there.
    meaning, kind = (named if isinstance(named := schema.get(key), str) else "" for key in ("name", "type"))
    parameters = given if isinstance(given := schema.get("parameters"), dict) else {}
    if meaning in _CONNECT_MEANINGS:
        made.kind = _CONNECT_MEANINGS[meaning]
    elif meaning == DECIMAL:
        precision, scale = parameters.get("connect.decimal.precision"), parameters.get("scale")
        made.kind = decimal_kind(_number(precision, _DIGITS), _number(scale, 0))
        if not made.kind:
            made.kind = "string"
            made.notes.append(f"a decimal of scale {scale}, which no column has: as its text of base64")
    elif meaning == VARIABLE_DECIMAL:
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
_TEXTS = {ZONED_TIMESTAMP: "timestamp", ISO_TIMESTAMP: "timestamp", ISO_DATE: "date"}
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
    except WriterSchemaError:
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


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_AFTER = "after"


@dataclass(frozen=True)
class RowFields:
    """The fields of a row in one schema, by name, as the schema has them. `is_avro`: else it is Kafka Connect's."""

    by_name: Mapping[str, Mapping[str, Any]]
    is_avro: bool

    def change(self, name: str, format_: RegistryFormat) -> TableChange | None:
        """The column that a field becomes, or that none can be read from it; None where only an operator can say it."""
        field, found = self.by_name[name], self._found(name)
        if found.is_nested:
            return IgnoreField(name)
        column = _column(found, format_)
        if column is None:
            return None
        try:
            fill = self._fill(column, field, format_)
        except (WriterSchemaError, JsonError, LookupError, TypeError, ValueError, ArithmeticError):
            fill = None  # no literal
        return AddColumn.of(replace(column, fill=fill))

    def kind(self, name: str, format_: RegistryFormat) -> ColumnType | None:
        """The type of the column that a field becomes; None where there is none, or none that is certain."""
        found = self._found(name)
        column = None if found.is_nested else _column(replace(found, name="c"), format_)
        return None if column is None else column.type

    def _found(self, name: str) -> Field:
        field = self.by_name[name]
        return registered_field(name, field["type"]) if self.is_avro else connect_field(field)

    def _fill(self, column: Column, field: Mapping[str, Any], format_: RegistryFormat) -> Value:
        default = field.get("default")
        if default is None:
            return None
        value = _in_avro(column, field["type"], default) if self.is_avro else _in_json(column, field, format_)
        if value in (_EPOCH, _EPOCH.date()):
            return None
        return fill_of(json_literal(value), column.type)


def fields_of_rows(schema: WriterSchema, format_: RegistryFormat) -> RowFields | None:
    """The fields of the rows by a schema; None for one that no record of the format has."""
    try:
        return fields_by_registry(schema, format_)
    except (WriterSchemaError, LookupError, TypeError):
        return None


def fields_by_registry(schema: WriterSchema, format_: RegistryFormat) -> RowFields:
    """The fields of the rows by a schema. Raises: WriterSchemaError for one that no record of the format has."""
    kind = parsed(schema)
    found = dict[str, Mapping[str, Any]]()
    for row in [kind] if not isinstance(format_, DebeziumFormat) else _rows_in(kind, format_):
        found |= {each["name"]: each for each in row["fields"]}
    return RowFields(found, is_avro=True)


def _rows_in(event: Schema, format_: DebeziumFormat) -> list[Mapping[str, Any]]:
    halves = ("before", _AFTER) if format_.is_whole else (_AFTER,)
    fields = {each["name"]: each["type"] for each in event["fields"]}
    return [row for half in halves for row in branches_of(fields.get(half, "null"))]


def fields_in_frame(value: bytes, format_: RegistryFormat) -> RowFields | None:
    """The fields that the frame of a record describes; None for a record without a schema."""
    try:
        schema = json.loads(value)["schema"]
        fields = schema["fields"]
        if format_.row_field is not None:
            fields = next(each["fields"] for each in fields if each["field"] == format_.row_field)
        return RowFields({str(each["field"]): each for each in fields}, is_avro=False)
    except (ValueError, TypeError, LookupError, StopIteration, RecursionError):
        return None


def _column(field: Field, format_: RegistryFormat) -> Column | None:
    if not IDENTIFIER.fullmatch(field.name) or field.name.lower().startswith(RESERVED_PREFIX):
        return None
    if not field.kind or field.notes:
        return None
    units = dict[str, str]()
    if isinstance(format_, DebeziumFormat) and format_.encoding == "json":
        if field.kind in ("date", "timestamp") and format_.time is None:
            units["time"] = "adaptive"
        if field.kind.startswith("decimal") and format_.decimal is None:
            units["decimal"] = "precise"
    faults = list[str]()
    columns = declared_columns({field.name: {"type": field.kind, **units}}, faults)
    return None if faults else columns[0]


def _in_avro(column: Column, kind: Schema, default: Any) -> Value:
    """A default by a writer's schema, which is that of the first branch of a union."""
    branches = kind if isinstance(kind, list) else [kind]
    plain = [_without_meaning(each) for each in branches]
    raw = default
    match unwrapped(branches[0]):
        case {"type": "bytes" | "fixed"} if isinstance(default, str):
            raw = default.encode("latin-1")
        case {"type": "enum", "symbols": symbols}:
            raw = symbols.index(default)
    written = {"type": "record", "name": "Fill", "fields": [{"name": column.name, "type": plain}]}
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(written), {column.name: raw})
    record = {"type": "record", "name": "Fill", "fields": [{"name": column.name, "type": branches}]}
    projection = of_record(record, [column])
    found: Value = projection.value(projection.read(RecordBytes(data.getvalue())))[column.name]
    return found


def _without_meaning(branch: Schema) -> Schema:
    """A schema with the same bytes, without the names that registries hold and Avro forbids: a symbol is its number."""
    match unwrapped(branch):
        case {"type": "enum"}:
            return "int"
        case {"type": "fixed", "size": size}:
            return {"type": "fixed", "name": "Bytes", "size": size}
        case plain:
            return plain["type"]


def _in_json(column: Column, field: Mapping[str, Any], format_: RegistryFormat) -> Value:
    """A default in Connect's schema, which is written as a value is."""
    settings = None
    if isinstance(format_, DebeziumFormat):
        settings = DebeziumValues(format_.time, format_.decimal, format_.sub_micros)
    schema = field_schemas(read_value(json.dumps({"type": "struct", "fields": [field]})))[column.name]
    forms = ColumnForms([column], format_.sub_micros, settings)
    return forms.value(column, read_value(json.dumps(field["default"])), schema)
