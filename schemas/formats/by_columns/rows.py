"""Rows as values of records, by whole columns, whatever their encoding: those of a key, and those without identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.formats.by_columns.upserts import half, upserted
from schemas.formats.protocol import KeyReader, ReadColumns
from schemas.records import NO_DATA, Op, refuse
from schemas.table import Column

RowReader: TypeAlias = Callable[[pa.BinaryArray], Sequence[pa.Array]]
"""The columns of the rows that values are, null where one lacks it. May raise OddRecordError.

For rows of a key booleans may follow: where a row says that it is deleted.
"""


@dataclass(frozen=True)
class KeyedRows:
    """See `formats.protocol.ColumnReader`. The key columns are those of the key; what a row has of them is equal."""

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    keys: KeyReader
    rows: RowReader

    def __call__(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> ReadColumns:
        """A null, or nothing, is a DELETE. Raises: OddRecordError."""
        refuse(keys.null_count)
        own = self.keys(keys)
        is_row = pc.greater(pc.binary_length(values), 0).fill_null(False)
        found = list(self.rows(values.filter(is_row)))
        if len(found) > len(self.columns) and (is_gone := found.pop()).true_count:
            found = [each.filter(pc.invert(is_gone)) for each in found]
            flags = is_row.to_numpy(zero_copy_only=False)
            flags[flags] = ~is_gone.to_numpy(zero_copy_only=False)
            is_row = pa.array(flags)
        of_rows = {column.name: key.filter(is_row) for column, key in zip(self.key_columns, own, strict=True)}
        for column, values_ in zip(self.columns, found, strict=True):
            if column.name in of_rows:
                refuse(not pc.all(pc.equal(values_, of_rows[column.name]), min_count=0).as_py())
        rows = [of_rows.get(each.name, values_) for each, values_ in zip(self.columns, found, strict=True)]
        return upserted(self.columns, self.key_columns, own, rows, is_row)


@dataclass(frozen=True)
class AppendedRows:
    """See `formats.protocol.ColumnReader`. Keys are not looked at."""

    columns: tuple[Column, ...]
    rows: RowReader

    def __call__(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> ReadColumns:
        """A null is no row. Raises: OddRecordError."""
        is_row = values.is_valid().to_numpy(zero_copy_only=False)
        rows = half(self.columns, self.rows(values.drop_null()), is_row)
        ops = np.where(is_row, np.int8(Op.INSERT), np.int8(NO_DATA))
        return ReadColumns(ops, pa.nulls(len(ops), rows.type), rows)
