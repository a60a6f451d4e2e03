"""Test events of the format `upsert` in JSON."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from schemas.formats.upsert import KeyForm
from schemas.json.cells import cells
from schemas.json.columnar import encode_objects
from schemas.json.pieces import join
from schemas.records import Op
from schemas.table import TableSchema
from schemas.types import TypeName
from streaming.dev.events.protocol import Columns, Events, Ops, Records, Said


class JsonUpsertEvents(Events):
    """Rows, and nulls for those that are gone."""

    def __init__(self, table: TableSchema, key: KeyForm) -> None:
        self._table, self._key = table, key

    @property
    def needs_before(self) -> bool:
        return False

    def keys(self, arrays: Columns) -> pa.BinaryArray:
        if self._key == "record":
            return encode_objects(self._table.key_columns, arrays, "json")
        ([array], [column]) = arrays, self._table.key_columns
        if self._key == "text" and column.type.name is TypeName.STRING:
            return array.cast(pa.binary())
        texts = join(cells(array, column.type, "json"))
        return texts if self._key == "json" else pc.utf8_trim(texts.cast(pa.string()), '"').cast(pa.binary())

    def values(self, ops: Ops, before: Columns, after: Columns) -> pa.BinaryArray:
        rows = encode_objects(self._table.columns, after, "json")
        gone = ops == Op.DELETE
        return pc.if_else(pa.array(gone), None, rows) if gone.any() else rows

    def records(self, keys: pa.BinaryArray, values: pa.BinaryArray, ops: Ops, first: int) -> Records:
        return Records(keys, values)

    def said(self, value: bytes | None) -> Said:
        return Said(Op.DELETE, b"") if value is None else Said(Op.INSERT, value)
