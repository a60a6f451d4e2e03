"""Upstream records that are at fault: found by whole columns, reported one by one.

They are the faults of the upstream's format (`streaming.lane.format_faults`) and those of the contract, which holds
for every format: limits, marks of barriers, which halves a change has, what a value may be, which key an UPDATE keeps.
Decoders pass on texts and times as they read them, whatever they are, so what is no UTF-8, or not in the years 1 to
9999, is looked for by column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.codec import HALVES
from schemas.errors import Code
from schemas.formats.protocol import Format, Images
from schemas.formats.registry import DEFAULT
from schemas.records import Op
from schemas.settings.limits import Limits
from schemas.table import Column, TableSchema
from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, TypeName
from state.columns import OFFSET, PARTITION
from streaming.lane.changes import Changes
from streaming.lane.format_faults import FormatFaults, Found, differs, found, is_set
from streaming.source.decoded import AFTER, BEFORE, KEY, MARKED, SIZE

_SETTING = "limits.record_bytes"
MOST_FAULTS = 1_000
"""Reported by one lane of one batch."""
_TIME_RANGES = {
    TypeName.DATE: (pa.int32(), FIRST_DAY, LAST_DAY),
    TypeName.TIMESTAMP: (pa.int64(), FIRST_US, LAST_US),
}
"""0001-01-01 to 9999-12-31 in days and in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An upstream record that the contract forbids, or whose change the `output` of a job does not take."""

    partition: int
    offset: int
    code: Code
    found: str
    expected: str
    output: str | None = None


def find_faults(
    changes: Changes,
    table: TableSchema,
    record_bytes: int = Limits().record_bytes,
    format_: Format = DEFAULT,
) -> list[Fault]:
    """The first few records at fault, by place; each is reported with what is wrong with it first."""
    faults: dict[int, Fault] = {}
    for row, code, text, expected in islice(_all(changes, table, record_bytes, format_), MOST_FAULTS):
        if row not in faults:
            partition, offset = (int(changes.rows[name][row].as_py()) for name in (PARTITION, OFFSET))
            faults[row] = Fault(partition, offset, code, text, expected)
    return sorted(faults.values(), key=lambda fault: (fault.partition, fault.offset))


def _all(changes: Changes, table: TableSchema, record_bytes: int, format_: Format) -> Iterator[Found]:
    of_format = FormatFaults(changes, table, format_)
    yield from _marked(changes)
    yield from _too_large(changes, record_bytes)
    yield from of_format.in_values()
    if format_.images is Images.FULL:
        yield from _wrong_halves(changes)
    for index, column in enumerate(table.columns):
        for half in (changes.before, changes.after):
            yield from _wrong_values(half[index], column)
    yield from _wrong_keys(changes, table)
    yield from of_format.in_keys()


def _marked(changes: Changes) -> Iterator[Found]:
    for row in np.flatnonzero(changes.ops == MARKED):
        yield found(row, Code.AMBIGUOUS_RECORD, "a record that is marked as a barrier and is none")


def _too_large(changes: Changes, record_bytes: int) -> Iterator[Found]:
    sizes = changes.rows[SIZE].to_numpy()
    for row in np.flatnonzero(sizes > record_bytes):
        yield found(row, Code.RECORD_TOO_LARGE, f"{sizes[row]} bytes", limit=record_bytes, setting=_SETTING)


def _wrong_halves(changes: Changes) -> Iterator[Found]:
    ops = changes.ops
    has_before, has_after = (is_set(changes.rows[name]) for name in (BEFORE, AFTER))
    wrong = (has_before != (ops != Op.INSERT)) | (has_after != (ops != Op.DELETE))
    for row in np.flatnonzero(wrong & (ops >= 0)):
        halves = {"before": has_before[row], "after": has_after[row]}
        text = " and ".join(f"{name} {'set' if there else 'null'}" for name, there in halves.items())
        yield int(row), Code.CHANGE_MALFORMED, f"{Op(ops[row]).name} with {text}", HALVES


def _wrong_values(values: pa.Array, column: Column) -> Iterator[Found]:
    if column.type.name is TypeName.STRING:
        for row in _not_utf8(values):
            yield found(row, Code.BAD_ENCODING, "a text that is not UTF-8", column=column.name)
    elif column.type.name in _TIME_RANGES:
        text = f"a {column.type} outside the years 1 to 9999"
        for row in _outside(values, *_TIME_RANGES[column.type.name]):
            yield found(row, Code.VALUE_OUT_OF_RANGE, text, column=column.name)


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


def _wrong_keys(changes: Changes, table: TableSchema) -> Iterator[Found]:
    moved = np.zeros(len(changes), dtype=np.bool_)
    for index in table.key_indices:
        moved |= differs(changes.before[index], changes.after[index])  # a missing half differs from nothing
    for row in np.flatnonzero(moved):
        text = "an UPDATE whose before and after have different primary keys"
        yield found(row, Code.UPDATE_CHANGES_PK, text)
    for row in np.flatnonzero(~is_set(changes.rows[KEY])) if table.has_key else ():
        yield found(row, Code.PK_NULL, "a record without a key")
