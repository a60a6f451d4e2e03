"""Records of an output whose columns have changed: older ones lack some, or have them in narrower types.

A record that lacks a column stands for its fill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TypeAlias

from schemas.errors import InputError
from schemas.position import Key
from schemas.records import Row
from schemas.table import Column
from schemas.types import ColumnType, Value
from streaming.reading.records.forms import ReadRecord, RecordForm
from streaming.reading.records.upstreams import UpstreamReader

MakeReader: TypeAlias = Callable[[RecordForm, Sequence[Column]], UpstreamReader]


class GrownReader(UpstreamReader):
    """Reads each record by the columns that it was written with, those of the one before first."""

    def __init__(self, form: RecordForm, columns: Sequence[Column], make: MakeReader) -> None:
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
