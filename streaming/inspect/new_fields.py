"""Columns that the schemas of records give a table: their types, and their fills by literal defaults.

A fill is what the upstream's own table has in rows from before the column: the default that its first schema gives
it, if that is a literal. Debezium writes a default that is computed, such as the time of the insert, as 0: that of a
date or time is none.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import fastavro

from schemas.avro.projection import branches_of, of_record
from schemas.avro.reader import RecordReader
from schemas.avro.registered import WriterSchema
from schemas.avro.writers.definitions import parsed
from schemas.avro.writers.meanings import MisfitError, Schema, unwrapped
from schemas.codec.json.rows import ColumnForms
from schemas.codec.json.text import read_value
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.with_registry import RegistryFormat
from schemas.json.debezium_values import DebeziumValues
from schemas.json.parsing.field_schemas import field_schemas
from schemas.json.parsing.tokens import JsonError
from schemas.kinds.columns import IDENTIFIER, RESERVED_PREFIX, declared_columns
from schemas.kinds.fills import fill_of
from schemas.kinds.table_changes import AddColumn, IgnoreField, TableChange
from schemas.table import Column
from schemas.types import ColumnType, Value, json_literal
from streaming.inspect.declared import connect_field, registered_field
from streaming.inspect.samples import Field

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
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
        except (MisfitError, JsonError, LookupError, TypeError, ValueError, ArithmeticError):
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
    except (MisfitError, LookupError, TypeError):
        return None


def fields_by_registry(schema: WriterSchema, format_: RegistryFormat) -> RowFields:
    """The fields of the rows by a schema. Raises: MisfitError for one that no record of the format has."""
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
        if isinstance(format_, DebeziumFormat):
            fields = next(each["fields"] for each in fields if each["field"] == _AFTER)
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
    first = unwrapped(branches[0])["type"]
    raw = default.encode("latin-1") if isinstance(default, str) and first in ("bytes", "fixed") else default
    plain = [_without_meaning(each) for each in branches]
    written = {"type": "record", "name": "Fill", "fields": [{"name": column.name, "type": plain}]}
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(written), {column.name: raw})
    record = {"type": "record", "name": "Fill", "fields": [{"name": column.name, "type": branches}]}
    projection = of_record(record, [column])
    reader = RecordReader(*map(fastavro.parse_schema, (projection.writer, projection.reader)))
    found: Value = projection.row(reader.read(data.getvalue()))[column.name]
    return found


def _without_meaning(branch: Schema) -> Schema:
    return {
        key: value for key, value in unwrapped(branch).items() if key in ("type", "name", "size", "symbols")
    }


def _in_json(column: Column, field: Mapping[str, Any], format_: RegistryFormat) -> Value:
    """A default in Connect's schema, which is written as a value is."""
    settings = None
    if isinstance(format_, DebeziumFormat):
        settings = DebeziumValues(format_.time, format_.decimal, format_.sub_micros)
    schema = field_schemas(read_value(json.dumps({"type": "struct", "fields": [field]})))[column.name]
    forms = ColumnForms([column], format_.sub_micros, settings)
    return forms.value(column, read_value(json.dumps(field["default"])), schema)
