"""Encoders of outputs in JSON: objects of columns as keys and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from schemas.by_op import rows_and_nulls
from schemas.formats.protocol import Origins
from schemas.json.cells import Encoding
from schemas.json.columnar import encode_objects
from schemas.json.frames import connect_row, framed, json_row
from schemas.table import Column


def row_schema(name: str, columns: Sequence[Column], encoding: Encoding) -> dict[str, object]:
    """The schema of an object of columns, for its readers."""
    return connect_row(name, columns) if encoding == "json-schema" else json_row(columns)


@cache
def row_frame(name: str, columns: tuple[Column, ...], encoding: Encoding) -> tuple[bytes, bytes]:
    """The bytes before and after an object of columns that is the whole record."""
    return framed(connect_row(name, columns)) if encoding == "json-schema" else (b"", b"")


@dataclass(frozen=True, slots=True)
class ObjectKeys:
    """Objects of the key columns, in key order."""

    key_columns: tuple[Column, ...]
    encoding: Encoding

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.BinaryArray:
        """See `formats.protocol.KeyEncoder`."""
        frame = row_frame("Key", self.key_columns, self.encoding)
        return encode_objects(self.key_columns, arrays, self.encoding, *frame)


@dataclass(frozen=True, slots=True)
class ObjectUpserts:
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
