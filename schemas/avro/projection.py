"""Projections of writers' records: they read the fields of a table's columns, in plain types, and no others.

A projection has two schemas, for Avro's own schema resolution. By `writer` the bytes are walked over; it is the
writer's schema with plain types where a column is read, without names that could clash, and without logical types.
`reader` has the fields that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from schemas.avro.cells import Cell, cell_of
from schemas.avro.registered import WriterSchema
from schemas.avro.writers.definitions import MAX_NESTING, no_avro, parsed
from schemas.avro.writers.meanings import MisfitError, NewFieldError, Schema, unwrapped
from schemas.json.values import SubMicros
from schemas.kinds.columns import IDENTIFIER
from schemas.table import Column
from schemas.types import Value

_RECORD, _UNREAD = "backfill.Record", "_bf_unread"
_Chosen = tuple[str, Schema, Schema]
"""The name that a field gets, and its schema as it is written and as it is read."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A plan for reading records of one schema as rows of some columns. Columns without a cell are null.

    `parts` are the fields that are records in turn, by name; those that are always null are none. `fills` are the
    values of columns that the schema lacks, by name, but those that are null.
    """

    cells: tuple[Cell, ...]
    writer: Schema
    reader: Schema
    parts: Mapping[str, Projection] = field(default_factory=dict)
    fills: Mapping[str, Value] = field(default_factory=dict)

    def row(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The row of plain values, by column, and for each part a row in turn, or None. Raises: CellError."""
        row = dict(self.fills)
        row |= {cell.column.name: cell.value(raw[plain_name(cell.column.name)]) for cell in self.cells}
        for name, part in self.parts.items():
            row[name] = None if raw[name] is None else part.row(raw[name])
        return row


Project = Callable[[Schema], Projection]
"""Makes the projection of a parsed schema. Raises: MisfitError."""


def projected(schema: WriterSchema, project: Project) -> Projection:
    """The projection of records by a schema, which may be anything that its writer registered. Raises: MisfitError."""
    try:
        return project(parsed(schema))
    except MisfitError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MisfitError(f"a schema that is no Avro ({type(error).__name__})") from None


def misfit(schema: WriterSchema, project: Project) -> str | None:
    """The reason why no record by a schema can be read like this; None if records can."""
    try:
        projected(schema, project)
    except MisfitError as reason:
        return str(reason)
    return None


def of_record(
    schema: Schema,
    columns: Sequence[Column],
    *,
    exact: bool = False,
    name: str = _RECORD,
    parts: Mapping[str, Project] | None = None,
    sub_micros: SubMicros = "refuse",
    names: frozenset[str] | None = None,
) -> Projection:
    """The fields of a record that are named as columns, letter by letter. `exact`: it has these fields and no other.

    Of several names of a column the first one that the record has counts. `names` are those that its fields may have,
    None: any.
    `parts` says of fields that are records how each is read. `name` is for a record that becomes a field of another
    one, see `plain_record`. Raises: MisfitError; NewFieldError for a field with a name that is not among `names`.
    """
    fields = fields_of(schema)
    if names is not None and (new := sorted(fields.keys() - names)):
        raise NewFieldError(new[0])
    if exact and sorted(fields) != sorted(column.name for column in columns):
        raise MisfitError("a record with other fields than the key columns")
    chosen, fills = dict[str, _Chosen](), dict[str, Value]()
    cells = list[Cell]()
    for column in columns:
        named = next((each for each in column.names_in_records if each in fields), None)
        if named is None:
            fills |= {} if column.fill is None else {column.name: column.fill}
        elif (cell := cell_of(column, fields[named], sub_micros)) is not None:
            cells.append(cell)
            chosen[named] = column.name, cell.plain, cell.plain
    if exact and len(cells) != len(columns):
        raise MisfitError("a key column that is always null")
    inner = {
        part: project(record)
        for part, project in (parts or {}).items()
        if (record := _record_in(fields.get(part, "null"), part)) is not None
    }
    for part, found_part in inner.items():
        both = (_in_place(fields[part], each) for each in (found_part.writer, found_part.reader))
        chosen[part] = part, *both
    writer, reader = plain_record(schema, chosen, name=name)
    return Projection(tuple(cells), writer, reader, inner, fills)


def fields_of(schema: Schema) -> dict[str, Schema]:
    """The fields of a record, by name. Raises: MisfitError for what is none."""
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        raise MisfitError("a schema that is no record")
    fields = {each["name"]: each["type"] for each in schema["fields"]}
    if len(fields) < len(schema["fields"]):
        raise no_avro("two fields of one name")
    return fields


def branches_of(field: Schema) -> list[Mapping[str, Any]]:
    """The types that a field may have, but null."""
    branches = [unwrapped(each) for each in (field if isinstance(field, list) else [field])]
    return [branch for branch in branches if branch["type"] != "null"]


def _record_in(field: Schema, name: str) -> Schema | None:
    """The record that a field is, or may be; None for one that can only be null. Raises: MisfitError."""
    values = branches_of(field)
    if len(values) > 1:
        raise MisfitError(f"field {name} is a choice of {len(values)} types")
    return values[0] if values else None


def _in_place(field: Schema, record: Schema) -> Schema:
    """A field with this instead of its record."""
    if not isinstance(field, list):
        return record
    return ["null" if unwrapped(branch)["type"] == "null" else record for branch in field]


