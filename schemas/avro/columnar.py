"""Whole Arrow columns to Avro binary records: the path of every row that the service sends.

An Avro record without a schema in front of it is nothing but its fields, one after another, so a column can
be turned into bytes without looking at its neighbours. Two kinds of bytes make up a row:

- *Short* ones: union branches, varints, lengths, fixed-width values, decimals. How many of them a row has
  is bounded, so neighbouring ones are laid into a matrix (a line for each row, as wide as the widest value
  of the batch) and a matrix that says which cells are used; compressing the first by the second gives
  the bytes of all rows.
- *Long* ones: the bytes of strings and binaries. They are in Arrow's value buffer already and stay there.

Arrow's element-wise join then copies the alternating pieces into one buffer. Time is that of a few passes
over each column; nothing is done row by row in Python.

The bytes are those of fastavro on every value. That includes its decimals: -128, -32768 and
the like take a byte more than two's complement needs, which every reader accepts.

Encoding: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrays import Indices, binary, check_array, encoded_by_op, take
from schemas.records import Op
from schemas.table import Column
from schemas.types import TypeName

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

NULL, PRESENT = b"\x00", b"\x02"
"""The branch of a `[null, T]` union: its index as a varint."""

_WIDE_DECIMAL = 19
"""Decimals of more digits than this may have a magnitude that needs both words of Arrow's decimal128."""


_MAX_OFFSET = 2**31 - 1
_LONG_CONSTANT = 16
"""Bytes of a constant from which on Arrow's join copies it, rather than the matrix of short bytes."""

Part: TypeAlias = bytes | tuple[Sequence[Column], Sequence[pa.Array]] | pa.BinaryArray | npt.NDArray[np.int32]
"""A part of n records: constant bytes, the fields of columns, n byte strings, or n numbers written as Avro `int`."""


def encode_keys(key_columns: Sequence[Column], arrays: Sequence[pa.Array]) -> pa.BinaryArray:
    """`Key` records, one for each row: what `KeyCodec.encode` gives.

    `arrays` are in the order of `key_columns`, of one length, each of its column's exact Arrow type
    (`ColumnType.arrow`); slices are fine, chunked arrays are not. The result has no nulls, offset 0, 32-bit
    offsets and one contiguous buffer of values, so a caller may hand `buffers()` on by pointer.

    Raises:
        InputError: PK_NULL, a null in a column that is not nullable.
        TypeError: an array of another type.
        ValueError: arrays and columns do not match in number, or the arrays in length.
        pa.ArrowException: 2 GiB of records or more; encode fewer rows at a time.
    """
    return encode_records(len(arrays[0]), (key_columns, arrays))


def encode_inserts(columns: Sequence[Column], arrays: Sequence[pa.Array]) -> pa.BinaryArray:
    """`Change{INSERT, null, Row}` records, one for each row; input, result and errors as in `encode_keys`."""
    return encode_records(len(arrays[0]), b"\x00" + NULL + PRESENT, (columns, arrays))


def encode_changes(
    columns: Sequence[Column], ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array]
) -> pa.BinaryArray:
    """`Change{op, before, after}` records in the order of `ops` (the values of `records.Op`).

    Rows may mix ops. What `before` holds where the op is INSERT, and `after` where it is DELETE, does not
    matter (nulls in key columns neither), but both must be there at full length. Input, result and errors are
    otherwise as in `encode_keys`; ValueError also for an op that is null or none of the three.
    """

    def of_op(op: Op, rows: Indices | None) -> pa.BinaryArray:
        length, code = len(ops) if rows is None else len(rows), bytes([2 * op])
        old: list[Part] = [NULL] if op is Op.INSERT else [PRESENT, (columns, take(before, rows))]
        new: list[Part] = [NULL] if op is Op.DELETE else [PRESENT, (columns, take(after, rows))]
        return encode_records(length, code, *old, *new)

    return encoded_by_op(ops, of_op)


