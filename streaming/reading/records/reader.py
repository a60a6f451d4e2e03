"""The reader of a topic's records: slow, plain, and made without the decoders and encoders that the service has.

What is shared with the service is declared, not computed: tables and types, settings, error codes, and plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TypeAlias

from schemas.errors import Code, InputError
from schemas.position import Key
from schemas.records import Row
from schemas.table import Column
from schemas.types import ColumnType, Value
from streaming.reading.records.avro_records import AvroRecords
from streaming.reading.records.forms import ReadRecord, RecordForm
from streaming.reading.records.json_records import JsonRecords
from streaming.reading.records.outputs import AvroOutput, JsonOutput, OutputReader
from streaming.reading.records.upstreams import Appended, ChangeEvents, Upserts, UpstreamReader
from streaming.reading.values.avro_bytes import RowCodec
from streaming.reading.values.invalid import InvalidRecordError

Columns: TypeAlias = Sequence[Column]
MakeReader: TypeAlias = Callable[[RecordForm, Columns, Columns], UpstreamReader]


class PlainChanges(UpstreamReader):
    """Changes in Avro without a schema in front, docs/contract.md#records-on-the-upstream. Keys are not compared."""

    def __init__(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._changes, self._keys = RowCodec(columns), RowCodec(key_columns)

    def key(self, data: bytes | None, *, where: str | None = None) -> Key:
        try:
            return self._keys.row(data or b"")
        except InvalidRecordError as reason:
            raise reason.as_input(Code.KEY_MISMATCH, "a key", where) from None

    def record(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> ReadRecord:
        if not value:
            raise InputError(Code.EMPTY_RECORD, where=where, found="a value of 0 bytes")
        try:
            change, rows = self._changes.change(value)
        except InvalidRecordError as reason:
            raise reason.as_input(Code.CHANGE_MALFORMED, "a value", where) from None
        return ReadRecord(change, rows=rows)


def _output(form: RecordForm, columns: Columns, key_columns: Columns) -> UpstreamReader:
    def of(form: RecordForm, columns: Columns) -> OutputReader:
        if form.encoding == "avro-registry":
            return OutputReader(form, columns, key_columns, AvroOutput(form, columns, key_columns))
        connect = form.encoding == "json-schema"
        return OutputReader(form, columns, key_columns, JsonOutput(columns, key_columns, connect=connect))

    has_changed = form.fills or form.earlier or any(column.was for column in columns)
    return GrownReader(form, columns, of) if has_changed else of(form, columns)


def _records(form: RecordForm, columns: Columns, key_columns: Columns) -> AvroRecords | JsonRecords:
    return (AvroRecords if form.encoding == "avro-registry" else JsonRecords)(form, columns, key_columns)


READERS: dict[str, MakeReader] = {
    "change": lambda form, columns, keys: PlainChanges(columns, keys),
    "append": lambda form, columns, keys: Appended(_records(form, columns, keys)),
    "upsert": lambda form, columns, keys: Upserts(form, columns, keys, _records(form, columns, keys)),
    "debezium": lambda form, columns, keys: ChangeEvents(form, columns, keys, _records(form, columns, keys)),
}
"""By format: of upstreams, and of outputs that have a reader of their own.

A format that is added to the product has to be added here: the checker shares no reader with the service.
"""


def reader_of(form: RecordForm, columns: Sequence[Column], key_columns: Sequence[Column]) -> UpstreamReader:
    """The reader of records in a form. `columns` are those of its rows: the table's, or the job's for an output."""
    is_own = form.is_output and form.format in ("upsert", "debezium", "append")
    return (_output if is_own else READERS[form.format])(form, columns, key_columns)


class GrownReader(UpstreamReader):
    """Reads each record by the columns that it was written with, those of the one before first."""

    def __init__(
        self, form: RecordForm, columns: Columns, make: Callable[[RecordForm, Columns], UpstreamReader]
    ) -> None:
        """`make` gives the reader of records with these columns."""
        self._fills, self._columns = form.fills, columns
        self._is_widened = any(column.was for column in columns)
        # In Avro each value of a narrower type has the bytes of the wider one.
        versions = [columns] if form.encoding == "avro-registry" else list(_versions(columns))
        self._readers = [
            (width, make(replace(form, value_id=value_id), version[:width]))
            for width, value_id in ((len(columns), form.value_id), *reversed(form.earlier))
            for version in versions
        ]
        self._whole = self._readers[0][1]

    def key(self, data: bytes | None, *, where: str | None = None) -> Key:
        return self._whole.key(data, where=where)

    def record(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> ReadRecord:
        if value is None:
            return self._whole.record(key, value, where=where)
        for number, (width, reader) in enumerate(self._readers):
            try:
                found = reader.record(key, value, where=where)
            except InputError:
                continue
            if number:
                self._readers.insert(0, self._readers.pop(number))
            return self._filled(found, width)
        return self._whole.record(key, value, where=where)  # for its error

    def _filled(self, found: ReadRecord, width: int) -> ReadRecord:
        change = found.change
        if change is not None and (self._is_widened or width < len(self._fills)):
            before, after = (self._whole_row(row) for row in (change.before, change.after))
            change = replace(change, before=before, after=after)
        return found._replace(change=change, width=width)

    def _whole_row(self, row: Row | None) -> Row | None:
        if row is not None and self._is_widened:
            row = tuple(in_type(value, each.type) for value, each in zip(row, self._columns, strict=False))
        return filled(row, self._fills)


def _versions(columns: Sequence[Column]) -> Iterator[Sequence[Column]]:
    """The columns in all types that they have had, the newest first."""
    yield columns
    for epoch in sorted({former.epoch for column in columns for former in column.was}, reverse=True):
        yield [column.at(epoch) for column in columns]


def in_type(value: Value, kind: ColumnType) -> Value:
    """A value of a column in another one of the types that it has had: a decimal has the scale of its type."""
    return kind.exact(value) if isinstance(value, Decimal) else value


def filled(row: Row | None, fills: Row) -> Row | None:
    """A row with the fills of the columns that it lacks."""
    return None if row is None else row + fills[len(row) :]
