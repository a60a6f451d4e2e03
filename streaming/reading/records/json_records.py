"""Keys, rows and events of an upstream in JSON, alone or in Kafka Connect's frame."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from schemas.errors import Code
from schemas.kinds.columns import in_records
from schemas.position import Key
from schemas.table import Column
from schemas.types import TypeName
from streaming.reading.records.forms import RecordForm
from streaming.reading.records.upstreams import Event, EventRow, UpstreamEncoding
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
    JsonObject,
    as_object,
    compact,
    names_of,
    parsed,
    text_of,
)
from streaming.reading.values.json_values import (
    NamedReader,
    Reader,
    plain_reader,
    read_row,
    read_value,
    text_reader,
)

_FRAME = '{"schema"'


class RowPlan(NamedTuple):
    """The readers of columns under one schema, and by index the columns that it makes unreadable.

    `names` are those of columns that have another name in objects, or several, of which the first one there counts.
    `fills` are the values of columns that objects lack, by index, but those that are null.
    """

    readers: list[NamedReader]
    faults: dict[int, InvalidRecordError]
    names: dict[str, Sequence[str]]
    fills: dict[int, Any]


class FramedColumns:
    """Objects of some columns, alone or in a frame. What the last frame says is kept: most records have the same."""

    def __init__(self, form: RecordForm, columns: Sequence[Column], inside: str | None = None) -> None:
        """`inside`: the field of a frame's schema that describes the columns, None for all of it."""
        self.columns = in_records(columns)
        self._form, self._inside, self._is_event = form, inside, form.format == "debezium"
        self._can_be_framed = PARTS.isdisjoint(column.name for column in self.columns)
        self._plain = self.plan(NO_MEANINGS)
        self._described: tuple[Any, RowPlan] = (None, self._plain)

    def plan(self, meanings: Meanings) -> RowPlan:
        """The readers of the columns by what a frame says of them."""
        made = RowPlan([], {}, {}, {})
        for index, column in enumerate(self.columns):
            names = column.names_in_records
            described = next((name for name in names if name in meanings), None)
            if described is None and column.fill is not None:
                made.fills[index] = column.fill
            if len(names) > 1:
                made.names[column.name] = names if described is None else [described]
            try:
                reader = self._reader(column, meanings.get(described or "", UNSAID))
            except InvalidRecordError as reason:
                made.faults[index], reader = reason, plain_reader(column)
            made.readers.append((column.name, reader, column))
        return made

    def _reader(self, column: Column, meaning: FieldMeaning) -> Reader:
        truncates = self._form.truncates
        if self._is_event:
            return described_reader(column, meaning, self._form.time, self._form.decimal, truncates=truncates)
        if meaning.name is None and meaning.fault is None:
            return plain_reader(column, truncates=truncates)
        plain = Column(column.name, column.type, column.nullable, unsigned=column.unsigned)
        return described_reader(plain, meaning, "adaptive", "precise", truncates=truncates)

    def opened(self, data: bytes) -> tuple[JsonObject | None, RowPlan]:
        """The fields, None for a null in a frame, with their readers. Raises: InvalidRecordError."""
        text = text_of(data)
        fields = as_object(parsed(text))
        if not self.is_frame(text, fields):
            return fields, self._plain
        parts = dict(fields)
        schema, payload = parts["schema"], parts.get("payload", False)
        if schema != self._described[0]:
            self._described = schema, self.plan(meanings_in(schema, self._inside))
        return None if payload is None else as_object(payload), self._described[1]

    def is_frame(self, text: str, fields: JsonObject) -> bool:
        """True for a record within its schema. Raises: InvalidRecordError for a part that comes twice."""
        if not self._is_event:
            return self._can_be_framed and len(fields) == 2 and set(names_of(fields)) == PARTS
        if not text.startswith(_FRAME):
            return False
        if len(dict(fields)) < len(fields):
            raise InvalidRecordError("a part of its frame that comes twice")
        return True

    def row(self, fields: Mapping[str, Any], plan: RowPlan) -> list[Any]:
        """The values of all columns. Raises: InvalidRecordError."""
        if plan.names:
            fields = self._by_column(fields, plan)
        for index, fault in plan.faults.items():
            if self._is_event or self.columns[index].name in fields:
                read_row(plan.readers[:index], fields)  # an invalid value before it comes first
                raise fault
        values = read_row(plan.readers, fields)
        for index, fill in plan.fills.items():
            if self.columns[index].name not in fields:
                values[index] = fill
        return values

    def _by_column(self, fields: Mapping[str, Any], plan: RowPlan) -> Mapping[str, Any]:
        """The fields with each column under its own name."""
        found = dict(fields)
        for column, names in plan.names.items():
            found.pop(column, None)
            name = next((each for each in names if each in fields), None)
            if name is not None:
                found[column] = fields[name]
        return found


