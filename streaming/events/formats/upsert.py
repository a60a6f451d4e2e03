"""Test events of the format `upsert`, in JSON or in Avro by registered schemas."""

from __future__ import annotations

from abc import abstractmethod

import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columnar import encode_records
from schemas.avro.registered import SchemaIds, frame
from schemas.by_op import rows_and_nulls
from schemas.formats.outputs.avro_records import FramedKeys
from schemas.formats.upsert import KeyForm
from schemas.json.cells import cells
from schemas.json.columnar import encode_objects
from schemas.json.pieces import join
from schemas.records import Op
from schemas.table import TableSchema
from schemas.types import TypeName
from streaming.events.formats.protocol import Columns, Events, Ops, Records, Said


class _UpsertEvents(Events):
    """Rows, and nulls for those that are gone."""

    @property
    def needs_before(self) -> bool:
        return False

    def values(self, ops: Ops, before: Columns, after: Columns) -> pa.BinaryArray:
        return rows_and_nulls(pa.array(ops), after, self._rows)

    def records(self, keys: pa.BinaryArray, values: pa.BinaryArray, ops: Ops, first: int) -> Records:
        return Records(keys, values)

    def said(self, value: bytes | None) -> Said:
        return Said(Op.DELETE, b"") if value is None else Said(Op.INSERT, value)

    @abstractmethod
    def _rows(self, arrays: Columns) -> pa.BinaryArray:
        """Each row as its record has it."""


class JsonUpsertEvents(_UpsertEvents):
    """Objects of the columns."""

    def __init__(self, table: TableSchema, key: KeyForm) -> None:
        self._table, self._key = table, key

    def keys(self, arrays: Columns) -> pa.BinaryArray:
        if self._key == "record":
            return encode_objects(self._table.key_columns, arrays, "json")
        ([array], [column]) = arrays, self._table.key_columns
        if self._key == "text" and column.type.name is TypeName.STRING:
            return array.cast(pa.binary())
        texts = join(cells(array, column.type, "json"))
        return texts if self._key == "json" else pc.utf8_trim(texts.cast(pa.string()), '"').cast(pa.binary())

    def _rows(self, arrays: Columns) -> pa.BinaryArray:
        return encode_objects(self._table.columns, arrays, "json")


class AvroUpsertEvents(_UpsertEvents):
    """Records by these schemas, which are those of an upsert output of the table."""

    def __init__(self, table: TableSchema, ids: SchemaIds) -> None:
        self._table, self._ids = table, ids
        self._keys = FramedKeys(table.key_columns, ids.key)

    def keys(self, arrays: Columns) -> pa.BinaryArray:
        return self._keys(arrays)

    def _rows(self, arrays: Columns) -> pa.BinaryArray:
        return encode_records(len(arrays[0]), frame(self._ids.value), (self._table.columns, arrays))
