"""Rows and changes as the bytes they are.

An Avro row is the plain concatenation of its columns' *cells*, and a `Change` is its op, then its halves.
So the judge needs no values to fold a changelog, to project a row or to say what an output record must
be: it cuts and joins bytes, and compares whole records. Only a filter's columns are ever decoded.

Avro allows more than one encoding of a value (a varint with needless bytes, a decimal with a needless
sign byte). Records that differ are therefore decoded and compared once more in canonical form before
they count as different; records that are equal as bytes are equal as values, NaN and -0.0 included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from schemas.errors import Code, InputError
from schemas.kinds.projection import OutputColumn, key_of, output_columns, plain
from schemas.records import Change, Op, Row
from schemas.table import Column, TableSchema
from schemas.types import TypeName
from streaming.reading.records.forms import RowImages
from streaming.reading.values.avro_bytes import RowCodec
from streaming.reading.values.invalid import InvalidRecordError
from streaming.verify.records.masks import cell_of

Halves = tuple[bytes | None, bytes | None]
"""`before` and `after` of a change, each a row's bytes or None."""

_INSERT, _UPDATE, _DELETE = b"\x00\x00\x02", b"\x02\x02", b"\x04\x02"
_THEN_ROW, _THEN_NULL = b"\x02", b"\x00"
_SIZED = frozenset({TypeName.STRING, TypeName.BINARY, TypeName.DECIMAL})
_MOST_REMEMBERED = 65_536
_FIXED = {TypeName.BOOLEAN: 1, TypeName.FLOAT: 4, TypeName.DOUBLE: 8}


def compose(before: bytes | None, after: bytes | None) -> bytes | None:
    """The change from one visible row to another; None where neither is visible.

    This is the whole rule of half-visible updates: an UPDATE whose `before` a filter hides is an INSERT.
    """
    if before is None:
        return None if after is None else _INSERT + after
    if after is None:
        return _DELETE + before + _THEN_NULL
    return _UPDATE + before + _THEN_ROW + after


def op_of(value: bytes) -> Op | None:
    """The op that a record claims, None for no known one. The rest of the record is not looked at."""
    return {0: Op.INSERT, 2: Op.UPDATE, 4: Op.DELETE}.get(value[0]) if value else None


class RowBytes:
    """Rows over one list of columns, cut and compared as bytes."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self._codec = RowCodec(columns)
        self._plan = [
            (column.nullable, column.type.name in _SIZED, _FIXED.get(column.type.name, 0))
            for column in columns
        ]

    def cells(self, row: bytes) -> list[bytes]:
        """One piece of bytes a column, a nullable column's branch included. InputError if it isn't a row."""
        pieces = []
        at = 0
        try:
            for nullable, sized, fixed in self._plan:
                start = at
                if nullable:
                    branch = row[at]
                    at += 1
                    if branch == 0:
                        pieces.append(_THEN_NULL)
                        continue
                    if branch != 2:
                        raise _no_row(row)
                if fixed:
                    at += fixed
                else:
                    number = row[at]
                    at += 1
                    if number >= 0x80:
                        number, at = _long_varint(row, at - 1)
                    if sized:
                        at += number >> 1
                pieces.append(row[start:at])
        except IndexError:
            raise _no_row(row) from None
        if at != len(row):
            raise _no_row(row)
        return pieces

    def split(self, value: bytes, present: bytes | None) -> Halves:
        """The halves of a change. `present`, the key's row if there is one, saves decoding the usual change.

        Raises: InputError, as `decoded_change`.
        """
        if value.startswith(_INSERT):
            return None, value[3:]
        if present is not None:
            size = len(present)
            if value.startswith(present, 2):
                if value.startswith(_UPDATE) and value.startswith(_THEN_ROW, 2 + size):
                    return present, value[3 + size :]
                if value.startswith(_DELETE) and value[2 + size :] == _THEN_NULL:
                    return present, None
        change = self.decoded_change(value)
        return self._encoded(change.before), self._encoded(change.after)

    def _encoded(self, row: Row | None) -> bytes | None:
        return None if row is None else self._codec.row_bytes(row)

    def canonical_row(self, row: bytes) -> bytes:
        """The row in its one form. InputError if it isn't a row."""
        try:
            return self._codec.row_bytes(self._codec.row(row))
        except InvalidRecordError:
            raise _no_row(row) from None

    def same_row(self, one: bytes | None, other: bytes | None) -> bool:
        """True if both are the same row, in whatever bytes. InputError if one isn't a row."""
        if one == other:
            return True
        return one is not None and other is not None and self.canonical_row(one) == self.canonical_row(other)

    def canonical_change(self, value: bytes) -> bytes:
        """The change in its one form. InputError if it isn't one."""
        return self._codec.change_bytes(self.decoded_change(value))

    def decoded_change(self, value: bytes) -> Change:
        """The change that bytes are. Raises: InputError, CHANGE_MALFORMED in general, without a place."""
        try:
            return self._codec.change(value)
        except InvalidRecordError as reason:
            raise reason.as_input(Code.CHANGE_MALFORMED, f"{len(value)} bytes") from None

    def change(self, value: bytes) -> Change | None:
        """The decoded change, None if the bytes aren't one."""
        try:
            return self.decoded_change(value)
        except InputError:
            return None


def _no_row(row: bytes) -> InputError:
    return InputError(
        Code.CHANGE_MALFORMED, found=f"{len(row)} bytes that hold no row of the table", what="Row"
    )


