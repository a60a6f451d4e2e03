"""Projections of writers' records: a plan for reading the fields of a table's columns, and passing over all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas.avro.cells import Cell, cell_of
from schemas.avro.record_bytes import RecordBytes
from schemas.avro.registered import WriterSchema
from schemas.avro.writer_schemas import NewFieldError, Schema, WriterSchemaError, no_avro, parsed, unwrapped
from schemas.json.values import SubMicros
from schemas.table import Column
from schemas.types import Value


class ProjectedField(NamedTuple):
    """A field in a writer's record: its schema, and how it is read as the column or part `name`; None: passed over."""

    name: str
    schema: Schema
    plan: Cell | Projection | None


@dataclass(frozen=True, slots=True)
class Projection:
    """A plan for reading records of one schema as rows of some columns. Columns without a field are null.

    `fields` are the writer's, in its order; those that are read as records in turn are parts. `fills` are the values of
    columns that the schema lacks, by name, but those that are null.
    """

    fields: tuple[ProjectedField, ...]
    fills: Mapping[str, Value] = field(default_factory=dict)

    def read(self, record: RecordBytes) -> dict[str, Any]:
        """Plain values of what is read, by name, of which `value` makes a row. Raises: MalformedError."""
        raw = dict[str, Any]()
        for name, schema, plan in self.fields:
            if plan is None:
                record.pass_over(schema)
            else:
                raw[name] = plan.read(record) if record.has_value(schema) else None
        return raw

    def value(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The row of plain values, by column, and for each part a row in turn, or None. Raises: CellError."""
        row = dict(self.fills)
        for name, _, plan in self.fields:
            if plan is not None:
                row[name] = None if raw[name] is None else plan.value(raw[name])
        return row


Project = Callable[[Schema], Projection]
"""Makes the projection of a parsed schema. Raises: WriterSchemaError."""


def projected(schema: WriterSchema, project: Project) -> Projection:
    """The projection of records by a schema, anything that a writer may have registered. Raises: WriterSchemaError."""
    try:
        return project(parsed(schema))
    except WriterSchemaError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WriterSchemaError(f"a schema that is no Avro ({type(error).__name__})") from None


def incompatibility_of(schema: WriterSchema, project: Project) -> str | None:
    """The reason why no record by a schema can be read like this; None if records can."""
    try:
        projected(schema, project)
    except WriterSchemaError as reason:
        return str(reason)
    return None


def of_record(
    schema: Schema,
    columns: Sequence[Column],
    *,
    exact: bool = False,
    parts: Mapping[str, Project] | None = None,
    sub_micros: SubMicros = "refuse",
    names: frozenset[str] | None = None,
) -> Projection:
    """The fields of a record that are named as columns, letter by letter. `exact`: it has these fields and no other.

    Of several names of a column the first one that the record has counts. `names` are those that its fields may have,
    None: any. `parts` says of fields that are records how each is read.

    Raises: WriterSchemaError; NewFieldError for a field with a name that is not among `names`.
    """
    fields = record_fields(schema)
    if names is not None and (new := sorted(fields.keys() - names)):
        raise NewFieldError(new[0])
    if exact and sorted(fields) != sorted(column.name for column in columns):
        raise WriterSchemaError("a record with other fields than the key columns")
    plans, fills = dict[str, tuple[str, Cell | Projection]](), dict[str, Value]()
    for column in columns:
        named = next((each for each in column.names_in_records if each in fields), None)
        if named is None:
            fills |= {} if column.fill is None else {column.name: column.fill}
        elif (cell := cell_of(column, fields[named], sub_micros)) is not None:
            plans[named] = column.name, cell
    if exact and len(plans) != len(columns):
        raise WriterSchemaError("a key column that is always null")
    for part, project in (parts or {}).items():
        if (record := _record_in(fields.get(part, "null"), part)) is not None:
            plans[part] = part, project(record)
    of_field = {each: plans.get(each, (each, None)) for each in fields}
    return Projection(
        tuple(ProjectedField(name, fields[each], plan) for each, (name, plan) in of_field.items()), fills
    )


def record_fields(schema: Schema) -> dict[str, Schema]:
    """The fields of a record, by name. Raises: WriterSchemaError for what is none."""
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        raise WriterSchemaError("a schema that is no record")
    fields = {each["name"]: each["type"] for each in schema["fields"]}
    if len(fields) < len(schema["fields"]):
        raise no_avro("two fields of one name")
    return fields


def branches_of(field: Schema) -> list[Mapping[str, Any]]:
    """The types that a field may have, but null."""
    branches = [unwrapped(each) for each in (field if isinstance(field, list) else [field])]
    return [branch for branch in branches if branch["type"] != "null"]


def _record_in(field: Schema, name: str) -> Schema | None:
    """The record that a field is, or may be; None for one that can only be null. Raises: WriterSchemaError."""
    values = branches_of(field)
    if len(values) > 1:
        raise WriterSchemaError(f"field {name} is a choice of {len(values)} types")
    return values[0] if values else None


def of_value(schema: Schema, column: Column) -> Projection:
    """A schema of a single value, read as a record of one field: its bytes are the same. Raises: WriterSchemaError."""
    return of_record(
        {"type": "record", "fields": [{"name": column.name, "type": schema}]}, [column], exact=True
    )
