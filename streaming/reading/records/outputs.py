"""Records of an output in the forms `upsert`, `append` and `debezium`: each has one form, all others are invalid.

A record is read, written again from what was read (`streaming.reading.records.written`), and has to be the same bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from schemas.errors import Code, InputError
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import Column
from schemas.types import TypeName
from streaming.reading.records.forms import ReadRecord, RecordForm
from streaming.reading.records.upstreams import UpstreamReader, mismatched
from streaming.reading.records.written import (
    SOURCE_FIELDS,
    event_schema_of,
    frame_of,
    quoted,
    row_schema_of,
    row_text,
)
from streaming.reading.values.avro_bytes import AvroCursor, RowCodec, long_bytes, sized
from streaming.reading.values.connect import FieldMeaning, described_reader
from streaming.reading.values.invalid import InvalidRecordError
from streaming.reading.values.json_text import JsonNumber, as_object, parsed
from streaming.reading.values.json_values import plain_reader, read_value

_CONNECTOR = "arrangement-backfill"
_OPS = {"r": Op.INSERT, "c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE}
_MICROS = FieldMeaning("io.debezium.time.MicroTimestamp")


class EventOrigin(NamedTuple):
    """The fields of an event that are not of its rows, but for the constant ones."""

    version: str
    name: str
    ts_ms: int
    table: str
    epoch: str
    vnode: int


class OutputEncoding(ABC):
    """Reads rows and events in one encoding. All raise InvalidRecordError."""

    general: Code
    """Of a value that is wrong in a way without a code of its own."""

    @abstractmethod
    def key(self, data: bytes) -> Row:
        """The key columns, in key order."""

    @abstractmethod
    def row(self, data: bytes) -> Row:
        """A value that is a row."""

    @abstractmethod
    def event(self, data: bytes) -> tuple[str, Row | None, Row | None]:
        """Op, and the rows before and after."""


class OutputReader(UpstreamReader):
    """Reads records of an output. `where` is their place in errors."""

    def __init__(
        self,
        form: RecordForm,
        columns: Sequence[Column],
        key_columns: Sequence[Column],
        encoding: OutputEncoding,
    ) -> None:
        self._form, self._encoding = form, encoding
        names = [column.name for column in columns]
        shown = (column.name for column in key_columns)
        self._keys_in_row = [
            (number, names.index(name)) for number, name in enumerate(shown) if name in names
        ]
        self._length = len(names)

    def key(self, data: bytes | None, *, where: str | None = None) -> Key:
        """The empty one of rows without identity. Raises: InputError, KEY_MISMATCH in general."""
        if self._form.format == "append":
            return ()
        if not data:
            raise mismatched("a record without a key", where)
        try:
            return self._encoding.key(data)
        except InvalidRecordError as reason:
            raise reason.as_input(Code.KEY_MISMATCH, "a key", where) from None

    def record(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> ReadRecord:
        keys = self.key(key, where=where)
        if value is None:
            if not self._form.may_be_null:
                raise InputError(Code.TOMBSTONE_UNSUPPORTED, where=where, found="a null value")
            return ReadRecord(None if self._form.format == "debezium" else self._delete(keys), key=keys)
        try:
            change = self._change(value)
        except InvalidRecordError as reason:
            raise reason.as_input(self._encoding.general, "a value", where) from None
        for row in (change.before, change.after):
            if row is not None and any(
                row[index] != keys[number] for number, index in self._keys_in_row if keys
            ):
                raise mismatched("a row whose key columns are not those of its key", where)
        return ReadRecord(change, key=keys)

    def _change(self, value: bytes) -> Change:
        if self._form.format != "debezium":
            return Change(Op.INSERT, None, self._encoding.row(value))
        letter, before, after = self._encoding.event(value)
        change = Change(_OPS[letter], before, after)
        if not change.is_well_formed():
            raise InvalidRecordError(f"an event {letter} with other rows than it has")
        return change

    def _delete(self, keys: Key) -> Change:
        row: list[Any] = [None] * self._length
        for number, index in self._keys_in_row:
            row[index] = keys[number]
        return Change(Op.DELETE, tuple(row), None)


def _same(data: bytes, written: bytes) -> None:
    if data != written:
        raise InvalidRecordError("another form than this format writes")


def _checked_letter(letter: Any) -> str:
    if type(letter) is not str or letter not in _OPS:
        raise InvalidRecordError("an op that is none of r, c, u and d", Code.UNKNOWN_OP)
    return letter


class JsonOutput(OutputEncoding):
    """Objects, in Kafka Connect's frame if `connect`."""

    general = Code.JSON_MALFORMED

    def __init__(self, columns: Sequence[Column], key_columns: Sequence[Column], *, connect: bool) -> None:
        self._columns, self._key_columns, self._connect = tuple(columns), tuple(key_columns), connect
        self._readers = {column: self._reader(column) for column in (*columns, *key_columns)}
        schemas = (
            row_schema_of("Key", key_columns),
            row_schema_of("Value", columns),
            event_schema_of(columns),
        )
        frames = (frame_of(schema) if connect else (b"", b"") for schema in schemas)
        self._key_frame, self._row_frame, self._event_frame = frames

    def _reader(self, column: Column) -> Any:
        if not self._connect:
            return plain_reader(Column(column.name, column.type, column.nullable))
        meaning = _MICROS if column.type.name is TypeName.TIMESTAMP else FieldMeaning()
        plain = Column(column.name, column.type, column.nullable)
        return described_reader(plain, meaning, "adaptive", "precise", truncates=False)

    def key(self, data: bytes) -> Row:
        return self._whole_row(data, self._key_columns, self._key_frame)

    def row(self, data: bytes) -> Row:
        return self._whole_row(data, self._columns, self._row_frame)

    def _whole_row(self, data: bytes, columns: Sequence[Column], frame: tuple[bytes, bytes]) -> Row:
        row = self._row(self._payload(data, frame), columns)
        _same(data, frame[0] + row_text(row, columns, connect=self._connect).encode() + frame[1])
        return row

    def _payload(self, data: bytes, frame: tuple[bytes, bytes]) -> Any:
        """A record within its frame, which is far longer than most rows: one that is as it has to be is not read."""
        begin, end = frame
        if data.startswith(begin) and data.endswith(end):
            return parsed(data[len(begin) : len(data) - len(end)])
        fields = as_object(parsed(data))
        if fields.names != ["schema", "payload"]:
            raise InvalidRecordError("other fields than schema and payload")
        return fields.fields["payload"]

    def _row(self, value: Any, columns: Sequence[Column]) -> Row:
        fields = as_object(value)
        if fields.names != [column.name for column in columns]:
            raise InvalidRecordError("other fields than its columns")
        row = tuple(
            read_value(self._readers[column], fields.fields[column.name], column) for column in columns
        )
        if any(value is None and not column.nullable for value, column in zip(row, columns, strict=True)):
            raise InvalidRecordError("a null in a key column", Code.PK_NULL)
        return row

    def event(self, data: bytes) -> tuple[str, Row | None, Row | None]:
        event = as_object(self._payload(data, self._event_frame))
        if event.names != ["before", "after", "source", "op", "ts_ms"]:
            raise InvalidRecordError("other fields than an event's")
        letter = _checked_letter(event.fields["op"])
        before, after = (
            None if (row := event.fields[name]) is None else self._row(row, self._columns)
            for name in ("before", "after")
        )
        written = self._event_text(letter, before, after, _origin_of(event.fields["source"]))
        _same(data, self._event_frame[0] + written.encode() + self._event_frame[1])
        return letter, before, after

    def _event_text(self, letter: str, before: Row | None, after: Row | None, origin: EventOrigin) -> str:
        rows = (
            "null" if row is None else row_text(row, self._columns, connect=self._connect)
            for row in (before, after)
        )
        snapshot = "true" if letter == "r" else "false"
        source = (
            f'{{"version":{quoted(origin.version)},"connector":"{_CONNECTOR}","name":{quoted(origin.name)}'
            f',"ts_ms":{origin.ts_ms},"snapshot":"{snapshot}","db":"","table":{quoted(origin.table)}'
            f',"epoch":"{origin.epoch}","vnode":{origin.vnode}}}'
        )
        first, second = rows
        return (
            f'{{"before":{first},"after":{second},"source":{source},"op":"{letter}","ts_ms":{origin.ts_ms}}}'
        )


