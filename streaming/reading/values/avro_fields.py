"""Records by a writer's schema: which fields become columns, how each is read, and how all others are passed over."""

from __future__ import annotations

import datetime as dt
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from schemas.errors import Code
from schemas.table import Column
from schemas.types import TypeName
from streaming.reading.values.avro_bytes import MAX_ITEMS, AvroCursor, FieldReader, date_of
from streaming.reading.values.invalid import InvalidRecordError
from streaming.reading.values.json_text import STACK_FRAMES
from streaming.reading.values.json_values import EPOCH, at_scale, nearest_single, read_value, text_reader
from streaming.reading.values.writer_schemas import (
    INSTANT_UNITS,
    AvroSchema,
    IncompatibleSchemaError,
    PassingReaders,
    SchemaLookup,
    branches_of,
    digits_in,
    fields_of,
    has_own_scale,
    is_unbounded,
    meaning_of_type,
    no_avro,
    resolved_schema,
    scale_of,
    unwrapped,
)

RecordShape = Callable[[AvroSchema], FieldReader]
"""Makes the reader of records of a schema, which gives what is read by name. Raises: IncompatibleSchemaError."""

_ID_BYTES = 5
_MOST_SCALE = 999
_TEXT_TYPES = TypeName.DECIMAL, TypeName.DATE, TypeName.TIMESTAMP
_NO_COLUMN_HOLDS = {
    TypeName.TIMESTAMP: ("infinity", "-infinity"),
    TypeName.DECIMAL: ("NaN", "Infinity", "-Infinity"),
}


def record_reader(
    schema: AvroSchema,
    columns: Sequence[Column],
    *,
    exact: bool = False,
    parts: Mapping[str, RecordShape] | None = None,
    truncates: bool = False,
) -> FieldReader:
    """Reads the fields that are named as columns, letter by letter, and records among them as `parts` says.

    Of several names of a column the first one that the record has counts; with none the column has its fill.

    `exact`: there are these fields and no other. Raises: IncompatibleSchemaError.
    """
    fields, by_name, fills = fields_of(schema), dict[str, Column](), dict[str, Any]()
    for column in columns:
        named = next((each for each in column.names_in_records if each in fields), None)
        if named is not None:
            by_name[named] = column
        elif column.fill is not None:
            fills[column.name] = column.fill
    if exact and not len(fields) == len(by_name) == len(columns):
        raise IncompatibleSchemaError("a record with other fields than the key columns")
    steps: list[tuple[str | None, FieldReader]] = []
    passing = PassingReaders()
    for name, field in fields.items():
        read = None
        if parts is not None and name in parts:
            read = _part_reader(name, field, parts[name])
        elif name in by_name:
            read = column_reader(by_name[name], field, truncates=truncates)
        own = by_name[name].name if name in by_name else name
        steps.append((own, read) if read is not None else (None, passing.over(field)))
    if exact and any(name is None for name, _ in steps):
        raise IncompatibleSchemaError("a key column that is always null")

    def record(cursor: AvroCursor) -> dict[str, Any]:
        found = dict(fills)
        for name, read in steps:
            value = read(cursor)
            if name is not None:
                found[name] = value
        return found

    return record


def value_reader(schema: AvroSchema, column: Column) -> FieldReader:
    """A schema of a single value, read as a record of one column."""
    field = {"name": column.name, "type": schema}
    return record_reader({"type": "record", "fields": [field]}, [column], exact=True)


def _part_reader(name: str, field: AvroSchema, shape: RecordShape) -> FieldReader | None:
    values = branches_of(field)
    if len(values) > 1:
        raise IncompatibleSchemaError(f"field {name} is a choice of {len(values)} types")
    return _optional(field, shape(values[0])) if values else None


def _optional(field: AvroSchema, read: FieldReader) -> FieldReader:
    """Reads a field that has this one type, or is a union of it and null."""
    if not isinstance(field, list):
        return read
    is_null = [unwrapped(branch)["type"] == "null" for branch in field]
    return lambda cursor: None if is_null[cursor.choice(len(is_null))] else read(cursor)


