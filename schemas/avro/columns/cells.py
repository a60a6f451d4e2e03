"""Values of a writer's fields as the columns that they are for: what `schemas.avro.cells` does one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from schemas.avro.cells import Cell, Form
from schemas.avro.columns.cursor import Cursor, Places, spread
from schemas.avro.writers.meanings import Schema
from schemas.by_op import in_order
from schemas.json.parsing import text_columns
from schemas.records import OddRecordError, refuse
from schemas.types import MAX_DECIMAL_PRECISION, ColumnType, TypeName

_TEXT = ColumnType(TypeName.STRING)
_MICRO = 1_000
"""Nanoseconds."""


def read_cell(cursor: Cursor, cell: Cell) -> pa.Array:
    """The next value of each record, in its column's type. Raises: OddRecordError."""
    return optional(cursor, cell.plain, partial(_read, cell=cell))


def optional(cursor: Cursor, schema: Schema, read: Callable[[Cursor], pa.Array]) -> pa.Array:
    """Reads the next value of each record with `read`; null where a union of null and one type has a null."""
    if not isinstance(schema, list):
        return read(cursor)
    branch = cursor.choice(len(schema))
    is_there = branch == next(index for index, each in enumerate(schema) if each != "null")
    if is_there.all():
        return read(cursor)
    rows = np.flatnonzero(is_there)
    own = cursor.among(rows)
    found = read(own)
    cursor.follow(rows, own)
    return spread(found, is_there)


def _read(cursor: Cursor, cell: Cell) -> pa.Array:
    kind = cell.column.type
    try:
        found = _value(cursor, cell, kind)
    except pa.ArrowInvalid:
        raise OddRecordError from None
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
            numbers = cursor.number()
            refuse(((numbers < 0) | (numbers >= len(cell.symbols))).any())
            return pa.array(cell.symbols).take(pa.array(numbers))
        case Form.DECIMAL:
            return _decimals(cursor, cell, kind)
        case Form.OWN_SCALE:
            return _of_own_scale(cursor, kind)
        case Form.TIME:
            return _instants(cursor, cell, kind)
        case Form.TEXT:
            return _from_texts(cursor, kind)


def _as_is(cursor: Cursor, cell: Cell, kind: ColumnType) -> pa.Array:
    plain = _of_value(cell.plain)
    if isinstance(plain, dict):
        return cursor.texts(kind.arrow, *cursor.of_size(plain["size"]))
    if plain == "float" and kind.name is TypeName.DOUBLE:
        return cursor.values(ColumnType(TypeName.FLOAT)).cast(kind.arrow)
    return cursor.values(kind)


def _of_value(plain: Schema) -> Schema:
    return next(each for each in plain if each != "null") if isinstance(plain, list) else plain


def _decimals(cursor: Cursor, cell: Cell, kind: ColumnType) -> pa.Array:
    plain = _of_value(cell.plain)
    places = cursor.of_size(plain["size"]) if isinstance(plain, dict) else cursor.sized()
    cursor.check_within()
    return _scaled(cursor, places, kind, cell.scale)


def _scaled(cursor: Cursor, places: tuple[Places, Places], kind: ColumnType, scale: int) -> pa.Array:
    # Arrow's cast to more digits behind the point lets some numbers wrap around: so they have to fit before it.
    precision, added = kind.precision or 0, (kind.scale or 0) - scale
    digits = min(MAX_DECIMAL_PRECISION, precision - added)
    refuse(digits < 1 and len(places[0]) > 0)
    own = ColumnType(kind.name, max(digits, 1), max(scale, 0))
    if scale >= 0:
        return cursor.decimals(own, *places).cast(kind.arrow)
    # Arrow has no scale below zero: the whole number gets its zeros, and the point is put where the column has it.
    widened = cursor.decimals(own, *places).cast(pa.decimal128(precision, min(added, precision)))
    return pa.Array.from_buffers(kind.arrow, len(widened), widened.buffers(), offset=widened.offset)


def _of_own_scale(cursor: Cursor, kind: ColumnType) -> pa.Array:
    scales, (starts, sizes) = cursor.number(), cursor.sized()
    cursor.check_within()
    groups = []
    for scale in np.unique(scales).tolist():
        refuse(abs(scale) > MAX_DECIMAL_PRECISION)
        rows = np.flatnonzero(scales == scale)
        groups.append((rows, _scaled(cursor, (starts[rows], sizes[rows]), kind, scale)))
    return in_order(groups, len(scales)) if groups else pa.nulls(0, kind.arrow)


def _instants(cursor: Cursor, cell: Cell, kind: ColumnType) -> pa.Array:
    ticks = cursor.number()
    first, last = cell.ticks
    refuse(((ticks < first) | (ticks > last)).any())
    if cell.unit >= _MICRO:
        return pa.array(ticks * (cell.unit // _MICRO)).view(kind.arrow)
    a_micro = _MICRO // cell.unit
    refuse(cell.sub_micros == "refuse" and (ticks % a_micro).any())
    return pa.array(ticks // a_micro).view(kind.arrow)


def _from_texts(cursor: Cursor, kind: ColumnType) -> pa.Array:
    texts = cursor.values(_TEXT)
    match kind.name:
        case TypeName.DATE:
            return text_columns.days(texts)
        case TypeName.TIMESTAMP:
            return text_columns.instants(texts, kind)
        case TypeName.DECIMAL:
            return text_columns.decimals(texts, kind)
    raise OddRecordError