def encode_records(length: int, *parts: Part) -> pa.BinaryArray:
    """Records made of their parts, in this order. Arrays, result and errors as in `encode_keys`."""
    records = _Records(length)
    for part in parts:
        match part:
            case bytes():
                records.add_constant(part)
            case pa.Array():
                records.add_bytes(part)
            case np.ndarray():
                records.add_numbers(part)
            case (columns, arrays):
                for column, array in zip(columns, arrays, strict=True):
                    records.add_column(column, array)
    return records.finish()


@dataclass(slots=True)
class _ShortBytes:
    """The matrix of short bytes, as columns: one byte of each row, and the rows that have it (None = all)."""

    length: int
    cells: list[tuple[Bytes | int, Flags | None]] = field(default_factory=list)

    def add(self, cell: Bytes | int, used: Flags | None = None) -> None:
        self.cells.append((cell, used))

    def add_varint(self, values: Words, present: Flags | None) -> None:
        """Seven bits a byte, lowest first, the eighth bit saying that another byte follows.

        Rows that are not present must hold 0.
        """
        used, top = present, int(values.max())
        for shift in range(0, max(top.bit_length(), 1), 7):
            septet = (values >> np.uint64(shift)).astype(np.uint8)
            if top >> (shift + 7):
                more = values >= np.uint64(1 << (shift + 7))
                septet |= more.view(np.uint8) << 7
                self.add(septet, used)
                used = more
            else:
                self.add(septet, used)

    def add_fixed(self, raw: Bytes, present: Flags | None) -> None:
        """All bytes of a line of `raw` (rows x width)."""
        for index in range(raw.shape[1]):
            self.add(raw[:, index], present)

    def compress(self) -> pa.BinaryArray:
        width = len(self.cells)
        if self.length * width > _MAX_OFFSET:
            raise pa.ArrowCapacityError(f"{self.length} rows at once are too many for 32-bit offsets")
        matrix = np.empty((self.length, width), np.uint8)
        for index, (cell, _) in enumerate(self.cells):
            matrix[:, index] = cell
        if all(used is None for _, used in self.cells):
            return binary(matrix, np.arange(0, (self.length + 1) * width, width, dtype=np.int32))
        keep = np.ones((self.length, width), np.bool_)
        lengths = np.full(self.length, width, np.int32)
        for index, (_, used) in enumerate(self.cells):
            if used is not None:
                keep[:, index] = used
                lengths -= ~used
        offsets = np.zeros(self.length + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return binary(matrix[keep], offsets)


class _Records:
    """Records under construction: finished pieces of all rows, and the short bytes that follow them."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._pieces: list[pa.Array | pa.Scalar] = []
        self._short = _ShortBytes(length)

    def add_constant(self, data: bytes) -> None:
        if len(data) >= _LONG_CONSTANT:
            self._flush()
            self._pieces.append(pa.scalar(data, pa.binary()))
            return
        for byte in data:
            self._short.add(byte)

    def add_bytes(self, array: pa.BinaryArray) -> None:
        self._flush()
        self._pieces.append(array)

    def add_numbers(self, numbers: npt.NDArray[np.int32]) -> None:
        if self._length:
            self._short.add_varint(_zigzag(numbers, None), None)

    def add_column(self, column: Column, array: pa.Array) -> None:
        check_array(column, array, self._length)
        if not self._length:
            return
        present = None
        if array.null_count:
            present = array.is_valid().to_numpy(zero_copy_only=False)
            self._short.add(present.view(np.uint8) << 1)
        elif column.nullable:
            self.add_constant(PRESENT)
        self._add_value(column, array, present)

    def _add_value(self, column: Column, array: pa.Array, present: Flags | None) -> None:
        match column.type.name:
            case TypeName.BOOLEAN:
                self._short.add(array.cast(pa.uint8()).fill_null(0).to_numpy(), present)
            case TypeName.INT | TypeName.DATE:
                self._short.add_varint(_zigzag(_raw(array).view(np.int32)[:, 0], present), present)
            case TypeName.BIGINT | TypeName.TIMESTAMP:
                self._short.add_varint(_zigzag(_raw(array).view(np.int64)[:, 0], present), present)
            case TypeName.FLOAT | TypeName.DOUBLE:
                self._short.add_fixed(_raw(array), present)
            case TypeName.DECIMAL:
                self._add_decimal(array, present, wide=(column.type.precision or 0) > _WIDE_DECIMAL)
            case TypeName.STRING | TypeName.BINARY:
                self._add_long_bytes(array, present)

    def _add_long_bytes(self, array: pa.Array, present: Flags | None) -> None:
        offsets = np.frombuffer(array.buffers()[1], np.int32, self._length + 1, 4 * array.offset)
        self._short.add_varint(_zigzag(np.diff(offsets), present), present)
        self._flush()
        self._pieces.append(array.cast(pa.binary()))

    def _add_decimal(self, array: pa.Array, present: Flags | None, *, wide: bool) -> None:
        """Bytes with a length in front: the unscaled value in big-endian two's complement."""
        raw = _raw(array)
        words = raw.view(np.uint64)
        low, high = _magnitude(words, present, wide=wide)
        top = int(high.max()) << 64 if wide else 0
        size = ((top or int(low.max())).bit_length() + 8) // 8
        # longer[k]: rows whose value takes more than k + 1 bytes.
        longer = [_at_least(low, high, 8 * k - 1, wide=wide) for k in range(1, size)]
        length_byte = np.full(self._length, 2, np.uint8)
        for more in longer:
            length_byte += more.view(np.uint8) << 1
        self._short.add(length_byte, present)
        for k in range(size - 1, 0, -1):
            self._short.add(raw[:, k], longer[k - 1])
        self._short.add(raw[:, 0], present)

    def _flush(self) -> None:
        if self._short.cells:
            self._pieces.append(self._short.compress())
            self._short = _ShortBytes(self._length)

    def finish(self) -> pa.BinaryArray:
        if not self._length:
            return pa.array([], pa.binary())
        self._flush()
        if len(self._pieces) == 1:
            return self._pieces[0]
        separator = pa.scalar(b"", pa.binary())
        return pc.binary_join_element_wise(*self._pieces, separator, null_handling="replace")


def _raw(array: pa.Array) -> Bytes:
    """Fixed-width values as little-endian bytes (rows x width), not copied; anything where one is null."""
    width = array.type.bit_width // 8
    cells = np.frombuffer(array.buffers()[1], np.uint8, width * len(array), width * array.offset)
    return cells.reshape(-1, width)


def _zigzag(values: npt.NDArray[np.int32] | npt.NDArray[np.int64], present: Flags | None) -> Words:
    """0, -1, 1, -2, ... to 0, 1, 2, 3, ..., and 0 where a row is not present."""
    signed = values.astype(np.int64)
    coded = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    return coded if present is None else coded * present


def _magnitude(words: Words, present: Flags | None, *, wide: bool) -> tuple[Words, Words]:
    """Absolute values of 128-bit integers as (low, high) words, 0 where a row is not present.

    `high` means nothing unless `wide`.
    """
    low, high = words[:, 0], words[:, 1]
    negative = (high >> np.uint64(63)).astype(np.bool_)
    low = np.where(negative, ~low + 1, low)
    if wide:
        high = np.where(negative, ~high + (low == 0), high)
    if present is not None:
        low, high = low * present, high * present
    return low, high


def _at_least(low: Words, high: Words, bit: int, *, wide: bool) -> Flags:
    """True for each magnitude that is at least 2**bit."""
    if bit >= 64:
        return high >= np.uint64(1 << (bit - 64))
    reached = low >= np.uint64(1 << bit)
    return reached | (high != 0) if wide else reached
