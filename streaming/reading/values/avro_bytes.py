"""Avro's binary encoding, byte by byte, as strict as its specification: one value has one meaning to all readers.

Written by hand because libraries are lenient where others are not: fastavro takes a negative branch of a union, any
byte but 0 for TRUE, a decimal of no bytes, and numbers of any length. (avro.apache.org: Specification, "Binary
Encoding".)
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any, NamedTuple

from schemas.errors import Code
from schemas.records import Change, Op, Row
from schemas.table import Column
from schemas.types import MAX_DECIMAL_PRECISION, ColumnType, TypeName
from streaming.reading.values.invalid import InvalidRecordError
from streaming.reading.values.json_values import EPOCH

MAX_VALUE_BYTES = 64 << 20
"""Of one text or binary value."""
MAX_ITEMS = 32_768
MAX_NESTING = 200
_INT_BYTES, _LONG_BYTES = 5, 10
_OPS = tuple(Op)
_FIRST_DAY, _DAYS = dt.date.min.toordinal() - dt.date(1970, 1, 1).toordinal(), 3_652_059
MICROSECOND = dt.timedelta(microseconds=1)
_EXACT = Context(prec=2 * MAX_DECIMAL_PRECISION)  # the default context rounds at 28 digits


class AvroCursor:
    """Bytes, read from `at` on. Its methods raise InvalidRecordError; AVRO_TRUNCATED at the end of the bytes.

    `is_canonical`: all that was read has the bytes that `RowCodec.row_bytes` would write for it.
    """

    __slots__ = ("at", "data", "depth", "is_canonical", "most_items")

    def __init__(self, data: bytes, at: int = 0, *, most_items: int | None = None) -> None:
        """`most_items`: of an array, where few bytes may ask for any number of them."""
        self.data, self.at, self.depth, self.most_items = data, at, 0, most_items
        self.is_canonical = True

    def long(self) -> int:
        """Zigzag, seven bits a byte, ten bytes at most."""
        data, at = self.data, self.at
        try:
            raw = data[at]
            if raw >= 0x80:  # rare for branches, lengths and symbols
                raw, shift = raw & 0x7F, 7
                while (byte := data[at := at + 1]) >= 0x80:
                    raw |= (byte & 0x7F) << shift
                    shift += 7
                raw |= byte << shift
                self.is_canonical &= byte > 0  # else one byte less would do
        except IndexError:
            raise InvalidRecordError("truncated", Code.AVRO_TRUNCATED) from None
        if at - self.at >= _LONG_BYTES:
            raise InvalidRecordError("a number of more than ten bytes")
        self.at = at + 1
        return (raw >> 1) ^ -(raw & 1)

    def integer(self) -> int:
        """Of 32 bits, in five bytes at most; one that is larger is for the caller to refuse."""
        start = self.at
        number = self.long()
        if self.at - start > _INT_BYTES and -(2**31) <= number < 2**31:
            raise InvalidRecordError("a number of more than five bytes")
        return number

    def take(self, size: int) -> bytes:
        """So many bytes."""
        start = self.at
        self.at = start + size
        if self.at > len(self.data):
            raise InvalidRecordError("truncated", Code.AVRO_TRUNCATED)
        return self.data[start : self.at]

    def bytes(self) -> bytes:
        """With their length in front."""
        size = self.long()
        if not 0 <= size <= MAX_VALUE_BYTES:
            raise InvalidRecordError(f"a length of {size}", Code.AVRO_LIMIT)
        return self.take(size)

    def string(self) -> str:
        """A text."""
        try:
            return self.bytes().decode()
        except UnicodeDecodeError:
            raise InvalidRecordError("a text is not UTF-8", Code.BAD_ENCODING) from None

    def boolean(self) -> bool:
        """A byte, 0 or 1."""
        byte = self.take(1)[0]
        if byte > 1:
            raise InvalidRecordError(f"a boolean of {byte}")
        return byte == 1

    def choice(self, count: int) -> int:
        """The branch of a union, or the symbol of an enum."""
        index = self.integer()
        if not 0 <= index < count:
            raise InvalidRecordError(f"branch or symbol {index} where 0..{count - 1} exist")
        return index

    def blocks(self, item: Callable[[AvroCursor], Any]) -> list[Any]:
        """The items of an array or a map."""
        found: list[Any] = []
        while count := self.long():
            if count < 0:
                count, _ = -count, self.long()  # followed by the size of the block
            if self.most_items is not None and len(found) + count > self.most_items:
                raise InvalidRecordError(f"an array of {len(found) + count} items or more", Code.AVRO_LIMIT)
            found += [item(self) for _ in range(count)]
        return found

    def nested(self, read: Callable[[AvroCursor], Any]) -> Any:
        """A value within another one: how deep they go is up to the record where a type contains itself."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise InvalidRecordError(f"more than {MAX_NESTING} values within each other", Code.AVRO_LIMIT)
        value = read(self)
        self.depth -= 1
        return value

    def end(self) -> None:
        """Refuse bytes that are left over."""
        if left := len(self.data) - self.at:
            raise InvalidRecordError(f"{left} bytes left over", Code.AVRO_TRAILING)


