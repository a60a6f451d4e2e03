"""Test events of the format `change`."""

from __future__ import annotations

import pyarrow as pa

from schemas.avro.columnar import encode_changes, encode_keys
from schemas.records import Op
from schemas.table import TableSchema
from streaming.events.formats.protocol import Columns, Events, Ops, Records, Said

_OPS_BY_FIRST_BYTE = {2 * op: op for op in Op}
"""A change begins with the Avro index of its op, a zigzag varint."""


class ChangeEvents(Events):
    """Op, row before and row after, in Avro."""

    def __init__(self, table: TableSchema) -> None:
        self._table = table

    @property
    def needs_before(self) -> bool:
        return True

    def keys(self, arrays: Columns) -> pa.BinaryArray:
        return encode_keys(self._table.key_columns, arrays)

    def values(self, ops: Ops, before: Columns, after: Columns) -> pa.BinaryArray:
        return encode_changes(self._table.columns, pa.array(ops), before, after)

    def records(self, keys: pa.BinaryArray, values: pa.BinaryArray, ops: Ops, first: int) -> Records:
        return Records(keys, values)

    def said(self, value: bytes | None) -> Said | None:
        if not value or value[0] not in _OPS_BY_FIRST_BYTE:
            raise ValueError("no change")
        return Said(_OPS_BY_FIRST_BYTE[value[0]], value)
