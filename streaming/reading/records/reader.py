"""The reader of a topic's records: slow, plain, and made without the decoders and encoders that the service has.

What is shared with the service is declared, not computed: tables and types, settings, error codes, and plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from schemas.errors import Code, InputError
from schemas.position import Key
from schemas.table import Column
from streaming.reading.records.avro_records import AvroRecords
from streaming.reading.records.forms import ReadRecord, RecordForm
from streaming.reading.records.grown import GrownReader
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
            return ReadRecord(self._changes.change(value))
        except InvalidRecordError as reason:
            raise reason.as_input(Code.CHANGE_MALFORMED, "a value", where) from None


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
