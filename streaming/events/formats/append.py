"""Test events of the format `append` in JSON.

A generator knows rows apart by a key, so theirs have one of their own: a number, which only the record's key has. A row
that is changed comes once more with it, and of one that is deleted a null value.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from schemas.json.cells import cells
from schemas.json.columnar import encode_objects
from schemas.json.pieces import join
from schemas.records import Op
from schemas.table import RESERVED_PREFIX, Column, TableSchema
from schemas.types import ColumnType, TypeName
from streaming.events.formats.protocol import Columns, Events, Ops, Records, Said

_NUMBER = Column(f"{RESERVED_PREFIX}number", ColumnType(TypeName.BIGINT), nullable=False)


def numbered(table: TableSchema) -> TableSchema:
    """The table with a number in front of its columns, for a generator."""
    key = (_NUMBER.name,)
    return replace(table, columns=(_NUMBER, *table.columns), primary_key=key, distribution_key=key)


class AppendEvents(Events):
    """Rows of a table that is `numbered`, without the number."""

    def __init__(self, table: TableSchema) -> None:
        self._columns = table.columns[1:]

    @property
    def needs_before(self) -> bool:
        return False

    def keys(self, arrays: Columns) -> pa.BinaryArray:
        return join(cells(arrays[0], _NUMBER.type, "json"))

    def values(self, ops: Ops, before: Columns, after: Columns) -> pa.BinaryArray:
        rows = encode_objects(self._columns, after[1:], "json")
        gone = ops == Op.DELETE
        return pc.if_else(pa.array(gone), None, rows) if gone.any() else rows

    def records(self, keys: pa.BinaryArray, values: pa.BinaryArray, ops: Ops, first: int) -> Records:
        return Records(keys, values)

    def said(self, value: bytes | None) -> Said:
        return Said(Op.DELETE, b"") if value is None else Said(Op.INSERT, value)
