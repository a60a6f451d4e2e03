"""`Change` records read columnar: what `schemas.avro.columnar.encode_changes` writes, read back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.avro.columns.cursor import Cursor, Flags, spread
from schemas.codec.results import row_type
from schemas.records import Op, refuse
from schemas.table import Column


def read_changes(
    columns: Sequence[Column], keys: pa.BinaryArray, values: pa.BinaryArray
) -> tuple[npt.NDArray[np.int8], pa.StructArray, pa.StructArray]:
    """The ops of n `Change` records, and their images: structs of the columns, null where the op has none.

    Keys are not looked at. Raises: OddRecordError.
    """
    cursor = Cursor.of(values)
    codes = cursor.byte()
    refuse(((codes & 1 == 1) | (codes > 2 * max(Op))).any())
    ops = (codes >> 1).astype(np.int8)
    before, after = (_read_half(cursor, columns, ops != lacking) for lacking in (Op.INSERT, Op.DELETE))
    cursor.check_read()
    return ops, before, after


def read_keys(key_columns: Sequence[Column], keys: pa.BinaryArray) -> list[pa.Array]:
    """The columns of n `Key` records. Raises: OddRecordError."""
    cursor = Cursor.of(keys)
    found = [cursor.column(column) for column in key_columns]
    cursor.check_read()
    return found


def _read_half(cursor: Cursor, columns: Sequence[Column], is_due: Flags) -> pa.StructArray:
    rows, is_there = cursor.branches()
    refuse((is_there != is_due).any())
    fields = list(row_type(columns))
    if rows is None:
        return pa.StructArray.from_arrays([cursor.column(column) for column in columns], fields=fields)
    own = cursor.among(rows)
    arrays = [spread(own.column(column), is_there) for column in columns]
    cursor.follow(rows, own)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(~is_there))