FieldReader = Callable[[AvroCursor], Any]
FieldWriter = Callable[[Any], bytes]


def _int(cursor: AvroCursor) -> int:
    number = cursor.integer()
    if not -(2**31) <= number < 2**31:
        raise OverflowError
    return number


def _decimal_reader(kind: ColumnType) -> FieldReader:
    beyond, scale = 10 ** (kind.precision or 0), kind.scale or 0

    def read(cursor: AvroCursor) -> Decimal:
        data = cursor.bytes()
        if not data:
            raise InvalidRecordError("a decimal of no byte")
        unscaled = int.from_bytes(data, "big", signed=True)
        cursor.is_canonical &= len(data) == _decimal_size(unscaled)
        if not -beyond < unscaled < beyond:
            raise OverflowError
        return Decimal(unscaled).scaleb(-scale, _EXACT)

    return read


def _single(cursor: AvroCursor) -> float:
    number: float = struct.unpack("<f", cursor.take(4))[0]
    cursor.is_canonical &= number == number  # the bits of a NaN may be others once it is written
    return number


def date_of(number: int) -> dt.date:
    """The day so many days after 1970 began. Raises: OverflowError outside of the years 1 to 9999."""
    if not 0 <= number - _FIRST_DAY < _DAYS:
        raise OverflowError
    return dt.date.min + dt.timedelta(days=number - _FIRST_DAY)


def _reader(kind: ColumnType) -> FieldReader:
    """Reads values of a type. They raise OverflowError for what does not fit it."""
    return _decimal_reader(kind) if kind.name is TypeName.DECIMAL else _READERS[kind.name]


_READERS: dict[TypeName, FieldReader] = {
    TypeName.BOOLEAN: AvroCursor.boolean,
    TypeName.INT: _int,
    TypeName.BIGINT: AvroCursor.long,
    TypeName.FLOAT: _single,
    TypeName.DOUBLE: lambda cursor: struct.unpack("<d", cursor.take(8))[0],
    TypeName.STRING: AvroCursor.string,
    TypeName.BINARY: AvroCursor.bytes,
    TypeName.DATE: lambda cursor: date_of(cursor.integer()),
    TypeName.TIMESTAMP: lambda cursor: EPOCH + dt.timedelta(microseconds=cursor.long()),
}


def long_bytes(number: int) -> bytes:
    """An int or a long, in the fewest bytes."""
    raw = number << 1 if number >= 0 else (-number << 1) - 1
    found = []
    while raw >= 0x80:
        found.append(raw & 0x7F | 0x80)
        raw >>= 7
    found.append(raw)
    return bytes(found)


def sized(data: bytes) -> bytes:
    """With its length in front."""
    return long_bytes(len(data)) + data


def twos_complement(number: int) -> bytes:
    """The fewest bytes, as Java's `BigInteger.toByteArray`."""
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _decimal_size(number: int) -> int:
    """A byte more than it needs for -128 and the like: outputs have that form, and a key has one for good."""
    return number.bit_length() // 8 + 1


def _decimal_bytes(number: int) -> bytes:
    return number.to_bytes(_decimal_size(number), "big", signed=True)


def unscaled_of(value: Decimal, kind: ColumnType) -> int:
    """A decimal as a number of the last digit's units of its type. Raises: ValueError for one with more digits."""
    scaled = value.scaleb(kind.scale or 0, _EXACT)
    number = int(scaled)
    if number != scaled:
        raise ValueError(f"a decimal that is not at scale {kind.scale}")
    return number