def column_reader(column: Column, field: AvroSchema, *, truncates: bool = False) -> FieldReader | None:
    """Reads a field for a column; None for one that can only be null. Raises: IncompatibleSchemaError."""
    values = branches_of(field)
    if not values:
        return None
    try:
        read = _fitting(column, values[0], truncates=truncates) if len(values) == 1 else None
        found = " or ".join(
            filter(None, (f"{kind['type']} {meaning_of_type(kind) or ''}" for kind in values))
        )
    except IncompatibleSchemaError as error:
        raise IncompatibleSchemaError(f"field {column.name} is {error}") from None
    if read is None:
        raise IncompatibleSchemaError(f"field {column.name} is {found}, its column {column.type}")

    def value(cursor: AvroCursor) -> Any:
        try:
            return read(cursor)
        except OverflowError:
            raise InvalidRecordError(
                "a value that does not fit", Code.VALUE_OUT_OF_RANGE, column.name
            ) from None
        except InvalidRecordError:
            raise
        except ValueError:
            raise InvalidRecordError("a value that its schema does not have", column=column.name) from None

    return _optional(field, value)


# Readers raise OverflowError for what does not fit the column, and ValueError for what no writer writes.


def _fitting(column: Column, kind: Mapping[str, Any], *, truncates: bool) -> FieldReader | None:
    """Reads a type for a column; None where they do not fit."""
    avro, meaning = kind["type"], meaning_of_type(kind)
    if column.unsigned is not None:
        is_plain = (avro, meaning) == ("long", None)
        return (lambda cursor: Decimal(cursor.long() % 2**64)) if is_plain else None
    if avro == "string" and column.type.name in _TEXT_TYPES:
        return _of_text(column, truncates=truncates)
    match column.type.name:
        case TypeName.BOOLEAN if avro == "boolean":
            return AvroCursor.boolean
        case TypeName.INT if avro == "int":
            return _int
        case TypeName.BIGINT if avro in ("int", "long"):
            return AvroCursor.long
        case TypeName.FLOAT | TypeName.DOUBLE:
            return _real(column, avro)
        case TypeName.STRING if avro == "enum" and kind["symbols"]:
            return _symbol(kind["symbols"])
        case TypeName.STRING if avro in ("string", "bytes") and meaning != "decimal":
            return AvroCursor.string
        case TypeName.BINARY if avro in ("string", "bytes") and meaning != "decimal":
            return AvroCursor.bytes
        case TypeName.BINARY if avro == "fixed" and meaning != "decimal":
            return _fixed(kind["size"])
        case TypeName.DECIMAL:
            return _decimal(column, kind, meaning)
        case TypeName.DATE if avro == "int" and meaning == "date":
            return lambda cursor: date_of(cursor.long())
        case TypeName.TIMESTAMP if avro == "long" and meaning in INSTANT_UNITS:
            return _instant(INSTANT_UNITS[str(meaning)], truncates=truncates)
    return None


def _int(cursor: AvroCursor) -> int:
    number = cursor.long()
    if not -(2**31) <= number < 2**31:
        raise OverflowError
    return number


def _real(column: Column, avro: str) -> FieldReader | None:
    is_single = column.type.name is TypeName.FLOAT
    if avro in ("int", "long"):
        if not is_single:
            return lambda cursor: float(cursor.long())
        return lambda cursor: nearest_single(str(number := cursor.long()), float(number))
    if avro == "float":
        return lambda cursor: struct.unpack("<f", cursor.take(4))[0]
    if avro == "double" and not is_single:
        return lambda cursor: struct.unpack("<d", cursor.take(8))[0]
    return None


def _symbol(symbols: Sequence[str]) -> FieldReader:
    def read(cursor: AvroCursor) -> str:
        index = cursor.long()
        if not 0 <= index < len(symbols):
            raise ValueError
        return symbols[index]

    return read


