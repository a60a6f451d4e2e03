"""Records by the service's own decoder beside those by the checker's reader: the one place for both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.errors import InputError
from schemas.formats.protocol import UpstreamFormat
from schemas.table import TableSchema
from streaming.reading.records.forms import RecordForm
from streaming.reading.records.logs import LogName, PlaceInLog
from streaming.reading.records.reader import reader_of
from tests.kit.single_records import single_records
from tests.kit.two_ways import as_text

Record = tuple[bytes | None, bytes | None]
"""Key and value."""


def place_of(position: Any) -> PlaceInLog | None:
    """A position of the service, as the checker has it."""
    if position is None:
        return None
    return PlaceInLog(LogName(*position.log), position.position, position.ts_ms)


def by_service(format_: UpstreamFormat, table: TableSchema, found: Sequence[Record]) -> list[object]:
    """Of each record the change, what it leaves out and its position, or the code of its fault."""
    rows = single_records(format_, table.columns, table.key_columns)

    def read(record: Record) -> object:
        try:
            read = rows.read_record(*record)
        except InputError as error:
            return error.code
        return as_text([read.change]), tuple(read.unchanged), place_of(read.position)

    return list(map(read, found))


def by_checker(format_: UpstreamFormat, table: TableSchema, found: Sequence[Record]) -> list[object]:
    """Readings of the records by the checker's reader."""
    reader = reader_of(RecordForm.of(format_), table.columns, table.key_columns)

    def read(record: Record) -> object:
        try:
            read = reader.record(*record)
        except InputError as error:
            return error.code
        return as_text([read.change]), read.left_out, read.place

    return list(map(read, found))


def disagreements(format_: UpstreamFormat, table: TableSchema, found: Sequence[Record]) -> list[object]:
    """The records that the two read differently, each with what they say."""
    both = zip(by_service(format_, table, found), by_checker(format_, table, found), strict=True)
    return [(record, *said) for record, said in zip(found, both, strict=True) if said[0] != said[1]]
