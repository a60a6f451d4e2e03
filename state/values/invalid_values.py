"""Values that a column's type can't hold, found in whole columns; Arrow and Parquet readers do not check them.

string              text that is not UTF-8
date, timestamp     outside the years 1 to 9999: no form of an output has them, nor has Python
decimal             more digits than the type has
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.codes import Code
from schemas.table import Column
from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, TypeName

_TIME_RANGES = {
    TypeName.DATE: (pa.int32(), FIRST_DAY, LAST_DAY),
    TypeName.TIMESTAMP: (pa.int64(), FIRST_US, LAST_US),
}
"""0001-01-01 to 9999-12-31 in days and in microseconds since 1970."""


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