def of_value(schema: Schema, column: Column) -> Projection:
    """A schema that is a single value, read as a record of one field, which has the same bytes. Raises: MisfitError."""
    return of_record(
        {"type": "record", "name": _RECORD, "fields": [{"name": column.name, "type": schema}]},
        [column],
        exact=True,
    )


def plain_record(
    schema: Schema, chosen: Mapping[str, _Chosen], *, name: str = _RECORD
) -> tuple[Schema, Schema]:
    """The writer's and the reader's schema of a record whose chosen fields are read, each under the name that it gets.

    They may be such pairs for records in turn, each made with a `name` of its own.
    """
    skipped = _Skipped(name)
    writer, reader = list[dict[str, Schema]](), list[dict[str, Schema]]()
    for number, each in enumerate(schema["fields"]):
        if each["name"] not in chosen:
            writer.append({"name": f"{_UNREAD}{number}", "type": skipped.plain(each["type"])})
            continue
        named, written, read = chosen[each["name"]]
        writer.append({"name": plain_name(named), "type": written})
        reader.append({"name": plain_name(named), "type": read})
    halves = ({"type": "record", "name": name, "fields": fields} for fields in (writer, reader))
    first, second = map(named_once, halves)
    return first, second


def plain_name(name: str) -> str:
    """The name of a field in plain records, which every reader of Avro takes."""
    return name if IDENTIFIER.fullmatch(name) else f"_bf_named{name.encode().hex()}"


class _Skipped:
    """Schemas of what is passed over: the same bytes, no logical types, and names that every reader of Avro takes.

    A type is defined where it comes first, and is its name from there on.
    """

    def __init__(self, record: str) -> None:
        self._record, self._numbers = record, count()
        self._names = dict[int, str]()
        self._empty = dict[int, bool]()

    def plain(self, schema: Schema, depth: int = 0) -> Schema:
        if depth > MAX_NESTING:
            raise no_avro(f"more than {MAX_NESTING} types within each other")
        if id(schema) in self._names:
            return self._names[id(schema)]
        if self._has_no_bytes(schema):
            return "null"
        match schema:
            case "int":
                return "long"  # Java would not pass over one of more than 32 bits
            case list():
                return self._union(schema, depth)
            case {"type": "record" | "error", "fields": fields}:
                name = self._names[id(schema)] = self._new_name()
                inner = [
                    {"name": f"f{number}", "type": self.plain(field["type"], depth + 1)}
                    for number, field in enumerate(fields)
                ]
                return {"type": "record", "name": name, "fields": inner}
            case {"type": "enum", "symbols": symbols}:
                name = self._names[id(schema)] = self._new_name()
                return {"type": "enum", "name": name, "symbols": [f"S{n}" for n in range(len(symbols))]}
            case {"type": "fixed", "size": size}:
                return {"type": "fixed", "name": self._new_name(), "size": size}
            case {"type": "array", "items": items}:
                return {"type": "array", "items": self.plain(items, depth + 1)}
            case {"type": "map", "values": values}:
                return {"type": "map", "values": self.plain(values, depth + 1)}
            case {"type": inner_type}:
                return self.plain(inner_type, depth + 1)
        return schema

    def _union(self, schema: list[Schema], depth: int) -> Schema:
        branches = [self.plain(branch, depth + 1) for branch in schema]
        both = branches.count("long") > 1
        return [
            "int" if both and unwrapped(branch)["type"] == "int" else self._branch(plain)
            for branch, plain in zip(schema, branches, strict=True)
        ]

    def _branch(self, plain: Schema) -> Schema:
        """A union within a union is no Avro, and has the bytes of a record with one field."""
        if not isinstance(plain, list):
            return plain
        return {"type": "record", "name": self._new_name(), "fields": [{"name": "f0", "type": plain}]}

    def _new_name(self) -> str:
        return f"{self._record}Skipped{next(self._numbers)}"

    def _has_no_bytes(self, schema: Schema) -> bool:
        """True where every value of a type is written as nothing: many of them may stand for very many fields."""
        match schema:
            case "null" | {"type": "null"} | {"type": "fixed", "size": 0}:
                return True
            case {"type": "record" | "error", "fields": fields}:
                if id(schema) not in self._empty:
                    self._empty[id(schema)] = False  # one that contains itself never ends
                    kinds = [field["type"] for field in fields]
                    self._empty[id(schema)] = all(map(self._has_no_bytes, kinds))
                return self._empty[id(schema)]
            case {"type": dict() as inner}:
                return self._has_no_bytes(inner)
        return False


def named_once(schema: Schema) -> Schema:
    """A schema with each named type defined where it comes first, and by its name from there on."""
    return _named_once(schema, set())


def _named_once(schema: Schema, seen: set[str]) -> Schema:
    match schema:
        case list():
            return [_named_once(branch, seen) for branch in schema]
        case {"type": "record" | "fixed", "name": name}:
            if name in seen:
                return name
            seen.add(name)
    if isinstance(schema, dict) and schema["type"] == "record":
        inner = [{**field, "type": _named_once(field["type"], seen)} for field in schema["fields"]]
        return {**schema, "fields": inner}
    return schema
