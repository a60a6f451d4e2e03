"""Rows and encoders of the output format `upsert` in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.formats.outputs.json_records import (
    JsonKeyRows,
    check_keys,
    error,
    payload_of,
    read_row,
    row_frame,
    same,
)
from schemas.formats.outputs.ops import in_order, rows_by_op, take
from schemas.formats.protocol import Origin, Origins, OutputRows
from schemas.json.columnar import encode_objects
from schemas.json.scan import JsonError
from schemas.json.written import Encoding, written_row
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import Column


class JsonUpsertRows(OutputRows):
    """Rows and keys, see `formats.protocol.Rows`. An INSERT here only says what the row is now."""

    def __init__(self, columns: Sequence[Column], key_columns: Sequence[Column], encoding: Encoding) -> None:
        self._columns, self._encoding = tuple(columns), encoding
        self._keys = JsonKeyRows(key_columns, encoding)

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """Raises: InputError as `JsonKeyRows.read`."""
        return self._keys.read(data, where)

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Raises: InputError as `read_key`; JSON_MALFORMED, VALUE_OUT_OF_RANGE, BAD_ENCODING."""
        found = self._keys.read(key, where)
        keys = {column.name: each for column, each in zip(self._keys.columns, found, strict=True)}
        if value is None:
            return Change(Op.DELETE, tuple(keys.get(column.name) for column in self._columns), None)
        try:
            row = read_row(payload_of(value, self._encoding), self._columns, self._encoding)
            check_keys(keys, self._columns, row, where)
            same(value, self._write(row))
        except JsonError as reason:
            raise error(reason, "a value", where) from None
        return Change(Op.INSERT, None, row)

    def write_key(self, key: Key) -> bytes:
        return self._keys.write(key)

    def write_insert(self, row: Row, origin: Origin) -> bytes:
        return self._write(row)

    def write_change(self, change: Change, origin: Origin) -> bytes | None:
        if change.op is Op.DELETE:
            return None
        return self._write(change.row)

    def _write(self, row: Row) -> bytes:
        before, behind = row_frame("Value", self._columns, self._encoding)
        return before + written_row(row, self._columns, self._encoding).encode() + behind


@dataclass(frozen=True, slots=True)
class JsonUpsertValues:
    """Rows, and nulls for those that are gone."""

    columns: tuple[Column, ...]
    encoding: Encoding

    def inserts(self, arrays: Sequence[pa.Array], origins: Origins) -> pa.BinaryArray:
        frame = row_frame("Value", self.columns, self.encoding)
        return encode_objects(self.columns, arrays, self.encoding, *frame)

    def changes(
        self, ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array], origins: Origins
    ) -> pa.BinaryArray:
        gone = rows_by_op(ops).get(Op.DELETE, ())
        if not len(gone):
            return self.inserts(after, origins)
        alive = ops.to_numpy() != Op.DELETE
        kept = alive.nonzero()[0]
        return in_order([(kept, self.inserts(take(after, kept), origins))] if len(kept) else [], len(ops))
