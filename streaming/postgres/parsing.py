"""Rows that PostgreSQL wrote as CSV, as columns.

In its CSV a null is nothing at all and an empty text is `""`; a text may hold line ends. Arrow reads it without Python
looking at a row.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from schemas.errors import Code, InputError
from schemas.json.parsing.scan import scanned
from schemas.table import Column
from schemas.types import TypeName
from streaming.postgres.columns import ColumnReading

Readings = Mapping[str, ColumnReading]
"""By column, all that are read, in the order in which they are selected."""

_ESCAPED_OTHERWISE = r"\\u00[01][0-9a-f]|[\x{10000}-\x{10FFFF}]"


class Unreadable(Exception):
    """A value in this column that its type can't hold. Where, the caller knows."""

    def __init__(self, column: str, code: Code = Code.VALUE_OUT_OF_RANGE) -> None:
        super().__init__(column)
        self.column, self.code = column, code

    def error(self, where: str) -> InputError:
        """For the person who meets it; `where` names the table."""
        found = "a null" if self.code is Code.PK_NULL else "a value that does not fit"
        return InputError(self.code, where=f"{where}.{self.column}", found=found, column=self.column)


def rows_of(content: bytes, readings: Readings, columns: Sequence[Column]) -> pa.Table:
    """These columns in their Arrow types, from whole lines of CSV of what `readings` has, in its order.

    Raises: Unreadable for a value that an event of the row could not have either: VALUE_OUT_OF_RANGE for infinity, for
    a day before year 1 or after 9999, for digits that a decimal does not have; PK_NULL for a NaN in the key;
    BAD_ENCODING for a text that is no UTF-8.
    """
    try:
        found = _read(content, {name: reading.arrow for name, reading in readings.items()})
        arrays = [_finished(found[column.name], readings[column.name], column) for column in columns]
    except pa.ArrowInvalid:
        raise _culprit(content, readings) from None
    return pa.table(arrays, schema=pa.schema([(column.name, column.type.arrow) for column in columns]))


def _read(content: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
    return csv.read_csv(
        pa.BufferReader(content),
        # One block, so that no row lies in two; and on the one thread that asked, beside everything else that runs.
        read_options=csv.ReadOptions(
            column_names=list(types), use_threads=False, block_size=max(len(content), 1)
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict(types),
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            timestamp_parsers=[csv.ISO8601],
        ),
    )


def _culprit(content: bytes, readings: Readings) -> Unreadable:
    """The column that can't be read, found by reading one after another; there is no hurry any more."""
    binary = dict.fromkeys(readings, pa.binary())
    for name, reading in readings.items():
        try:
            _read(content, {**binary, name: reading.arrow})
        except pa.ArrowInvalid:
            is_text = reading.arrow == pa.string()
            return Unreadable(name, Code.BAD_ENCODING if is_text else Code.VALUE_OUT_OF_RANGE)
    raise AssertionError("columns that can be read alone, and not together")


def _finished(found: pa.ChunkedArray, reading: ColumnReading, column: Column) -> pa.Array:
    values = found.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # of no chunk at all
        values = pa.array([], found.type)
    if values.null_count and not column.nullable:
        raise Unreadable(column.name, Code.PK_NULL)
    match reading.form:
        case "hex":
            return from_hex(values)
        case "array":
            return _as_jackson(values)
        case _:
            pass
    if column.type.name is TypeName.DECIMAL:
        _check_decimal(values, column)
    elif column.type.name in (TypeName.DATE, TypeName.TIMESTAMP):
        _check_calendar(values, column)
    return values.cast(column.type.arrow)


def from_hex(texts: pa.Array) -> pa.Array:
    """Bytes from hexadecimal digits, all of them at once."""
    _, offsets, data = texts.buffers()
    ends = (
        np.frombuffer(offsets, np.int32, len(texts) + 1, 4 * texts.offset)
        if offsets
        else np.zeros(1, np.int32)
    )
    digits = memoryview(data)[ends[0] : ends[-1]] if data is not None else b""
    valid = pc.is_valid(texts).buffers()[1] if texts.null_count else None
    halved = ((ends - ends[0]) // 2).astype(np.int32)
    content = pa.py_buffer(binascii.unhexlify(digits))
    return pa.Array.from_buffers(pa.binary(), len(texts), [valid, pa.py_buffer(halved), content])


def _as_jackson(texts: pa.Array) -> pa.Array:
    """Lists with the escapes that an event has: of control characters, and of what is beyond 16 bits. Few have any."""
    if not pc.any(pc.match_substring_regex(texts, _ESCAPED_OTHERWISE)).as_py():
        return texts
    return pa.array([text and scanned(text).text for text in texts.to_pylist()], pa.string())


def _check_decimal(values: pa.Array, column: Column) -> None:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raise Unreadable(column.name) from None


def _check_calendar(values: pa.Array, column: Column) -> None:
    """Arrow reads years up to 9999 and the year 0, which there was not."""
    years = pc.min_max(pc.year(values)).as_py()
    if years["min"] is not None and years["min"] < 1:
        raise Unreadable(column.name)
