"""Keys, rows and events of an upstream in Avro, by schemas of a registry whose ids stand in front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from schemas.errors import Code
from schemas.kinds.columns import in_records
from schemas.position import Key
from schemas.table import Column
from schemas.types import ColumnType, TypeName
from streaming.reading.records.forms import RecordForm
from streaming.reading.records.json_records import JsonRecords
from streaming.reading.records.logs import NUMBER_FIELDS, TEXT_FIELDS
from streaming.reading.records.upstreams import Event, EventRow, UpstreamEncoding
from streaming.reading.values.avro_bytes import FieldReader
from streaming.reading.values.avro_fields import (
    FramedReader,
    RecordShape,
    column_reader,
    record_reader,
    value_reader,
)
from streaming.reading.values.connect import placeholder_texts
from streaming.reading.values.invalid import InvalidRecordError
from streaming.reading.values.writer_schemas import (
    AvroSchema,
    IncompatibleSchemaError,
    SchemaLookup,
    branches_of,
    fields_of,
)


def _optional(name: str, kind: TypeName) -> Column:
    return Column(name, ColumnType(kind), nullable=True)


# Texts of an event are read as bytes, for they need not be UTF-8.
_EVENT = _optional("op", TypeName.BINARY), _optional("ts_ms", TypeName.BIGINT)
_SOURCE = (
    *(_optional(name, TypeName.BINARY) for name in TEXT_FIELDS),
    *(_optional(name, TypeName.BIGINT) for name in NUMBER_FIELDS),
)
_IS_DELETED: Mapping[Any, bool] = {None: False, False: False, True: True, "false": False, "true": True}


class _NoSchemas:
    """A registry that has none."""

    def get(self, schema_id: int, /) -> None:
        return None


class AvroRecords(UpstreamEncoding):
    """See `UpstreamEncoding`."""

    general = Code.CHANGE_MALFORMED

    def __init__(self, form: RecordForm, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        schemas: SchemaLookup = _NoSchemas() if form.schemas is None else form.schemas
        self._columns, self._key_columns = in_records(columns), in_records(key_columns)
        self._names = [column.name for column in self._columns]
        self._key_names = [column.name for column in self._key_columns]
        self._deleted_field = form.deleted_field_of(columns)
        row = partial(record_reader, columns=self._columns, truncates=form.truncates)
        value: RecordShape = row if self._deleted_field is None else partial(self._deletable_row, row=row)
        if form.format == "debezium":
            value = partial(_event, rows=row, whole=form.before == "full")
        self._values = FramedReader(schemas, value)
        self._keys = FramedReader(schemas, self._key_shape(form))
        self._plain_keys = None if form.key in ("record", "avro") else JsonRecords(form, columns, key_columns)
        texts = placeholder_texts(form.unavailable) if form.format == "debezium" else ()
        of_type = {TypeName.STRING: frozenset(texts), TypeName.BINARY: frozenset(map(str.encode, texts))}
        self._left_out = [
            (index, of_type[column.type.name])
            for index, column in enumerate(self._columns)
            if column.type.name in of_type and column.name not in self._key_names
        ]

    def _key_shape(self, form: RecordForm) -> RecordShape:
        if form.format == "upsert" and form.key == "avro":
            return partial(value_reader, column=self._key_columns[0])
        return partial(record_reader, columns=self._key_columns, exact=True, truncates=form.truncates)

    def _deletable_row(self, schema: AvroSchema, row: Any) -> FieldReader:
        name, columns = self._deleted_field or "", list(self._columns)
        if name not in self._names:
            kinds = {each["type"] for each in branches_of(fields_of(schema).get(name, "null"))}
            columns.append(_optional(name, TypeName.BOOLEAN if "boolean" in kinds else TypeName.STRING))
        read: FieldReader = row(schema, columns=columns)
        return read

    def key(self, data: bytes) -> Key:
        if self._plain_keys is not None:
            return self._plain_keys.key(data)
        if not data:
            raise InvalidRecordError("no bytes")
        return tuple(map(self._keys.read(data).get, self._key_names))

    def row(self, data: bytes) -> list[Any] | None:
        values = self._values.read(data)
        if self._deleted_field is not None:
            is_deleted = values.get(self._deleted_field)
            if type(is_deleted) not in (bool, str, type(None)) or is_deleted not in _IS_DELETED:
                raise InvalidRecordError(f"a {self._deleted_field} that is neither true nor false")
            if _IS_DELETED[is_deleted]:
                return None
        return list(map(values.get, self._names))

    def event(self, data: bytes) -> Event:
        fields = self._values.read(data)
        return Event(_text(fields.get("op")), fields)

    def source(self, value: Any) -> Mapping[str, Any]:
        return {name: _text(each) if isinstance(each, bytes) else each for name, each in value.items()}

    def event_row(self, value: Any, plan: Any) -> EventRow:
        row = list(map(value.get, self._names))
        left_out = tuple(index for index, texts in self._left_out if row[index] in texts)
        for index in left_out:
            row[index] = None
        return EventRow(row, left_out)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _event(schema: AvroSchema, *, rows: RecordShape, whole: bool) -> FieldReader:
    if not fields_of(schema).keys() & {column.name for column in _EVENT}:
        raise IncompatibleSchemaError("a record that is no change event: it has no op")
    parts = {"source": _source, "after": rows, **({"before": rows} if whole else {})}
    return record_reader(schema, _EVENT, parts=parts)


def _source(schema: AvroSchema) -> FieldReader:
    """Fields of other types, as other connectors have them under these names, are left out."""
    fields = fields_of(schema)

    def fits(column: Column) -> bool:
        try:
            return column.name in fields and column_reader(column, fields[column.name]) is not None
        except IncompatibleSchemaError:
            return False

    return record_reader(schema, list(filter(fits, _SOURCE)))
