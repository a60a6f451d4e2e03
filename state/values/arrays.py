"""Whole Arrow columns: key order, and values that a column's type can't hold.

Keys are compared column by column, in the order of Spark's `<` on the same columns. Arrow compares strings by their
UTF-8 bytes, as Spark does. Booleans are compared as 0 < 1, which Arrow has no kernel for.

Invalid values, which Arrow and Parquet readers do not check:

    string              text that is not UTF-8
    date, timestamp     outside the years 1 to 9999: no form of an output has them, nor has Python
    decimal             more digits than the type has
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import Code
from schemas.position import Key
from schemas.table import Column
from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, TypeName

Mask = npt.NDArray[np.bool_]
_TIME_RANGES = {
    TypeName.DATE: (pa.int32(), FIRST_DAY, LAST_DAY),
    TypeName.TIMESTAMP: (pa.int64(), FIRST_US, LAST_US),
}
"""0001-01-01 to 9999-12-31 in days and in microseconds since 1970."""


def _comparable(array: pa.Array) -> pa.Array:
    return array.cast(pa.uint8()) if pa.types.is_boolean(array.type) else array


def _mask(array: pa.Array) -> Mask:
    result: Mask = array.to_numpy(zero_copy_only=False)
    return result


def arrays(rows: pa.Table, names: Sequence[str]) -> list[pa.Array]:
    """Some columns, each as one array."""
    return [rows[name].combine_chunks() for name in names]


def at_most(keys: Sequence[pa.Array], bound: Key) -> Mask:
    """The mask of rows with key <= bound, n booleans. `keys`: the key columns in key order, n rows, no nulls."""
    columns = [_comparable(column) for column in keys]
    values = [pa.scalar(value, type=key.type) for value, key in zip(bound, keys, strict=True)]
    bounds = [value.cast(column.type) for value, column in zip(values, columns, strict=True)]
    last = len(columns) - 1
    result = _mask(pc.less_equal(columns[last], bounds[last]))
    for column, value in reversed(list(zip(columns[:last], bounds[:last], strict=True))):
        result = _mask(pc.less(column, value)) | (_mask(pc.equal(column, value)) & result)
    return result


def above(keys: Sequence[pa.Array], bound: Key | None) -> Mask:
    """The mask of rows with key > bound; all rows where bound is None (−∞)."""
    if bound is None:
        return np.ones(len(keys[0]), dtype=np.bool_)
    return ~at_most(keys, bound)


def within(keys: Sequence[pa.Array], after: Key | None, upto: Key | None) -> Mask:
    """The mask of rows in the range (after, upto]; None is −∞ for `after` and +∞ for `upto`."""
    low = above(keys, after)
    return low if upto is None else low & at_most(keys, upto)


def sort_order(keys: Sequence[pa.Array]) -> pa.Array:
    """Indices that bring rows into key order."""
    table = pa.table([_comparable(column) for column in keys], names=[str(i) for i in range(len(keys))])
    return pc.sort_indices(table, sort_keys=[(str(i), "ascending") for i in range(len(keys))])


def key_at(keys: Sequence[pa.Array], index: int) -> Key:
    """The key of one row."""
    return tuple(column[index].as_py() for column in keys)


def changes_of_key(keys: Sequence[pa.Array]) -> Mask:
    """For rows in key order: True where a row's key differs from the row before (the first row is True)."""
    if len(keys[0]) == 0:
        return np.zeros(0, dtype=np.bool_)
    differs = (_mask(pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))) for column in keys)
    return np.concatenate(([True], functools.reduce(np.logical_or, differs)))


@dataclass(frozen=True, slots=True)
class InvalidValues:
    """Invalid values of one column: their rows by index, in order, and a description of one of them."""

    rows: npt.NDArray[np.int64]
    code: Code
    text: str


def invalid_values(values: pa.Array, column: Column) -> InvalidValues | None:
    """The invalid values of a column, which has its declared Arrow type; None if there are none."""
    kind = column.type.name
    if kind is TypeName.STRING:
        rows, code, text = _not_utf8(values), Code.BAD_ENCODING, "a text that is not UTF-8"
    elif kind in _TIME_RANGES:
        rows, code = _outside(values, *_TIME_RANGES[kind]), Code.VALUE_OUT_OF_RANGE
        text = f"a {column.type} outside the years 1 to 9999"
    elif kind is TypeName.DECIMAL:
        rows, code = _too_long(values), Code.VALUE_OUT_OF_RANGE
        text = f"a number with more digits than {column.type}"
    else:
        return None
    return InvalidValues(rows, code, text) if len(rows) else None


def _not_utf8(values: pa.Array) -> npt.NDArray[np.int64]:
    if _is_valid(values):
        return _rows([])
    return _rows(
        [row for row, value in enumerate(values.cast(pa.binary()).to_pylist()) if not _is_text(value)]
    )


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _outside(values: pa.Array, stored: pa.DataType, low: int, high: int) -> npt.NDArray[np.int64]:
    numbers = values.view(stored)
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None or (ends["min"] >= low and ends["max"] <= high):
        return _rows([])
    outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high)).fill_null(False)
    return np.flatnonzero(outside.to_numpy(zero_copy_only=False))


def _too_long(values: pa.Array) -> npt.NDArray[np.int64]:
    if _is_valid(values):
        return _rows([])
    most = Decimal((0, (9,) * values.type.precision, -values.type.scale))
    return _rows(
        [row for row, value in enumerate(values.to_pylist()) if value is not None and abs(value) > most]
    )


def _is_valid(values: pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _rows(found: list[int]) -> npt.NDArray[np.int64]:
    return np.array(found, dtype=np.int64)
