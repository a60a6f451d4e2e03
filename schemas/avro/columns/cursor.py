"""Reads Avro binary records side by side, columnar, into Arrow arrays.

Each record has a position, and a step reads the next number, text or branch of all of them: a few passes over arrays a
column, a microsecond for a record of four columns, and nothing row by row in Python.

Only what is certain is read. Whatever is odd about one of the records (it is cut short, has bytes behind it, needless
bytes in a number, a value that its column can't hold) is an `OddRecordError` for all: which record it is, and what is
wrong with it, is for the reference decoder that reads them one by one (`schemas.avro.codec`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.avro.columns.decimals import decimals
from schemas.avro.reader import INT_MAX, INT_MIN
from schemas.records import OddRecordError, refuse
from schemas.table import Column
from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, ColumnType, TypeName

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

_PAD = 16
"""Bytes behind the data: of a record that is cut short a branch and a number are read before that shows."""
_NULL, _PRESENT = 0, 2
_MAX_OFFSET = 2**31 - 1


class Cursor:
    """Reads n records of one buffer side by side; `at[i]` is where record i is read next, `end[i]` where it ends."""

    def __init__(self, data: Bytes, at: Places, end: Places) -> None:
        self._data, self.at, self._end = data, at, end

    @classmethod
    def of(cls, records: pa.BinaryArray) -> Cursor:
        """A cursor at the beginning of each record. Raises: OddRecordError for a null."""
        refuse(records.null_count)
        _, offsets, data = records.buffers()
        bounds = np.frombuffer(offsets, np.int32)[records.offset :][: len(records) + 1].astype(np.int64)
        found = np.zeros(int(bounds[-1] - bounds[0]) + _PAD, np.uint8)
        if data is not None:
            found[:-_PAD] = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
        bounds -= bounds[0]
        return cls(found, bounds[:-1].copy(), bounds[1:])

    def among(self, rows: Places) -> Cursor:
        """The same of some records. What it has read is read here once `follow` was called."""
        return Cursor(self._data, self.at[rows], self._end[rows])

    def follow(self, rows: Places, other: Cursor) -> None:
        """Go on behind what another one has read of these records."""
        self.at[rows] = other.at

    def check_within(self) -> None:
        """Raises: OddRecordError where more was read than there is."""
        refuse((self.at > self._end).any())

    def check_read(self) -> None:
        """Raises: OddRecordError where something is left, or was never there."""
        refuse((self.at != self._end).any())

    def byte(self) -> Bytes:
        """The next byte of each."""
        found: Bytes = self._data[self.at]
        self.at += 1
        return found

    def number(self) -> Places:
        """The next number of each: zigzag, seven bits a byte, lowest first, without needless bytes."""
        byte = self.byte()
        raw = (byte & 0x7F).astype(np.uint64)
        open_, shift = np.flatnonzero(byte >= 0x80), 7
        while len(open_):
            refuse(shift > 63)
            byte = self._data[self.at[open_]]
            self.at[open_] += 1
            is_last = byte < 0x80
            refuse((byte[is_last] == 0).any() or (shift == 63 and (byte > 1).any()))
            raw[open_] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            open_, shift = open_[~is_last], shift + 7
        return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)

    def fixed(self, width: int) -> Bytes:
        """The next bytes of each, a line of `width` for each record."""
        found: Bytes = self._data[self.at[:, np.newaxis] + np.arange(width)]
        self.at += width
        return found

    def sized(self) -> tuple[Places, Places]:
        """Go on behind the next text or bytes of each: where it begins in the data, and how long it is."""
        sizes = self.number()
        refuse((sizes < 0).any())
        return self._passed(sizes)

    def of_size(self, size: int) -> tuple[Places, Places]:
        """The same of what is so long in every record."""
        return self._passed(np.full(len(self.at), size, np.int64))

    def _passed(self, sizes: Places) -> tuple[Places, Places]:
        starts = self.at
        # A size may be anything, and the sum too large for an offset.
        refuse((sizes > self._end - starts).any())
        self.at = starts + sizes
        return starts, sizes

    def texts(self, kind: pa.DataType, starts: Places, sizes: Places) -> pa.Array:
        """The texts at these offsets. Raises: OddRecordError where a text is not UTF-8."""
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        refuse(offsets[-1] > _MAX_OFFSET)
        places = np.repeat(starts - offsets[:-1], sizes)
        places += np.arange(len(places))
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(self._data[places])]
        return _valid(pa.Array.from_buffers(kind, len(sizes), buffers))

    def decimals(self, kind: ColumnType, starts: Places, sizes: Places) -> pa.Array:
        """The decimals whose unscaled values stand there. Raises: OddRecordError."""
        found, is_none = decimals(self._data, starts, sizes, kind)
        refuse(is_none.any())
        return found

    def column(self, column: Column) -> pa.Array:
        """The next value of each, of a column. Raises: OddRecordError."""
        if not column.nullable:
            return self.values(column.type)
        rows, is_there = self.branches()
        if rows is None:
            return self.values(column.type)
        own = self.among(rows)
        values = own.values(column.type)
        self.follow(rows, own)
        return spread(values, is_there)

    def choice(self, count: int) -> Bytes:
        """The branch of the next union of each, which has so many."""
        byte = self.byte()
        refuse(((byte & 1 == 1) | (byte >= 2 * count)).any())
        found: Bytes = byte >> np.uint8(1)
        return found

    def branches(self) -> tuple[Places | None, Flags]:
        """Reads a union with null: the records that have a value, None if all do; and a flag for each, True if so."""
        branch = self.byte()
        is_there: Flags = branch == _PRESENT
        if is_there.all():
            return None, is_there
        refuse((branch[~is_there] != _NULL).any())
        return np.flatnonzero(is_there), is_there

    def values(self, kind: ColumnType) -> pa.Array:
        """The next value of each, of a type. Raises: OddRecordError."""
        values = self._read(kind)
        self.check_within()
        return values

    def _read(self, kind: ColumnType) -> pa.Array:
        match kind.name:
            case TypeName.BOOLEAN:
                byte = self.byte()
                refuse((byte > 1).any())
                return pa.array(byte == 1)
            case TypeName.INT:
                return pa.array(self._within(INT_MIN, INT_MAX).astype(np.int32))
            case TypeName.DATE:
                return pa.array(self._within(FIRST_DAY, LAST_DAY).astype(np.int32)).view(kind.arrow)
            case TypeName.BIGINT:
                return pa.array(self.number())
            case TypeName.TIMESTAMP:
                return pa.array(self._within(FIRST_US, LAST_US)).view(kind.arrow)
            case TypeName.FLOAT:
                return self._real(4, "<f4")
            case TypeName.DOUBLE:
                return self._real(8, "<f8")
            case TypeName.DECIMAL:
                return self.decimals(kind, *self.sized())
        return self.texts(kind.arrow, *self.sized())

    def _within(self, least: int, most: int) -> Places:
        numbers = self.number()
        refuse(((numbers < least) | (numbers > most)).any())
        return numbers

    def _real(self, width: int, kind: str) -> pa.Array:
        values = self.fixed(width).view(kind)[:, 0]
        # There are many NaNs, and readers do not keep which one it was.
        is_nan = np.isnan(values)
        refuse((values.view(f"<u{width}")[is_nan] != np.array(np.nan, kind).view(f"<u{width}")).any())
        return pa.array(values)


def _valid(texts: pa.Array) -> pa.Array:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:  # not UTF-8
        raise OddRecordError from None
    return texts


def spread(values: pa.Array, is_there: Flags) -> pa.Array:
    """The values where they are there, one after another, and nulls between them."""
    return values.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))
