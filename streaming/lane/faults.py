"""Upstream records that the contract forbids: found by whole columns, told one by one.

Spark's Avro reader is built for bytes of a known writer. Where it gives up (a row without an op) and where it reads
something that it would not have written so itself, the record's value comes along in the column `VALUE`. It gives
up on most broken records, but it lets these pass, and reads something else than what is there:

    bytes behind the end                     ignored
    int or date of more than 32 bits         the upper bits are dropped
    decimal(p <= 18) of more than 64 bits    likewise
    a boolean that is neither 0 nor 1        FALSE

Those few records are read again by `ChangeCodec`, which is strict, and must give the same row. (Other bytes than
Spark's for the same row, such as a decimal with a needless sign byte, are legal.) Spark writes texts and times as
it reads them, whatever they are, so what is no UTF-8, or not in the years 1 to 9999, is looked for by column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.codec import ChangeCodec, KeyCodec
from schemas.columnar import encode_changes
from schemas.errors import Code, InputError
from schemas.limits import Limits
from schemas.position import Key
from schemas.records import Op
from schemas.table import Column, TableSchema
from schemas.types import TypeName
from state.columns import OFFSET, PARTITION
from streaming.lane.changes import AFTER, BEFORE, KEY, MARKED, SIZE, VALUE, Bools, Changes

MOST_FAULTS = 1_000
"""Told by one lane of one batch."""
_TIME_RANGES = {
    TypeName.DATE: (pa.int32(), -719_162, 2_932_896),
    TypeName.TIMESTAMP: (pa.int64(), -62_135_596_800_000_000, 253_402_300_799_999_999),
}
"""0001-01-01 to 9999-12-31 in days and in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An upstream record that the contract forbids."""

    partition: int
    offset: int
    code: Code
    found: str
    expected: str


def find_faults(
    changes: Changes, table: TableSchema, record_bytes: int = Limits().record_bytes
) -> list[Fault]:
    """The first few records at fault, by place; each is told by what is wrong with it first."""
    found: dict[int, Fault] = {}
    for row, code, text, expected in islice(_all(changes, table, record_bytes), MOST_FAULTS):
        if row not in found:
            partition, offset = (int(changes.rows[name][row].as_py()) for name in (PARTITION, OFFSET))
            found[row] = Fault(partition, offset, code, text, expected)
    return sorted(found.values(), key=lambda fault: (fault.partition, fault.offset))


_Found = tuple[int, Code, str, str]
_CHANGE = "Avro of Change as the table declares it"


def _all(changes: Changes, table: TableSchema, record_bytes: int) -> Iterator[_Found]:
    yield from _marked(changes)
    yield from _too_large(changes, record_bytes)
    yield from _misread(changes, table)
    yield from _wrong_halves(changes)
    for index, column in enumerate(table.columns):
        for half in (changes.before, changes.after):
            yield from _wrong_values(half[index], column)
    yield from _wrong_keys(changes, table)


def _marked(changes: Changes) -> Iterator[_Found]:
    for row in np.flatnonzero(changes.ops == MARKED):
        expected = "the header `barrier` on barriers only, each following the one before it"
        yield int(row), Code.AMBIGUOUS_RECORD, "a record that is marked as a barrier and is none", expected


def _too_large(changes: Changes, record_bytes: int) -> Iterator[_Found]:
    sizes = changes.rows[SIZE].to_numpy()
    for row in np.flatnonzero(sizes > record_bytes):
        expected = f"at most {record_bytes} bytes of key and value, as limits.record_bytes says"
        yield int(row), Code.RECORD_TOO_LARGE, f"{sizes[row]} bytes", expected


def _misread(changes: Changes, table: TableSchema) -> Iterator[_Found]:
    """Records that Spark did not decode, or not as they were written."""
    values = changes.rows[VALUE]
    suspects = np.flatnonzero((_is_set(values) | (changes.ops < 0)) & (changes.ops != MARKED))
    if not len(suspects):
        return
    codec = ChangeCodec(table.columns)
    for row in suspects:
        value = values[row].as_py()
        if not value:
            yield int(row), *_absent(value)
            continue
        try:
            change = codec.decode(value)
        except InputError as error:
            yield int(row), error.code, error.found, error.expected
            continue
        if changes.ops[row] < 0 or codec.encode(change) != _own_encoding(changes, table, int(row)):
            yield int(row), Code.CHANGE_MALFORMED, f"{len(value)} bytes that readers do not agree on", _CHANGE


def _absent(value: bytes | None) -> tuple[Code, str, str]:
    if value is None:
        return Code.TOMBSTONE_UNSUPPORTED, "a record without a value", "a DELETE with its before"
    return Code.EMPTY_RECORD, "a value of 0 bytes", _CHANGE


def _own_encoding(changes: Changes, table: TableSchema, row: int) -> bytes:
    halves = ([column.slice(row, 1) for column in half] for half in (changes.before, changes.after))
    encoded = encode_changes(table.columns, pa.array(changes.ops[row : row + 1], pa.int8()), *halves)
    return bytes(encoded[0].as_py())


def _wrong_halves(changes: Changes) -> Iterator[_Found]:
    ops = changes.ops
    has_before, has_after = (_is_set(changes.rows[name]) for name in (BEFORE, AFTER))
    wrong = (has_before != (ops != Op.INSERT)) | (has_after != (ops != Op.DELETE))
    for row in np.flatnonzero(wrong & (ops >= 0)):
        halves = {"before": has_before[row], "after": has_after[row]}
        text = " and ".join(f"{name} {'set' if there else 'null'}" for name, there in halves.items())
        expected = "INSERT with after, DELETE with before, UPDATE with both"
        yield int(row), Code.CHANGE_MALFORMED, f"{Op(ops[row]).name} with {text}", expected


def _wrong_values(values: pa.Array, column: Column) -> Iterator[_Found]:
    if column.type.name is TypeName.STRING:
        expected = f"UTF-8 in column {column.name}"
        for row in _not_utf8(values):
            yield row, Code.BAD_ENCODING, "a text that is not UTF-8", expected
    elif column.type.name in _TIME_RANGES:
        expected = f"a {column.type} of the years 1 to 9999 in column {column.name}"
        for row in _outside(values, *_TIME_RANGES[column.type.name]):
            yield row, Code.VALUE_OUT_OF_RANGE, f"a {column.type} outside of them", expected


def _not_utf8(values: pa.Array) -> Iterator[int]:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        for row, value in enumerate(values.cast(pa.binary()).to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError:
                yield row


def _outside(values: pa.Array, stored: pa.DataType, low: int, high: int) -> Iterator[int]:
    numbers = values.view(stored)
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is not None and (ends["min"] < low or ends["max"] > high):
        outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high)).fill_null(False)
        yield from map(int, np.flatnonzero(outside.to_numpy(zero_copy_only=False)))


def _wrong_keys(changes: Changes, table: TableSchema) -> Iterator[_Found]:
    moved = np.zeros(len(changes), dtype=np.bool_)
    for index in table.key_indices:
        moved |= _differs(changes.before[index], changes.after[index])  # a missing half differs from nothing
    for row in np.flatnonzero(moved):
        text = "an UPDATE whose before and after have different primary keys"
        yield int(row), Code.UPDATE_CHANGES_PK, text, "a DELETE of the old key and an INSERT of the new one"
    keys = changes.rows[KEY]
    for row in np.flatnonzero(~_is_set(keys)):
        yield int(row), Code.PK_NULL, "a record without a key", "Avro of the row's primary key as record key"
    for renamed in _renamed(changes, keys, table):
        text, expected = "a record key that is not the row's", "Avro of the row's primary key as record key"
        yield renamed, Code.KEY_MISMATCH, text, expected


def _renamed(changes: Changes, record_keys: pa.ChunkedArray, table: TableSchema) -> Iterator[int]:
    """Where the record key is another than the row's.

    A decimal has several Avro forms (leading sign bytes), so a key that differs in bytes is compared by value then.
    """
    by_value = any(column.type.name is TypeName.DECIMAL for column in table.key_columns)
    codec = KeyCodec(table.key_columns)
    for row in map(int, np.flatnonzero(_differs(changes.key_bytes, record_keys) & (changes.ops >= 0))):
        key = tuple(column[row].as_py() for column in changes.keys)
        if not (by_value and _is_key(codec, record_keys[row].as_py(), key)):
            yield row


def _is_key(codec: KeyCodec, data: bytes, key: Key) -> bool:
    try:
        return bool(codec.decode(data) == key)
    except InputError:
        return False


def _differs(left: pa.Array, right: pa.Array | pa.ChunkedArray) -> Bools:
    return np.asarray(pc.fill_null(pc.not_equal(left, right), False), dtype=np.bool_)


def _is_set(values: pa.Array | pa.ChunkedArray) -> Bools:
    return np.asarray(pc.is_valid(values), dtype=np.bool_)