def _long_varint(row: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = row[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A filter, row by row: `test` gets the values of `columns`, in order, and says TRUE, FALSE or None."""

    columns: tuple[str, ...]
    test: Callable[[Row], bool | None]


def _remembered(table: TableSchema, condition: RowCondition) -> Callable[[bytes], bool]:
    """The condition on the bytes of its columns; what filters look at tends to have few distinct values."""
    values = RowCodec(table.select(condition.columns))

    @lru_cache(maxsize=_MOST_REMEMBERED)
    def shows(cells: bytes) -> bool:
        return condition.test(values.row(cells)) is True

    return shows


class WantedRecord(NamedTuple):
    """A record that an output has to have: its key in canonical form, and its value."""

    key: bytes
    value: bytes


_Cells = list[tuple[int, Callable[[bytes], bytes] | None]]
"""Of an output's columns: which of the table's each is, and what makes its cell of that one; None: it is the same."""


def _cells_of(columns: Sequence[OutputColumn], table: TableSchema, hash_key: bytes) -> _Cells:
    places = [table.column_names.index(column.source) for column in columns]
    made = [cell_of(column, table.by_name[column.source], hash_key) for column in columns]
    return list(zip(places, made, strict=True))


def _joined(cells: Sequence[bytes], columns: _Cells) -> bytes:
    return b"".join([cells[at] if made is None else made(cells[at]) for at, made in columns])


class OutputView:
    """A job's view of an upstream row: its columns if the filter is TRUE, else nothing.

    `columns` None means all of the table's, in declared order; `hash_key` is that of their hashes, `key` what the keys
    of records have of the table, if not its primary key alone. `rows_before`: of the output's changes; of those without
    rows before, an UPDATE is an INSERT, and a DELETE has nulls in all but the key columns.
    """

    def __init__(
        self,
        table: TableSchema,
        columns: Sequence[OutputColumn] | None = None,
        condition: RowCondition | None = None,
        rows_before: RowImages = RowImages.FULL,
        hash_key: bytes = b"",
        key: Sequence[str] = (),
    ) -> None:
        shown = plain(table.column_names) if columns is None else tuple(columns)
        self.rows_before = rows_before
        self.is_keyed, names = bool(key), key or table.primary_key
        self._in_key = [column.source in names for column in shown]
        in_key = key_of(shown, names)
        self.rows, self._keys = (RowBytes(output_columns(each, table)) for each in (shown, in_key))
        self.is_masked = any(column.mask for column in shown)
        self._source = RowBytes(table.columns)
        whole = [(place, None) for place in range(len(table.columns))]
        made = _cells_of(shown, table, hash_key)
        self._shown, self._made_key = None if made == whole else made, _cells_of(in_key, table, hash_key)
        self._primary = [names.index(name) for name in table.primary_key]
        self._shows = None if condition is None else _remembered(table, condition)
        self._tested = [table.column_names.index(name) for name in (condition.columns if condition else ())]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of records' keys."""
        return self._keys.columns

    def primary(self, key: bytes) -> bytes:
        """The primary key in a record's key; the same where it is all of it, or none of this output."""
        if not self.is_keyed:
            return key
        try:
            cells = self._keys.cells(key)
        except InputError:
            return key
        return b"".join([cells[at] for at in self._primary])

    def canonical_key(self, key: bytes, primary: bytes) -> bytes:
        """A record's key in its one form, of which `primary` is the primary key in that; itself if it is none."""
        try:
            return self._keys.canonical_row(key) if self.is_keyed else primary
        except InputError:
            return key

    def records(self, primary: bytes, before: bytes | None, after: bytes | None) -> list[WantedRecord]:
        """The output's records, in order, of a change of this primary key from one upstream row to another.

        One that moves the output's key is two: the old key's DELETE, and behind it the new one's INSERT.
        """
        old, new = self.of(before), self.of(after)
        if not self.is_keyed:
            value = self.change(old, new)
            return [] if value is None else [WantedRecord(primary, value)]
        keys = (
            self._key(before if old is not None else after),
            self._key(after if new is not None else before),
        )
        steps = [(keys[0], old, new)] if keys[0] == keys[1] else [(keys[0], old, None), (keys[1], None, new)]
        values = ((key, self.change(*rows)) for key, *rows in steps)
        return [WantedRecord(key, value) for key, value in values if value is not None]

    def _key(self, row: bytes | None) -> bytes:
        if row is None:
            return b""
        return self._keys.canonical_row(_joined(self._source.cells(row), self._made_key))

    def change(self, before: bytes | None, after: bytes | None) -> bytes | None:
        """The output's change from one row that it shows to another; None where neither is shown."""
        if self.rows_before is RowImages.FULL or (before is None and after is None):
            return compose(before, after)
        if after is not None:
            return compose(None, after)
        assert before is not None
        cells = zip(self.rows.cells(before), self._in_key, strict=True)
        return compose(b"".join([cell if in_key else _THEN_NULL for cell, in_key in cells]), None)

    def of(self, row: bytes | None) -> bytes | None:
        """The output's row for an upstream row (both as bytes), None if there is none to show."""
        if row is None or (self._shown is None and self._shows is None):
            return row
        cells = self._source.cells(row)
        if self._shows is not None and not self._shows(b"".join([cells[index] for index in self._tested])):
            return None
        if self._shown is None:
            return row
        return _joined(cells, self._shown)