def _fixed(size: int) -> FieldReader:
    return lambda cursor: cursor.take(size)


def _decimal(column: Column, kind: Mapping[str, Any], meaning: str | None) -> FieldReader | None:
    avro = kind["type"]
    if avro == "record" and has_own_scale(kind):
        return lambda cursor: _own_scale(column, cursor)
    if avro not in ("bytes", "fixed") or meaning != "decimal":
        return None
    scale = scale_of(kind)
    if avro == "bytes":
        return lambda cursor: _scaled(column, cursor.bytes(), scale)
    size = int(kind["size"])
    return None if scale > digits_in(size) else lambda cursor: _scaled(column, cursor.take(size), scale)


def _own_scale(column: Column, cursor: AvroCursor) -> Decimal:
    scale = cursor.long()
    return _scaled(column, cursor.bytes(), scale)


def _scaled(column: Column, data: bytes, scale: int) -> Decimal:
    if not data or abs(scale) > _MOST_SCALE:
        raise ValueError
    return at_scale(int.from_bytes(data, "big", signed=True), scale, column.type)


def _instant(nanoseconds: int, *, truncates: bool) -> FieldReader:
    def read(cursor: AvroCursor) -> dt.datetime:
        micros, rest = divmod(cursor.long() * nanoseconds, 1_000)
        if rest and not truncates:
            raise OverflowError
        return EPOCH + dt.timedelta(microseconds=micros)

    return read


def _of_text(column: Column, *, truncates: bool) -> FieldReader:
    """Texts in the form that JSON has for the column; Debezium's IsoDate has a `Z` behind it."""
    read, is_date = text_reader(column, truncates=truncates), column.type.name is TypeName.DATE
    beyond = _NO_COLUMN_HOLDS.get(column.type.name, ())

    def value(cursor: AvroCursor) -> Any:
        text = cursor.string()
        if text in beyond:
            raise OverflowError
        return read_value(read, text.removesuffix("Z") if is_date else text, column)

    return value


def schema_id_of(data: bytes) -> int | None:
    """The id in front of a key or value: behind a zero byte, four bytes. None without one."""
    return int.from_bytes(data[1:_ID_BYTES], "big") if len(data) >= _ID_BYTES and data[0] == 0 else None


class FramedReader:
    """Reads keys or values that begin with the id of their writer's schema."""

    def __init__(self, schemas: SchemaLookup, shape: RecordShape) -> None:
        self._schemas, self._shape = schemas, shape
        self._known: dict[int, tuple[FieldReader, int | None]] = {}

    def read(self, data: bytes) -> dict[str, Any]:
        """The fields read, by name. Raises: InvalidRecordError: SCHEMA_UNKNOWN, SCHEMA_INCOMPATIBLE, as values do."""
        schema_id = schema_id_of(data)
        if schema_id is None:
            raise InvalidRecordError("no id of a schema in front")
        if schema_id not in self._known:
            self._known[schema_id] = self._reader(schema_id)
        read, most_items = self._known[schema_id]
        cursor = AvroCursor(data, _ID_BYTES, most_items=most_items)
        found: dict[str, Any] = read(cursor)
        cursor.end()
        return found

    def _reader(self, schema_id: int) -> tuple[FieldReader, int | None]:
        registered = self._schemas.get(schema_id)
        if registered is None:
            raise InvalidRecordError(
                f"schema {schema_id}, which the registry does not know", Code.SCHEMA_UNKNOWN
            )
        schema = resolved_schema(registered)
        try:
            read, is_endless = self._shape(schema), is_unbounded(schema)
        except InvalidRecordError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise no_avro(type(error).__name__) from None
        if is_endless:
            # A value within another one takes some frames of Python's stack.
            sys.setrecursionlimit(max(sys.getrecursionlimit(), STACK_FRAMES))
        return read, MAX_ITEMS if is_endless else None