class JsonRecords(UpstreamEncoding):
    """See `UpstreamEncoding`."""

    general = Code.JSON_MALFORMED

    def __init__(self, form: RecordForm, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._form, is_event = form, form.format == "debezium"
        self._values = FramedColumns(form, columns, "after" if is_event else None)
        self._keys = FramedColumns(form, key_columns)
        self._key_names = {column.name for column in self._keys.columns}
        self._deleted_field = form.deleted_field_of(columns)
        texts: dict[TypeName, frozenset[str]] = {}
        if is_event:
            in_base64 = base64.b64encode(placeholder_bytes(form.unavailable)).decode()
            texts[TypeName.STRING] = placeholder_texts(form.unavailable)
            texts[TypeName.BINARY] = frozenset([in_base64])
        self._left_out = [
            (index, column.name, texts[column.type.name])
            for index, column in enumerate(self._values.columns)
            if column.name not in self._key_names and column.type.name in texts
        ]

    def key(self, data: bytes) -> Key:
        if self._form.format == "upsert" and self._form.key != "record":
            return (self._single_key(data),)
        fields, plan = self._keys.opened(data)
        found = dict(fields or ())
        if fields is None or found.keys() != self._key_names or len(found) < len(fields):
            raise InvalidRecordError("other fields than the key columns", Code.KEY_MISMATCH)
        return tuple(self._keys.row(found, plan))

    def _single_key(self, data: bytes) -> Any:
        [column] = self._keys.columns
        text = text_of(data)
        if self._form.key == "text":
            return read_value(text_reader(column, truncates=self._form.truncates), text, column)
        value, meanings = parsed(text), NO_MEANINGS
        if isinstance(value, tuple | list):
            frame = dict(as_object(value))
            if not self._keys.is_frame(text, value):  # type: ignore[arg-type]
                raise InvalidRecordError("an object or a list")
            value, meanings = frame["payload"], {column.name: meaning_of(frame["schema"])}
        return self._keys.row({column.name: value}, self._keys.plan(meanings))[0]

    def row(self, data: bytes) -> list[Any] | None:
        fields, plan = self._values.opened(data)
        if fields is None:
            return None
        found = dict(fields)
        if self._deleted_field is not None and self._is_deleted(found.get(self._deleted_field)):
            return None
        return self._values.row(found, plan)

    def _is_deleted(self, value: Any) -> bool:
        if type(value) is str and value in ("true", "false"):
            return value == "true"
        if not isinstance(value, bool | None):
            raise InvalidRecordError("neither true nor false", column=self._deleted_field)
        return value is True

    def event(self, data: bytes) -> Event | None:
        fields, plan = self._values.opened(data)
        if fields is None:
            return None
        found = dict(fields)
        op = found.get("op")
        return Event(op if op is None or type(op) is str else compact(op), found, plan)

    def source(self, value: Any) -> Mapping[str, Any]:
        return dict(as_object(value))

    def event_row(self, value: Any, plan: RowPlan) -> EventRow:
        fields, left_out = dict(as_object(value)), []
        for index, name, texts in self._left_out:
            found = fields.get(name)
            if found is not None and (found if type(found) is str else compact(found)) in texts:
                left_out.append(index)
                fields[name] = None
        return EventRow(self._values.row(fields, plan), tuple(left_out))
