"""Rows and encoders of the output format `upsert` in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.by_op import rows_and_nulls
from schemas.formats.outputs.halves import UpsertRows, Values
from schemas.formats.outputs.json_records import JsonKeyRows, error, payload_of, read_row, row_frame, same
from schemas.formats.protocol import Origins
from schemas.json.columnar import encode_objects
from schemas.json.parsing.tokens import JsonError
from schemas.json.written import Encoding, written_row
from schemas.records import Row
from schemas.table import Column


def json_upsert_rows(
    columns: Sequence[Column], key_columns: Sequence[Column], encoding: Encoding
) -> UpsertRows:
    """The reference implementation."""
    return UpsertRows(columns, JsonKeyRows(key_columns, encoding), JsonValues(columns, encoding))


class JsonValues(Values):
    """Rows as objects, each in the one form that it has."""

    def __init__(self, columns: Sequence[Column], encoding: Encoding) -> None:
        self._columns, self._encoding = tuple(columns), encoding

    def read(self, data: bytes, where: str | None) -> Row:
        """Raises: InputError: JSON_MALFORMED, VALUE_OUT_OF_RANGE, BAD_ENCODING."""
        try:
            frame = row_frame("Value", self._columns, self._encoding)
            row = read_row(payload_of(data, frame), self._columns, self._encoding)
            same(data, self.write(row))
        except JsonError as reason:
            raise error(reason, "a value", where) from None
        return row

    def write(self, row: Row) -> bytes:
        before, behind = row_frame("Value", self._columns, self._encoding)
        return before + written_row(row, self._columns, self._encoding).encode() + behind


@dataclass(frozen=True, slots=True)
class JsonUpserts:
    """Rows, and nulls for those that are gone."""

    columns: tuple[Column, ...]
    encoding: Encoding

    def inserts(self, arrays: Sequence[pa.Array], origins: Origins) -> pa.BinaryArray:
        frame = row_frame("Value", self.columns, self.encoding)
        return encode_objects(self.columns, arrays, self.encoding, *frame)

    def changes(
        self, ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array], origins: Origins
    ) -> pa.BinaryArray:
        return rows_and_nulls(ops, after, lambda arrays: self.inserts(arrays, origins))