def _writer(kind: ColumnType) -> FieldWriter:
    """Writes values of a type."""
    if kind.name is TypeName.DECIMAL:
        return lambda value: sized(_decimal_bytes(unscaled_of(value, kind)))
    return _WRITERS[kind.name]


_WRITERS: dict[TypeName, FieldWriter] = {
    TypeName.BOOLEAN: lambda value: b"\x01" if value else b"\x00",
    TypeName.INT: long_bytes,
    TypeName.BIGINT: long_bytes,
    TypeName.FLOAT: struct.Struct("<f").pack,
    TypeName.DOUBLE: struct.Struct("<d").pack,
    TypeName.STRING: lambda value: sized(value.encode()),
    TypeName.BINARY: sized,
    TypeName.DATE: lambda value: long_bytes((value - EPOCH.date()).days),
    TypeName.TIMESTAMP: lambda value: long_bytes((value - EPOCH) // MICROSECOND),
}


class ReadChange(NamedTuple):
    """A change, and its rows before and after as bytes; `rows` is None where these are not what `row_bytes` writes."""

    change: Change
    rows: tuple[bytes | None, bytes | None] | None


class RowCodec:
    """Rows, keys and changes over some columns as docs/contract.md#records-on-the-upstream has them in Avro.

    A column that may be null is a union of null and its type. What is written has one form, that of outputs.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self._readers = [(each.nullable, _reader(each.type)) for each in columns]
        self._writers = [(each.nullable, _writer(each.type)) for each in columns]

    def read_row(self, cursor: AvroCursor) -> Row:
        """The next row. Raises: InvalidRecordError."""
        row: list[Any] = []
        try:
            for may_be_null, read in self._readers:
                row.append(None if may_be_null and cursor.choice(2) == 0 else read(cursor))
        except OverflowError:
            column = self.columns[len(row)]
            found = f"a value that does not fit {column.type}"
            raise InvalidRecordError(found, Code.VALUE_OUT_OF_RANGE, column.name) from None
        return tuple(row)

    def optional_row(self, cursor: AvroCursor) -> Row | None:
        """The next row, which may be null. Raises: InvalidRecordError."""
        return None if cursor.choice(2) == 0 else self.read_row(cursor)

    def row(self, data: bytes) -> Row:
        """All of the bytes as one row. Raises: InvalidRecordError."""
        cursor = AvroCursor(data)
        row = self.read_row(cursor)
        cursor.end()
        return row

    def change(self, data: bytes) -> ReadChange:
        """All of the bytes as one change. Raises: InvalidRecordError, UNKNOWN_OP for an op that there is not."""
        cursor = AvroCursor(data)
        number = cursor.integer()
        if not 0 <= number < len(_OPS):
            raise InvalidRecordError(f"op {number} where 0..{len(_OPS) - 1} exist", Code.UNKNOWN_OP)
        begin, before = cursor.at, self.optional_row(cursor)
        middle, after = cursor.at, self.optional_row(cursor)
        cursor.end()
        change = Change(_OPS[number], before, after)
        if not change.is_well_formed():
            raise InvalidRecordError(f"{change.op.name} with other rows than it has")
        if not cursor.is_canonical:
            return ReadChange(change, None)
        # In front of each row stands a byte, which says if it is null.
        return ReadChange(change, (data[begin + 1 : middle] or None, data[middle + 1 :] or None))

    def row_bytes(self, row: Row) -> bytes:
        """A row in its one form. Raises: ValueError, TypeError or the like for values that the columns can't hold."""
        cells = []
        for (may_be_null, write), value in zip(self._writers, row, strict=True):
            if may_be_null:
                cells.append(b"\x00" if value is None else b"\x02")
            elif value is None:
                raise ValueError("a null in a column that has none")
            if value is not None:
                cells.append(write(value))
        return b"".join(cells)

    def written_rows(self, change: Change) -> tuple[bytes | None, bytes | None]:
        """The rows of a change, before and after, each as `row_bytes`."""
        before, after = change.before, change.after
        return (
            None if before is None else self.row_bytes(before),
            None if after is None else self.row_bytes(after),
        )

    def optional_bytes(self, row: Row | None) -> bytes:
        """A row that may be null. Errors as `row_bytes`."""
        return b"\x00" if row is None else b"\x02" + self.row_bytes(row)
