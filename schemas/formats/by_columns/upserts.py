"""Rows of `upsert` in JSON, by whole columns: those with all columns in order, as an output writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columns.cursor import spread
from schemas.formats.protocol import ReadColumns
from schemas.json.objects import are_spaced, read_objects
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
        return cls(tuple(columns), tuple(key_columns)) if has_keys(columns, key_columns) else None

    def __call__(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> ReadColumns:
        """A null is a DELETE. Raises: OddRecordError."""
        is_row = values.is_valid()
        rows = self._objects(self.columns, values.drop_null())
        own = self._objects(self.key_columns, keys)
        check_keys(self.columns, self.key_columns, rows, [key.filter(is_row) for key in own])
        return upserted(self.columns, self.key_columns, own, rows, is_row)

    def _objects(self, columns: Sequence[Column], texts: pa.BinaryArray) -> list[pa.Array]:
        found = read_objects(columns, texts)
        refuse(are_spaced(columns, texts))
        return found


def upserted(
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    keys: Sequence[pa.Array],
    rows: Sequence[pa.Array],
    is_row: pa.BooleanArray,
) -> ReadColumns:
    """Of n records, from the columns of all keys, and of the `rows` of those that have one; the others are DELETEs."""
    is_gone = pc.invert(is_row)
    deleted = {column.name: key.filter(is_gone) for column, key in zip(key_columns, keys, strict=True)}
    nothing = is_gone.true_count
    before = [
        deleted[each.name] if each.name in deleted else pa.nulls(nothing, each.type.arrow) for each in columns
    ]
    is_there = is_row.to_numpy(zero_copy_only=False)
    ops = np.where(is_there, np.int8(Op.INSERT), np.int8(Op.DELETE))
    return ReadColumns(ops, half(columns, before, ~is_there), half(columns, rows, is_there))


def has_keys(columns: Sequence[Column], key_columns: Sequence[Column]) -> bool:
    """Whether rows of these columns have a key, and all of it."""
    names = {column.name for column in columns}
    return bool(key_columns) and all(column.name in names for column in key_columns)


def struct_of(columns: Sequence[Column]) -> pa.StructType:
    """Rows of these columns."""
    return pa.struct([pa.field(column.name, column.type.arrow) for column in columns])


def half(
    columns: Sequence[Column], arrays: Sequence[pa.Array], is_there: npt.NDArray[np.bool_]
) -> pa.StructArray:
    """Rows at the places where they are there, and nulls between them."""
    rows = pa.StructArray.from_arrays(arrays, fields=list(struct_of(columns)))
    return rows if is_there.all() else spread(rows, is_there)


def check_keys(
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    rows: Sequence[pa.Array],
    keys: Sequence[pa.Array],
) -> None:
    """Raises: OddRecordError unless the key columns of each row are those of its key."""
    by_name = {column.name: array for column, array in zip(columns, rows, strict=True)}
    refuse(not all(by_name[column.name].equals(key) for column, key in zip(key_columns, keys, strict=True)))
