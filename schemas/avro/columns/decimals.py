"""Decimals from the bytes of their unscaled values, by whole columns: in Avro as they are, in JSON as base64."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.records import refuse
from schemas.types import ColumnType

_BYTES, _LONG_DIGITS = 16, 18


def decimals(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], kind: ColumnType
) -> pa.Array:
    """The values whose two's complement, highest byte first, has `sizes[i]` of the bytes from `starts[i]` on.

    Raises: OddRecordError for one of no bytes or more than 16, and for one that has too many digits.
    """
    raw = _widened(data, starts, sizes)
    found = pa.Array.from_buffers(kind.arrow, len(raw), [None, pa.py_buffer(raw)])
    halves = raw.view(np.int64)
    digits = kind.precision or 0
    if digits <= _LONG_DIGITS:
        low, high = halves[:, 0], halves[:, 1]
        refuse(((high != low >> 63) | (low >= 10**digits) | (low <= -(10**digits))).any())
        return found
    # Arithmetic would round to the digits of the thread's context.
    least, most = (
        pa.scalar(Decimal((sign, (9,) * digits, -(kind.scale or 0))), kind.arrow) for sign in (1, 0)
    )
    within = pc.and_(pc.greater_equal(found, least), pc.less_equal(found, most))
    refuse(not pc.all(within, min_count=0).as_py())
    return found


def _widened(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """Each as 16 bytes, lowest first."""
    refuse(len(sizes) and not 1 <= sizes.min() <= sizes.max() <= _BYTES)
    is_negative = data[starts] >= 0x80
    found = np.where(is_negative, np.uint8(0xFF), np.uint8(0))[:, np.newaxis].repeat(_BYTES, 1)
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > place)
        found[rows, place] = data[starts[rows] + sizes[rows] - 1 - place]
    return found
