"""Key order on whole Arrow columns: column by column, the order of Spark's `<` on the same columns.

Arrow compares strings by their UTF-8 bytes, as Spark does. Booleans are compared as 0 < 1, which Arrow has
no kernel for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.position import Key

Mask = npt.NDArray[np.bool_]


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
