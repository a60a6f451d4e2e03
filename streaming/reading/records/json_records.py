"""Keys, rows and events of an upstream in JSON, alone or in Kafka Connect's frame."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from schemas.errors import Code
from schemas.kinds.columns import in_records
from schemas.table import Column
from schemas.types import TypeName
from streaming.reading.records.forms import RecordForm
from streaming.reading.records.logs import NUMBER_FIELDS, TEXT_FIELDS
from streaming.reading.records.upstreams import EncodedRecords, Envelope, EventRow, Values
from streaming.reading.values.connect import (
    NO_MEANINGS,
    PARTS,
    UNSAID,
    FieldMeaning,
    Meanings,
    described_reader,
    meaning_of,
    meanings_in,
    placeholder_bytes,
    placeholder_texts,
)
from streaming.reading.values.invalid import InvalidRecordError
from streaming.reading.values.json_text import (
    JsonNumber,
    JsonObject,
    as_object,
    compact,
    parsed,
    parsed_object,
    text_of,
)
from streaming.reading.values.json_values import Reader, plain_reader, read_value, text_reader

_BEGIN_OF_FRAME = b'{"schema"'
_LONGS = range(-(2**63), 2**63)


class JsonColumns:
    """Reads values of some columns. Their readers under one schema are kept, as most records have the same."""

    def __init__(self, form: RecordForm, columns: Sequence[Column]) -> None:
        self.columns = in_records(columns)
        self._form, self._known = form, dict[tuple[str, FieldMeaning], Reader]()
        self._undescribed = dict[str, Reader]()

    def value(self, column: Column, value: Any, meanings: Meanings) -> Any:
        """None for null. Raises: InvalidRecordError."""
        name = column.name
        reader = None if meanings else self._undescribed.get(name)
        if reader is None:
            meaning = meanings.get(name, UNSAID)
            reader = self._known.get((name, meaning))
            if reader is None:
                reader = self._known[name, meaning] = self._reader(column, meaning)
            if not meanings:
                self._undescribed[name] = reader
        return read_value(reader, value, column)

    def _reader(self, column: Column, meaning: FieldMeaning) -> Reader:
        truncates = self._form.truncates
        if self._form.format == "debezium":
            return described_reader(column, meaning, self._form.time, self._form.decimal, truncates=truncates)
        if meaning.name is None and meaning.fault is None:
            return plain_reader(column, truncates=truncates)
        plain = Column(column.name, column.type, column.nullable, unsigned=column.unsigned)
        return described_reader(plain, meaning, "adaptive", "precise", truncates=truncates)


class JsonRecords(EncodedRecords):
    """See `EncodedRecords`."""

    general = Code.JSON_MALFORMED

    def __init__(self, form: RecordForm, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._form = form
        self._columns, self._keys = JsonColumns(form, columns), JsonColumns(form, key_columns)
        self._deleted_field = form.deleted_field_of(columns) if form.format == "upsert" else None
        key_names = {column.name for column in self._keys.columns}
        left_out = {}
        if form.format == "debezium":
            in_base64 = base64.b64encode(placeholder_bytes(form.unavailable)).decode()
            left_out = {
                TypeName.STRING: placeholder_texts(form.unavailable),
                TypeName.BINARY: frozenset([in_base64]),
            }
        self._left_out = {
            column.name: left_out.get(column.type.name, frozenset())
            for column in self._columns.columns
            if column.name not in key_names
        }

    def key(self, data: bytes) -> Values:
        if self._form.format == "upsert" and self._form.key != "record":
            [column] = self._keys.columns
            return {column.name: self._single_key(data, column)}
        fields, meanings = self._unframed(data, self._keys)
        columns = {column.name: column for column in self._keys.columns}
        if fields is None or sorted(fields.names) != sorted(columns):
            raise InvalidRecordError("other fields than the key columns", Code.KEY_MISMATCH)
        return {
            name: self._keys.value(column, fields.fields[name], meanings) for name, column in columns.items()
        }

    def _single_key(self, data: bytes, column: Column) -> Any:
        if self._form.key == "text":
            return read_value(text_reader(column, truncates=self._form.truncates), text_of(data), column)
        value, meanings = parsed(data), NO_MEANINGS
        if isinstance(value, JsonObject | list):
            frame = as_object(value)
            if not _is_frame(frame, self._keys):
                raise InvalidRecordError("an object or a list")
            value, meanings = frame.fields["payload"], {column.name: meaning_of(frame.fields["schema"])}
        return self._keys.value(column, value, meanings)

    def row(self, data: bytes) -> Values | None:
        fields, meanings = self._unframed(data, self._columns)
        if fields is None or self._is_deleted(fields):
            return None
        return {
            column.name: self._columns.value(column, fields.fields[column.name], meanings)
            for column in self._columns.columns
            if column.name in fields.fields
        }

    def _is_deleted(self, row: JsonObject) -> bool:
        value = row.fields.get(self._deleted_field or "")
        if value in ("true", "false") and type(value) is str:
            return value == "true"
        if not isinstance(value, bool | None):
            raise InvalidRecordError("neither true nor false", column=self._deleted_field)
        return value is True

    def envelope(self, data: bytes) -> JsonEnvelope | None:
        fields, meanings = self._unframed(data, self._columns, inside="after")
        return None if fields is None else JsonEnvelope(self, fields, meanings)

    def event_row(self, value: Any, meanings: Meanings) -> EventRow:
        """A row of an event."""
        fields, values, left_out = as_object(value).fields, Values(), []
        for index, column in enumerate(self._columns.columns):
            found = fields.get(column.name)
            texts = self._left_out.get(column.name)
            if texts and found is not None and (found if type(found) is str else compact(found)) in texts:
                left_out.append(index)
            else:
                values[column.name] = self._columns.value(column, found, meanings)
        return EventRow(values, tuple(left_out))

    def _unframed(
        self, data: bytes, columns: JsonColumns, inside: str | None = None
    ) -> tuple[JsonObject | None, Meanings]:
        """The fields, None for a null in a frame, and what the frame says of those of its field `inside`, or of all."""
        fields = parsed_object(data)
        if self._form.format == "debezium":
            if not data.startswith(_BEGIN_OF_FRAME):
                return fields, NO_MEANINGS
            if len(fields.fields) < len(fields.pairs):
                raise InvalidRecordError("a part of its frame that comes twice")
        elif not _is_frame(fields, columns):
            return fields, NO_MEANINGS
        meanings = meanings_in(fields.fields["schema"], inside)
        payload = fields.fields.get("payload", False)
        return (None if payload is None else as_object(payload)), meanings


def _is_frame(fields: JsonObject, columns: JsonColumns) -> bool:
    """True for an object of a schema and a payload and nothing else, neither of which is a column."""
    return sorted(fields.names) == sorted(PARTS) and PARTS.isdisjoint(
        column.name for column in columns.columns
    )


class JsonEnvelope(Envelope):
    """See `Envelope`. Fields that are null are not there."""

    def __init__(self, records: JsonRecords, fields: JsonObject, meanings: Meanings) -> None:
        self._records, self._meanings = records, meanings
        self._fields = found = {name: value for name, value in fields.fields.items() if value is not None}
        op = found.get("op")
        self.op = op if op is None or type(op) is str else compact(op)
        self.has_time, self.has_source, self.has_after = (
            name in found for name in ("ts_ms", "source", "after")
        )

    def source(self) -> dict[str, Any]:
        return _source_of(self._fields["source"]) if self.has_source else {}

    def row(self, name: str) -> EventRow | None:
        if name not in self._fields:
            return None
        return self._records.event_row(self._fields[name], self._meanings)


def _source_of(value: Any) -> dict[str, Any]:
    """The fields that positions are made of; those of another type, as other connectors have them, are left out."""
    fields, found = as_object(value).fields, dict[str, Any]()
    for name in TEXT_FIELDS:
        if type(text := fields.get(name)) is str:
            found[name] = text
        elif name == "snapshot" and type(text) is bool:
            found[name] = compact(text)
    for name in NUMBER_FIELDS:
        number = fields.get(name)
        if isinstance(number, JsonNumber) and number.is_whole and int(number) in _LONGS:
            found[name] = int(number)
    return found
