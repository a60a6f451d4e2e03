"""Decimals from the bytes of their unscaled values, columnar: in Avro as they are, in JSON as base64."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.types import ColumnType

_BYTES, _LONG_DIGITS = 16, 18


def decimals(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], kind: ColumnType
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """The values whose two's complement, highest byte first, has `sizes[i]` of the bytes from `starts[i]` on.

    And which of them are none, and zero in the array: those of no bytes or more than 16, or with too many digits.
    """
    is_none = (sizes < 1) | (sizes > _BYTES)
    if is_none.any():
        sizes = np.where(is_none, 0, sizes)
    raw = _widened(data, starts, sizes)
    digits = kind.precision or 0
    low, high = raw.view(np.int64).T
    found = pa.Array.from_buffers(kind.arrow, len(raw), [None, pa.py_buffer(raw)])
    if digits <= _LONG_DIGITS:
        is_none |= (high != low >> 63) | (low >= 10**digits) | (low <= -(10**digits))
    else:
        # Arithmetic would round to the digits of the thread's context.
        least, most = (
            pa.scalar(Decimal((sign, (9,) * digits, -(kind.scale or 0))), kind.arrow) for sign in (1, 0)
        )
        within = pc.and_(pc.greater_equal(found, least), pc.less_equal(found, most))
        is_none |= ~np.asarray(within.to_numpy(zero_copy_only=False), np.bool_)
    if is_none.any():
        raw[is_none] = 0  # the bytes of `found`
    return found, is_none


def _widened(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """Each as 16 bytes, lowest first; zero for no bytes."""
    found = np.zeros((len(sizes), _BYTES), np.uint8)
    if not len(data):
        return found
    is_negative = (data[np.minimum(starts, len(data) - 1)] >= 0x80) & (sizes > 0)
    found[is_negative] = 0xFF
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > place)
        found[rows, place] = data[starts[rows] + sizes[rows] - 1 - place]
    return found
