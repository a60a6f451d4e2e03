"""Values of a writer's fields as the columns that they are for: what `schemas.avro.cells` does one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrays import in_order
from schemas.avro.cells import Cell, Form
from schemas.avro.columns.cursor import Cursor, Flags, Places, spread
from schemas.avro.writer_schemas import Schema, unwrapped
from schemas.codec.results import flags_of
from schemas.json import text_columns
from schemas.types import MAX_DECIMAL_PRECISION, ColumnType, TypeName

_TEXT = ColumnType(TypeName.STRING)
_MICRO = 1_000
"""Nanoseconds."""


def read_cell(cursor: Cursor, schema: Schema, cell: Cell) -> pa.Array:
    """The next value of each record, by the writer's schema, in its column's type."""
    return optional(cursor, schema, partial(_read, cell=cell))


def optional(cursor: Cursor, schema: Schema, read: Callable[[Cursor], pa.Array]) -> pa.Array:
    """Reads the next value of each record with `read`; null where a union of null and one type has a null."""
    if not isinstance(schema, list):
        return read(cursor)
    branch = cursor.choice(len(schema))
    is_there = branch == next(index for index, each in enumerate(schema) if unwrapped(each)["type"] != "null")
    if is_there.all():
        return read(cursor)
    rows = np.flatnonzero(is_there)
    own = cursor.among(rows)
    found = read(own)
    cursor.follow(rows, own)
    return spread(found, is_there)


def _read(cursor: Cursor, cell: Cell) -> pa.Array:
    found = _value(cursor, cell, cell.column.type)
    cursor.check_within()
    return found


def _value(cursor: Cursor, cell: Cell, kind: ColumnType) -> pa.Array:
    match cell.form:
        case Form.BOOLEAN | Form.NUMBER | Form.DAYS:
            return cursor.values(kind)
        case Form.AS_IS:
            return _as_is(cursor, cell, kind)
        case Form.WRAPPED:
            return text_columns.unsigned(pa.array(cursor.number()), kind)
        case Form.REAL:
            # By way of a double the nearest of 32 bits would be missed at times.
            return pa.array(cursor.number().astype(kind.arrow.to_pandas_dtype()))
        case Form.SYMBOL:
            return pa.array(cell.symbols).take(pa.array(cursor.within(0, len(cell.symbols) - 1)))
        case Form.DECIMAL:
            return _decimals(cursor, cell, kind)
        case Form.OWN_SCALE:
            return _of_own_scale(cursor, kind)
        case Form.TIME:
            return _instants(cursor, cell, kind)
        case Form.TEXT:
            return _from_texts(cursor, kind)


def _as_is(cursor: Cursor, cell: Cell, kind: ColumnType) -> pa.Array:
    if isinstance(cell.plain, int):
        return cursor.texts(kind.arrow, *cursor.of_size(cell.plain))
    if cell.plain == "float" and kind.name is TypeName.DOUBLE:
        return cursor.values(ColumnType(TypeName.FLOAT)).cast(kind.arrow)
    return cursor.values(kind)


def _decimals(cursor: Cursor, cell: Cell, kind: ColumnType) -> pa.Array:
    places = cursor.of_size(cell.plain) if isinstance(cell.plain, int) else cursor.sized()
    found, invalid = _scaled(cursor, places, kind, cell.scale)
    cursor.mark(invalid)
    return found


def _scaled(
    cursor: Cursor, places: tuple[Places, Places], kind: ColumnType, scale: int
) -> tuple[pa.Array, Flags]:
    """Decimals whose unscaled values stand there, and flags for those that the column can't hold."""
    # Arrow's cast to more digits behind the point lets some numbers wrap around: so they have to fit before it.
    precision, added = kind.precision or 0, (kind.scale or 0) - scale
    digits = min(MAX_DECIMAL_PRECISION, precision - added)
    if digits < 1 or scale > MAX_DECIMAL_PRECISION:
        return pa.nulls(len(places[0]), kind.arrow), np.ones(len(places[0]), np.bool_)
    found, invalid = cursor.decimals(ColumnType(kind.name, digits, max(scale, 0)), *places)
    if added < 0:
        cut = found.cast(kind.arrow, safe=False)
        return cut, invalid | flags_of(pc.not_equal(cut.cast(found.type), found))
    if scale >= 0:
        return found.cast(kind.arrow), invalid
    # Arrow has no scale below zero: the whole number gets its zeros, and the point is put where the column has it.
    widened = found.cast(pa.decimal128(precision, min(added, precision)))
    return pa.Array.from_buffers(kind.arrow, len(widened), widened.buffers(), offset=widened.offset), invalid


def _of_own_scale(cursor: Cursor, kind: ColumnType) -> pa.Array:
    scales = cursor.number()
    cursor.check_within()
    starts, sizes = cursor.sized()
    groups, marked = [], np.zeros(len(scales), np.bool_)
    for scale in np.unique(scales).tolist():
        rows = np.flatnonzero(scales == scale)
        found, marked[rows] = _scaled(cursor, (starts[rows], sizes[rows]), kind, scale)
        groups.append((rows, found))
    cursor.mark(marked)
    return in_order(groups, len(scales)) if groups else pa.nulls(0, kind.arrow)


def _instants(cursor: Cursor, cell: Cell, kind: ColumnType) -> pa.Array:
    ticks = cursor.within(*cell.ticks)
    if cell.unit >= _MICRO:
        return pa.array(ticks * (cell.unit // _MICRO)).view(kind.arrow)
    a_micro = _MICRO // cell.unit
    if cell.sub_micros == "refuse":
        cursor.mark(ticks % a_micro != 0)
    return pa.array(ticks // a_micro).view(kind.arrow)


def _from_texts(cursor: Cursor, kind: ColumnType) -> pa.Array:
    texts = cursor.values(_TEXT)
    match kind.name:
        case TypeName.DATE:
            found, unusual = text_columns.times(texts, kind, text_columns.ISO_DATE)
        case TypeName.TIMESTAMP:
            found, unusual = text_columns.times(texts, kind, text_columns.INSTANT)
        case _:
            found, unusual = text_columns.decimals(texts, kind)
    cursor.mark(unusual)
    return found
