"""Reads Avro binary records side by side, columnar, into Arrow arrays.

Each record has a position, and a step reads the next number, text or branch of all of them: a few passes over arrays a
column, a microsecond for a record of four columns, and nothing row by row in Python.

A record whose next bytes are not certain (it is cut short, has needless bytes in a number, a value that its column
can't hold) is *marked*: it is read on from zeros behind the data, so that what stands in the arrays for it is arbitrary
and valid, and costs the others nothing. The error of a marked record is for `schemas.avro.fallback` to name.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.record_bytes import INT_MAX, INT_MIN
from schemas.table import Column
from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, ColumnType, TypeName

_BYTES, _LONG_DIGITS = 16, 18


def decimals(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], kind: ColumnType
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """The values whose two's complement, highest byte first, has `sizes[i]` of the bytes from `starts[i]` on.

    And which of them are none, and zero in the array: those of no bytes or more than 16, or with too many digits.
    """
    is_none = (sizes < 1) | (sizes > _BYTES)
    if is_none.any():
        sizes = np.where(is_none, 0, sizes)
    raw = _widened(data, starts, sizes)
    digits = kind.precision or 0
    low, high = raw.view(np.int64).T
    found = pa.Array.from_buffers(kind.arrow, len(raw), [None, pa.py_buffer(raw)])
    if digits <= _LONG_DIGITS:
        is_none |= (high != low >> 63) | (low >= 10**digits) | (low <= -(10**digits))
    else:
        # Arithmetic would round to the digits of the thread's context.
        least, most = (
            pa.scalar(Decimal((sign, (9,) * digits, -(kind.scale or 0))), kind.arrow) for sign in (1, 0)
        )
        within = pc.and_(pc.greater_equal(found, least), pc.less_equal(found, most))
        is_none |= ~np.asarray(within.to_numpy(zero_copy_only=False), np.bool_)
    if is_none.any():
        raw[is_none] = 0  # the bytes of `found`
    return found, is_none


def _widened(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """Each as 16 bytes, lowest first; zero for no bytes."""
    found = np.zeros((len(sizes), _BYTES), np.uint8)
    if not len(data):
        return found
    is_negative = (data[np.minimum(starts, len(data) - 1)] >= 0x80) & (sizes > 0)
    found[is_negative] = 0xFF
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > place)
        found[rows, place] = data[starts[rows] + sizes[rows] - 1 - place]
    return found


Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

_PAD = 32
"""Zeros behind the data: of a record that is cut short a branch and a number are read before that shows."""
_NULL, _PRESENT = 0, 2


class Cursor:
    """Reads n records of one buffer side by side; `at[i]` is where record i is read next, `end[i]` where it ends.

    `marked` are flags for records that are not read by columns.
    """

    def __init__(self, data: Bytes, at: Places, end: Places, marked: Flags) -> None:
        self._data, self.at, self._end, self.marked = data, at, end, marked

    @classmethod
    def of(cls, records: pa.BinaryArray) -> Cursor:
        """A cursor at the beginning of each record; a null is marked."""
        _, offsets, data = records.buffers()
        bounds = np.zeros(1, np.int64)
        if len(records):
            bounds = np.frombuffer(offsets, np.int32)[records.offset :][: len(records) + 1].astype(np.int64)
        found = np.zeros(int(bounds[-1] - bounds[0]) + _PAD, np.uint8)
        if data is not None:
            found[:-_PAD] = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
        bounds -= bounds[0]
        cursor = cls(found, bounds[:-1].copy(), bounds[1:].copy(), np.zeros(len(records), np.bool_))
        if records.null_count:
            cursor.mark(records.is_null().to_numpy(zero_copy_only=False))
        return cursor

    def mark(self, flags: Flags) -> None:
        """Marks the records that have a flag."""
        if flags.any():
            self.marked |= flags
            self.at[flags] = self._end[flags] = len(self._data) - _PAD

    def among(self, rows: Places) -> Cursor:
        """A cursor of some records; `follow` then moves this one behind what that has read."""
        return Cursor(self._data, self.at[rows], self._end[rows], self.marked[rows])

    def follow(self, rows: Places, other: Cursor) -> None:
        """Go on behind what another one has read of these records."""
        self.at[rows], self._end[rows], self.marked[rows] = other.at, other._end, other.marked

    def check_within(self) -> None:
        """Marks records of which more was read than there is."""
        self.mark(self.at > self._end)

    def check_read(self) -> None:
        """Marks records of which something is left, or was never there."""
        self.mark(self.at != self._end)

    @property
    def left(self) -> Places:
        """The number of bytes of each record that are not read yet."""
        return self._end - self.at

    def byte(self) -> Bytes:
        """The next byte of each."""
        found: Bytes = self._data[self.at]
        self.at += 1
        return found

    def number(self) -> Places:
        """The next number of each: zigzag, seven bits a byte, lowest first, without needless bytes.

        `check_within` has to follow, before a next number.
        """
        byte = self.byte()
        open_ = np.flatnonzero(byte >= 0x80)
        raw = (byte & 0x7F).astype(np.uint64)
        if len(open_):
            self._read_on(raw, open_)
        return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)

    def _read_on(self, raw: npt.NDArray[np.uint64], open_: Places) -> None:
        """Adds the further bytes of the numbers that have some."""
        shift, invalid = 7, np.zeros(len(raw), np.bool_)
        while len(open_) and shift <= 63:
            byte = self._data[self.at[open_]]
            self.at[open_] += 1
            is_last = byte < 0x80
            invalid[open_] = (is_last & (byte == 0)) | ((byte > 1) if shift == 63 else False)
            raw[open_] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            open_, shift = open_[~is_last], shift + 7
        invalid[open_] = True
        if invalid.any():
            raw[invalid] = 0
            self.mark(invalid)

    def fixed(self, width: int) -> Bytes:
        """The next bytes of each, a line of `width` for each record."""
        found: Bytes = self._data[self.at[:, np.newaxis] + np.arange(width)]
        self.at += width
        return found

    def sized(self) -> tuple[Places, Places]:
        """Go on behind the next text or bytes of each: where it begins in the data, and how long it is."""
        return self.of_sizes(self.number())

    def of_size(self, size: int) -> tuple[Places, Places]:
        """Go on behind the next bytes of each, `size` of them in every record. Returns as `sized`."""
        return self.of_sizes(np.full(len(self.at), size, np.int64))

    def of_sizes(self, sizes: Places) -> tuple[Places, Places]:
        """Go on behind so many bytes of each, as `sized`. A record that has fewer, or a size below zero, is marked."""
        invalid = (sizes > self.left) | (sizes < 0)
        if invalid.any():
            self.mark(invalid)
            sizes = np.where(invalid, 0, sizes)
        starts = self.at
        self.at = starts + sizes
        return starts, sizes

    def texts(self, kind: pa.DataType, starts: Places, sizes: Places) -> pa.Array:
        """The texts or bytes at these offsets; a record whose text is not UTF-8 is marked."""
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        places = np.repeat(starts - offsets[:-1], sizes)
        places += np.arange(len(places))
        data = pa.py_buffer(self._data[places])
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), data]
        found = pa.Array.from_buffers(kind, len(sizes), buffers)
        if pa.types.is_string(kind) and not _is_utf8(found):
            invalid = np.array([not _is_utf8(found.slice(row, 1)) for row in range(len(found))], np.bool_)
            self.mark(invalid)
            return self.texts(kind, starts, np.where(invalid, 0, sizes))
        return found

    def decimals(self, kind: ColumnType, starts: Places, sizes: Places) -> tuple[pa.Array, Flags]:
        """The decimals whose unscaled values stand there, and flags for those that are none of this type."""
        return decimals(self._data, starts, sizes, kind)

    def column(self, column: Column) -> pa.Array:
        """The next value of each, of a column."""
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
        invalid = (byte & 1 == 1) | (byte >= 2 * count)
        if invalid.any():
            self.mark(invalid)
            byte = np.where(invalid, np.uint8(0), byte)
        found: Bytes = byte >> np.uint8(1)
        return found

    def branches(self) -> tuple[Places | None, Flags]:
        """Reads a union with null: the records that have a value, None if all do; and a flag for each, True if so."""
        branch = self.byte()
        is_there: Flags = branch == _PRESENT
        if is_there.all():
            return None, is_there
        self.mark(~is_there & (branch != _NULL))
        return np.flatnonzero(is_there), is_there

    def values(self, kind: ColumnType) -> pa.Array:
        """The next value of each, of a type."""
        values = self._read(kind)
        self.check_within()
        return values

    def _read(self, kind: ColumnType) -> pa.Array:
        match kind.name:
            case TypeName.BOOLEAN:
                byte = self.byte()
                self.mark(byte > 1)
                return pa.array(byte == 1)
            case TypeName.INT:
                return pa.array(self.within(INT_MIN, INT_MAX).astype(np.int32))
            case TypeName.DATE:
                return pa.array(self.within(FIRST_DAY, LAST_DAY).astype(np.int32)).view(kind.arrow)
            case TypeName.BIGINT:
                return pa.array(self.number())
            case TypeName.TIMESTAMP:
                return pa.array(self.within(FIRST_US, LAST_US)).view(kind.arrow)
            case TypeName.FLOAT:
                return pa.array(self.fixed(4).view("<f4")[:, 0])
            case TypeName.DOUBLE:
                return pa.array(self.fixed(8).view("<f8")[:, 0])
            case TypeName.DECIMAL:
                found, is_none = self.decimals(kind, *self.sized())
                self.mark(is_none)
                return found
        return self.texts(kind.arrow, *self.sized())

    def within(self, least: int, most: int) -> Places:
        """The next number of each; a record that has one below or above is marked, and has zero."""
        numbers = self.number()
        invalid = (numbers < least) | (numbers > most)
        if invalid.any():
            self.mark(invalid)
            numbers = np.where(invalid, 0, numbers)
        return numbers


def _is_utf8(texts: pa.StringArray) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def spread(values: pa.Array, is_there: Flags) -> pa.Array:
    """The values where they are there, one after another, and nulls between them."""
    return values.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))
