"""Arrow arrays of records: rows in groups by op, and arrays of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.errors import Code, InputError
from schemas.records import Op
from schemas.table import Column

Indices = npt.NDArray[np.int64]


def rows_by_op(ops: pa.Int8Array) -> dict[Op, Indices]:
    """The rows of each op that occurs, in order. Raises: TypeError, and ValueError for a null or none of the three."""
    if ops.type != pa.int8():
        raise TypeError(f"ops are {ops.type}, not int8")
    if ops.null_count:
        raise ValueError("an op is null")
    codes = ops.to_numpy()
    rows = {op: np.flatnonzero(codes == op) for op in Op}
    if sum(map(len, rows.values())) != len(codes):
        raise ValueError(f"an op is none of {[int(op) for op in Op]}")
    return {op: chosen for op, chosen in rows.items() if len(chosen)}


def take(arrays: Sequence[pa.Array], rows: Indices | None) -> Sequence[pa.Array]:
    """Takes these rows of each column; None: all."""
    if rows is None:
        return arrays
    indices = pa.array(rows)
    return [array.take(indices) for array in arrays]


def in_order(groups: Sequence[tuple[Indices, pa.Array]], length: int) -> pa.Array:
    """The values of groups at the rows that they were made of, and nulls at those that are in no group.

    All are of one type; without a group it is binary. Groups that are in order already are not copied.
    """
    place = np.full(length, -1, np.int64)
    start = 0
    for rows, values in groups:
        place[rows] = np.arange(start, start + len(values))
        start += len(values)
    arrays = [values for _, values in groups] or [pa.array([], pa.binary())]
    found = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    if start == length and np.array_equal(place, np.arange(length)):
        return found
    return found.take(pa.array(place, mask=place < 0))


def encoded_by_op(
    ops: pa.Int8Array, encode: Callable[[Op, Indices | None], pa.BinaryArray]
) -> pa.BinaryArray:
    """Records in the order of `ops`. Those of one op share their constants, and are encoded by themselves.

    `encode` gets an op and its rows, None for all rows. Raises: as `rows_by_op`.
    """
    groups = rows_by_op(ops)
    if len(groups) <= 1:
        return encode(next(iter(groups), Op.INSERT), None)
    return in_order([(rows, encode(op, rows)) for op, rows in groups.items()], len(ops))


def rows_and_nulls(
    ops: pa.Int8Array, after: Sequence[pa.Array], encode: Callable[[Sequence[pa.Array]], pa.BinaryArray]
) -> pa.BinaryArray:
    """The encoded rows after, and a null for each DELETE."""
    if not len(rows_by_op(ops).get(Op.DELETE, ())):
        return encode(after)
    kept = (ops.to_numpy() != Op.DELETE).nonzero()[0]
    return in_order([(kept, encode(take(after, kept)))] if len(kept) else [], len(ops))


def check_array(column: Column, array: pa.Array, length: int) -> None:
    """Check that an array holds values of a column, so many.

    Raises:
        InputError: PK_NULL, a null in a column that is not nullable.
        TypeError: an array of another type.
        ValueError: an array of another length.
    """
    if not isinstance(array, pa.Array) or array.type != column.type.arrow:
        found = getattr(array, "type", type(array).__name__)
        raise TypeError(f"column {column.name} is {found}, not an array of {column.type.arrow}")
    if len(array) != length:
        raise ValueError(f"column {column.name} has {len(array)} rows, not {length}")
    if array.null_count and not column.nullable:
        found = f"{array.null_count} nulls in the primary key's column {column.name}"
        raise InputError(Code.PK_NULL, found=found)


def binary(data: npt.NDArray[np.generic], offsets: npt.NDArray[np.int32]) -> pa.BinaryArray:
    """The Arrow array of texts that lie one behind the other in `data`; `offsets` has one more entry than rows."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