def _origin_of(value: Any) -> EventOrigin:
    source = as_object(value)
    fields = source.fields
    texts = [fields.get(name) for name in ("version", "name", "table", "epoch")]
    numbers = [fields.get(name) for name in ("ts_ms", "vnode")]
    if (
        source.names != list(SOURCE_FIELDS)
        or any(type(text) is not str for text in texts)
        or not all(isinstance(number, JsonNumber) and number.is_whole for number in numbers)
    ):
        raise InvalidRecordError(f"a source that is not of {_CONNECTOR}")
    version, name, table, epoch = map(str, texts)
    ts_ms, vnode = (int(str(number)) for number in numbers)
    return EventOrigin(version, name, ts_ms, table, _checked_epoch(epoch), vnode)


def _checked_epoch(epoch: str) -> str:
    if not (epoch.isascii() and epoch.isdigit() and epoch == str(int(epoch))):
        raise InvalidRecordError("an epoch that is no number")
    return epoch


class AvroOutput(OutputEncoding):
    """Avro by registered schemas, whose ids stand in front."""

    general = Code.CHANGE_MALFORMED

    def __init__(self, form: RecordForm, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._rows, self._keys = RowCodec(columns), RowCodec(key_columns)
        self._key_frame, self._value_frame = (
            b"\x00" + number.to_bytes(4, "big") for number in (form.key_id, form.value_id)
        )

    def key(self, data: bytes) -> Row:
        return self._row(data, self._keys, self._key_frame)

    def row(self, data: bytes) -> Row:
        return self._row(data, self._rows, self._value_frame)

    def _row(self, data: bytes, codec: RowCodec, frame: bytes) -> Row:
        row = codec.row(_behind(data, frame))
        _same(data, frame + codec.row_bytes(row))
        return row

    def event(self, data: bytes) -> tuple[str, Row | None, Row | None]:
        cursor = AvroCursor(_behind(data, self._value_frame))
        before, after = (
            self._rows.read_row(cursor) if cursor.choice(2) else None for _ in ("before", "after")
        )
        version, _, name = (cursor.string() for _ in range(3))
        ts_ms = cursor.long()
        _, _, table, epoch = (cursor.string() for _ in range(4))
        vnode, letter = cursor.integer(), cursor.string()
        if cursor.choice(2):
            cursor.long()
        cursor.end()
        origin = EventOrigin(version, name, ts_ms, table, epoch, vnode)
        _same(data, self._value_frame + self._event_bytes(_checked_letter(letter), before, after, origin))
        _checked_epoch(epoch)
        return letter, before, after

    def _event_bytes(self, letter: str, before: Row | None, after: Row | None, origin: EventOrigin) -> bytes:
        rows = (b"\x00" if row is None else b"\x02" + self._rows.row_bytes(row) for row in (before, after))
        snapshot, ts_ms = "true" if letter == "r" else "false", long_bytes(origin.ts_ms)
        first = (sized(text.encode()) for text in (origin.version, _CONNECTOR, origin.name))
        rest = (sized(text.encode()) for text in (snapshot, "", origin.table, origin.epoch))
        parts = [
            *rows,
            *first,
            ts_ms,
            *rest,
            long_bytes(origin.vnode),
            sized(letter.encode()),
            b"\x02",
            ts_ms,
        ]
        return b"".join(parts)


def _behind(data: bytes, frame: bytes) -> bytes:
    if not data.startswith(frame):
        raise InvalidRecordError("other first bytes than those of its schema's id")
    return data[len(frame) :]
