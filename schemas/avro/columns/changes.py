"""`Change` records read columnar: what `schemas.avro.columnar.encode_changes` writes, read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from schemas.avro.columns.cursor import Cursor, Flags, spread
from schemas.codec.results import row_type
from schemas.records import Op
from schemas.table import Column


class ReadChanges(NamedTuple):
    """The ops of n `Change` records, and their images: structs of the columns, null where the op has none.

    All are arbitrary for a record that is `marked`.
    """

    ops: pa.Int8Array
    before: pa.StructArray
    after: pa.StructArray
    marked: Flags


def read_changes(columns: Sequence[Column], values: pa.BinaryArray) -> ReadChanges:
    """Reads n `Change` records."""
    cursor = Cursor.of(values)
    codes = cursor.byte()
    cursor.check_within()
    cursor.mark((codes & 1 == 1) | (codes > 2 * max(Op)))
    ops = (codes >> 1).astype(np.int8)
    before, after = (_read_image(cursor, columns, ops != lacking) for lacking in (Op.INSERT, Op.DELETE))
    cursor.check_read()
    return ReadChanges(pa.array(ops), before, after, cursor.marked)


def read_keys(key_columns: Sequence[Column], keys: pa.BinaryArray) -> tuple[pa.StructArray, Flags]:
    """The columns of n `Key` records as structs, and flags for those that are marked."""
    cursor = Cursor.of(keys)
    arrays = [cursor.column(column) for column in key_columns]
    cursor.check_read()
    return pa.StructArray.from_arrays(arrays, fields=list(row_type(key_columns))), cursor.marked


def _read_image(cursor: Cursor, columns: Sequence[Column], is_due: Flags) -> pa.StructArray:
    rows, is_there = cursor.branches()
    cursor.mark(is_there != is_due)
    fields = list(row_type(columns))
    if rows is None:
        return pa.StructArray.from_arrays([cursor.column(column) for column in columns], fields=fields)
    own = cursor.among(rows)
    arrays = [spread(own.column(column), is_there) for column in columns]
    cursor.follow(rows, own)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(~is_there))
