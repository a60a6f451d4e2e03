"""Rows as values of records, by whole columns, whatever their encoding: those of a key, and those without identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columns.cursor import spread
from schemas.formats.by_columns.upserts import half, upserted
from schemas.formats.protocol import KeyReader, ReadColumns
from schemas.records import NO_DATA, Op, refuse
from schemas.table import Column

RowReader: TypeAlias = Callable[[pa.BinaryArray], Sequence[pa.Array]]
"""The columns of the rows that values are, null where one lacks it. May raise OddRecordError."""


@dataclass(frozen=True)
class KeyedRows:
    """See `formats.protocol.ColumnReader`. The key columns are those of the key; what a row has of them is equal."""

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    keys: KeyReader
    rows: RowReader
    deleted_field: str | None = None
    """A row in which it is true is a DELETE. It is one of the columns, or read behind them."""

    def __call__(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> ReadColumns:
        """A null, or nothing, is a DELETE. Raises: OddRecordError."""
        refuse(keys.null_count)
        own = self.keys(keys)
        is_row = pc.greater(pc.binary_length(values), 0).fill_null(False)
        found = self.rows(values.filter(is_row))
        is_gone = None if self.deleted_field is None else _are_true(self._deleted(found))
        if is_gone is not None:
            is_alive = pc.invert(is_gone)
            found = [array.filter(is_alive) for array in found]
            is_row = spread(is_alive, is_row.to_numpy(zero_copy_only=False)).fill_null(False)
        found = found[: len(self.columns)]
        of_rows = {column.name: key.filter(is_row) for column, key in zip(self.key_columns, own, strict=True)}
        for column, values_ in zip(self.columns, found, strict=True):
            if column.name in of_rows:
                refuse(not pc.all(pc.equal(values_, of_rows[column.name]), min_count=0).as_py())
        rows = [of_rows.get(each.name, values_) for each, values_ in zip(self.columns, found, strict=True)]
        return upserted(self.columns, self.key_columns, own, rows, is_row)

    def _deleted(self, found: Sequence[pa.Array]) -> pa.Array:
        names = [column.name for column in self.columns]
        return found[names.index(self.deleted_field) if self.deleted_field in names else -1]


def _are_true(found: pa.Array) -> pa.BooleanArray | None:
    """Where a text or a boolean is true; None where none is. Raises: OddRecordError for what is neither."""
    if found.null_count == len(found):
        return None
    refuse(not (pa.types.is_string(found.type) or pa.types.is_boolean(found.type)))
    texts = found.cast(pa.string())
    is_true = pc.equal(texts, "true").fill_null(False)
    refuse(not pc.all(pc.or_(is_true, pc.equal(texts, "false").fill_null(True)), min_count=0).as_py())
    return is_true if is_true.true_count else None


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
