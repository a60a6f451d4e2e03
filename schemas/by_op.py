"""Changes of mixed ops in columns: those of one op share their constants, and are encoded by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.records import Op

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


def take(arrays: Sequence[pa.Array], rows: Indices) -> list[pa.Array]:
    """Takes these rows of each column."""
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


def rows_and_nulls(
    ops: pa.Int8Array, after: Sequence[pa.Array], encode: Callable[[Sequence[pa.Array]], pa.BinaryArray]
) -> pa.BinaryArray:
    """The encoded rows after, and a null for each DELETE."""
    if not len(rows_by_op(ops).get(Op.DELETE, ())):
        return encode(after)
    kept = (ops.to_numpy() != Op.DELETE).nonzero()[0]
    return in_order([(kept, encode(take(after, kept)))] if len(kept) else [], len(ops))
