"""Records of an output in the forms `upsert`, `append` and `debezium`: each has one form, all others are invalid.

A record is read, written again from what was read (`streaming.reading.records.written`), and has to be the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.errors import Code, InputError
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import Column
from schemas.types import TypeName
from streaming.reading.records.forms import ReadRecord, RecordForm
from streaming.reading.records.upstreams import EVENT_OPS, UpstreamReader, mismatched
from streaming.reading.records.written import SOURCE, RowText, event_schema_of, frame_of, row_schema_of
from streaming.reading.values.avro_bytes import AvroCursor, RowCodec, long_bytes, sized
from streaming.reading.values.connect import FieldMeaning, described_reader
from streaming.reading.values.invalid import InvalidRecordError
from streaming.reading.values.json_text import as_object, names_of, parsed, text_of
from streaming.reading.values.json_values import Reader, plain_reader, read_row

_CONNECTOR = "arrangement-backfill"
_MICROS = FieldMeaning("io.debezium.time.MicroTimestamp")
_TS_MS = [column.name for column in SOURCE].index("ts_ms")

EventParts = tuple[str, Row | None, Row | None]
"""Op, and the rows before and after."""


class OutputReader(UpstreamReader):
    """Reads records of an output. `where` is their place in errors."""

    def __init__(
        self,
        form: RecordForm,
        columns: Sequence[Column],
        key_columns: Sequence[Column],
        encoding: JsonOutput | AvroOutput,
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
        rows = [row for row in (change.before, change.after) if row is not None and keys]
        if any(row[index] != keys[number] for row in rows for number, index in self._keys_in_row):
            raise mismatched("a row whose key columns are not those of its key", where)
        return ReadRecord(change, key=keys)

    def _change(self, value: bytes) -> Change:
        if self._form.format != "debezium":
            return Change(Op.INSERT, None, self._encoding.row(value))
        letter, before, after = self._encoding.event(value)
        change = Change(EVENT_OPS[letter], before, after)
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
    if type(letter) is not str or letter not in EVENT_OPS:
        raise InvalidRecordError("an op that is none of r, c, u and d", Code.UNKNOWN_OP)
    return letter


def _checked_source(source: Row, letter: str) -> Row:
    """The source that an event has to have, with the fields that are up to the event."""
    version, _, name, ts_ms, _, _, table, epoch, vnode = source
    if not (epoch.isascii() and epoch.isdigit() and epoch == str(int(epoch))):
        raise InvalidRecordError("an epoch that is no number")
    snapshot = "true" if letter == "r" else "false"
    return version, _CONNECTOR, name, ts_ms, snapshot, "", table, epoch, vnode


class _JsonRows:
    """Objects of some columns, all of them and in their order."""

    def __init__(self, columns: Sequence[Column], *, connect: bool) -> None:
        plain = [Column(column.name, column.type, column.nullable) for column in columns]
        self._names = [column.name for column in columns]
        self._readers = [(each.name, self._reader(each, connect=connect), each) for each in plain]
        self._required = [index for index, column in enumerate(columns) if not column.nullable]
        self.text = RowText(columns, connect=connect)

    @staticmethod
    def _reader(column: Column, *, connect: bool) -> Reader:
        if not connect:
            return plain_reader(column)
        meaning = _MICROS if column.type.name is TypeName.TIMESTAMP else FieldMeaning()
        return described_reader(column, meaning, "adaptive", "precise", truncates=False)

    def read(self, value: Any) -> Row:
        fields = as_object(value)
        if names_of(fields) != self._names:
            raise InvalidRecordError("other fields than its columns")
        row = tuple(read_row(self._readers, dict(fields)))
        if any(row[index] is None for index in self._required):
            raise InvalidRecordError("a null in a key column", Code.PK_NULL)
        return row


class JsonOutput:
    """Objects, in Kafka Connect's frame if `connect`."""

    general = Code.JSON_MALFORMED

    def __init__(self, columns: Sequence[Column], key_columns: Sequence[Column], *, connect: bool) -> None:
        self._keys, self._rows = (_JsonRows(each, connect=connect) for each in (key_columns, columns))
        self._sources = _JsonRows(SOURCE, connect=False)
        schemas = row_schema_of("Key", key_columns), row_schema_of("Value", columns), event_schema_of(columns)
        frames = (frame_of(schema) if connect else ("", "") for schema in schemas)
        self._key_frame, self._row_frame, self._event_frame = frames

    def key(self, data: bytes) -> Row:
        return self._whole_row(data, self._keys, self._key_frame)

    def row(self, data: bytes) -> Row:
        return self._whole_row(data, self._rows, self._row_frame)

    def _whole_row(self, data: bytes, rows: _JsonRows, frame: tuple[str, str]) -> Row:
        row = rows.read(_payload(data, frame))
        _same(data, f"{frame[0]}{rows.text(row)}{frame[1]}".encode())
        return row

    def event(self, data: bytes) -> EventParts:
        begin, end = self._event_frame
        event = as_object(_payload(data, self._event_frame))
        if names_of(event) != ["before", "after", "source", "op", "ts_ms"]:
            raise InvalidRecordError("other fields than an event's")
        given_before, given_after, given_source, op, _ = (value for _, value in event)
        letter = _checked_letter(op)
        before, after = (
            None if each is None else self._rows.read(each) for each in (given_before, given_after)
        )
        try:
            given = self._sources.read(given_source)
        except InvalidRecordError:
            raise InvalidRecordError(f"a source that is not of {_CONNECTOR}") from None
        source = _checked_source(given, letter)
        texts = self._rows.text(before), self._rows.text(after), self._sources.text(source)
        names = '{"before":', ',"after":', ',"source":'
        rows = "".join(name + text for name, text in zip(names, texts, strict=True))
        _same(data, f'{begin}{rows},"op":"{letter}","ts_ms":{source[_TS_MS]}}}{end}'.encode())
        return letter, before, after


def _payload(data: bytes, frame: tuple[str, str]) -> Any:
    """A record without its frame; that this is the one of its format is compared when all is written again."""
    value = parsed(text_of(data))
    if not frame[0]:
        return value
    if names_of(as_object(value)) != ["schema", "payload"]:
        raise InvalidRecordError("other fields than schema and payload")
    return value[1][1]


class AvroOutput:
    """Avro by registered schemas, whose ids stand in front."""

    general = Code.CHANGE_MALFORMED

    def __init__(self, form: RecordForm, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._keys, self._rows, self._sources = map(RowCodec, (key_columns, columns, SOURCE))
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

    def event(self, data: bytes) -> EventParts:
        cursor = AvroCursor(_behind(data, self._value_frame))
        before, after = self._rows.optional_row(cursor), self._rows.optional_row(cursor)
        given, letter = self._sources.read_row(cursor), cursor.string()
        if cursor.choice(2):
            cursor.long()
        cursor.end()
        source = _checked_source(given, _checked_letter(letter))
        rows = self._rows.optional_bytes(before) + self._rows.optional_bytes(after)
        end = sized(letter.encode()) + b"\x02" + long_bytes(source[_TS_MS])
        _same(data, self._value_frame + rows + self._sources.row_bytes(source) + end)
        return letter, before, after


def _behind(data: bytes, frame: bytes) -> bytes:
    if not data.startswith(frame):
        raise InvalidRecordError("other first bytes than those of its schema's id")
    return data[len(frame) :]
