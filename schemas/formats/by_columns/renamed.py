"""Rows of columns whose names in records are others than the table's (`schemas.kinds.columns.Column.field`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.formats.by_columns.upserts import struct_of
from schemas.formats.protocol import ColumnReader, ReadColumns
from schemas.table import Column


@dataclass(frozen=True)
class RenamedColumns:
    """See `formats.protocol.ColumnReader`. `reader` knows the columns by their names in records."""

    reader: ColumnReader
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, reader: ColumnReader | None, columns: Sequence[Column]) -> ColumnReader | None:
        """The reader itself where all names are the same."""
        if reader is None or all(column.field is None for column in columns):
            return reader
        return cls(reader, tuple(columns))

    def __call__(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> ReadColumns:
        """Raises: OddRecordError."""
        read = self.reader(keys, values)
        return read._replace(before=self._renamed(read.before), after=self._renamed(read.after))

    def _renamed(self, rows: pa.StructArray) -> pa.StructArray:
        """By place, as Arrow's own cast goes by names."""
        arrays = [rows.field(index) for index in range(len(self.columns))]
        return pa.StructArray.from_arrays(arrays, fields=list(struct_of(self.columns)), mask=rows.is_null())
