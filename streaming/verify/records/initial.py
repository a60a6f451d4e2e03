"""The table that an upstream's changes begin from, where it is not an empty one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from schemas.records import Row
from schemas.table import TableSchema
from streaming.reading.values.avro_bytes import RowCodec

Rows = Iterable[tuple[bytes, bytes]]
"""Keys and rows as the judge computes with them."""


@dataclass(frozen=True)
class InitialTable:
    """`offsets[p]` is the first record of upstream partition p that counts; `rows` are the table's as of these offsets.

    They have the declared columns, in their order and Arrow types, and are read once.
    """

    offsets: tuple[int, ...]
    rows: Iterable[pa.Table]

    def encoded(self, table: TableSchema) -> Iterator[tuple[bytes, bytes]]:
        """Each key with its row, in canonical form."""
        whole, keys = RowCodec(table.columns), RowCodec(table.key_columns)
        for row in self.decoded(table):
            yield keys.row_bytes(table.key_of(row)), whole.row_bytes(row)

    def decoded(self, table: TableSchema) -> Iterator[Row]:
        """Each row, with the values of all declared columns."""
        for piece in self.rows:
            yield from zip(*(piece[name].to_pylist() for name in table.column_names), strict=True)
