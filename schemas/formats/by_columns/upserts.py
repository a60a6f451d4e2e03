"""Rows of `upsert` in JSON, by whole columns: those that are as an output writes them, with all columns in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.json.objects import read_objects, written
from schemas.records import Op, refuse
from schemas.table import Column


@dataclass(frozen=True)
class UpsertColumns:
    """See `formats.protocol.ColumnReader`. Keys are objects of the key columns, all of which a row has, too."""

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]

    @classmethod
    def of(cls, columns: Sequence[Column], key_columns: Sequence[Column]) -> UpsertColumns | None:
        """None where rows do not have their keys."""
        names = {column.name for column in columns}
        whole = bool(key_columns) and all(column.name in names for column in key_columns)
        return cls(tuple(columns), tuple(key_columns)) if whole else None

    def __call__(
        self, keys: pa.BinaryArray, values: pa.BinaryArray
    ) -> tuple[npt.NDArray[np.int8], pa.StructArray, pa.StructArray]:
        """A null is a DELETE. Raises: OddRecordError."""
        is_row = values.is_valid()
        rows = read_objects(self.columns, values.drop_null())
        check_keys(self.columns, self.key_columns, rows, keys.filter(is_row))
        deleted = dict(
            zip(self._key_names, read_objects(self.key_columns, keys.filter(values.is_null())), strict=True)
        )
        nothing = len(values) - is_row.true_count
        before = [deleted.get(column.name, pa.nulls(nothing, column.type.arrow)) for column in self.columns]
        is_there = is_row.to_numpy(zero_copy_only=False)
        ops = np.where(is_there, np.int8(Op.INSERT), np.int8(Op.DELETE))
        return ops, half(self.columns, before, ~is_there), half(self.columns, rows, is_there)

    @property
    def _key_names(self) -> list[str]:
        return [column.name for column in self.key_columns]


def half(
    columns: Sequence[Column], arrays: Sequence[pa.Array], is_there: npt.NDArray[np.bool_]
) -> pa.StructArray:
    """Rows at the places where they are there, and nulls between them."""
    fields = [pa.field(column.name, column.type.arrow) for column in columns]
    rows = pa.StructArray.from_arrays(arrays, fields=fields)
    return rows if is_there.all() else rows.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))


def check_keys(
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    rows: Sequence[pa.Array],
    keys: pa.BinaryArray,
) -> None:
    """Raises: OddRecordError unless each key is the object of its row's key columns."""
    by_name = {column.name: array for column, array in zip(columns, rows, strict=True)}
    refuse(not written(key_columns, [by_name[column.name] for column in key_columns]).equals(keys))
