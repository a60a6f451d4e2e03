"""Records of an output that has got columns: those from before lack them, which stand for the columns' fills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from schemas.errors import InputError
from schemas.position import Key
from schemas.records import Row
from schemas.table import Column
from streaming.reading.records.forms import ReadRecord, RecordForm
from streaming.reading.records.upstreams import UpstreamReader

MakeReader: TypeAlias = Callable[[RecordForm, Sequence[Column]], UpstreamReader]


class GrownReader(UpstreamReader):
    """Reads each record by the columns that it was written with, those of the one before first."""

    def __init__(self, form: RecordForm, columns: Sequence[Column], make: MakeReader) -> None:
        """`make` gives the reader of records with so many columns."""
        self._fills = form.fills
        self._whole = make(form, columns)
        self._readers = [(len(columns), self._whole)]
        for width, value_id in reversed(form.earlier):
            self._readers.append((width, make(replace(form, value_id=value_id), columns[:width])))

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
        if change is not None and width < len(self._fills):
            before, after = (filled(row, self._fills) for row in (change.before, change.after))
            change = replace(change, before=before, after=after)
        return found._replace(change=change, width=width)


def filled(row: Row | None, fills: Row) -> Row | None:
    """A row with the fills of the columns that it lacks."""
    return None if row is None else row + fills[len(row) :]
