"""Encoders of keys and of rows, in JSON and in Avro."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from schemas.arrays import rows_and_nulls
from schemas.avro.columnar import encode_changes, encode_inserts, encode_records
from schemas.formats.protocol import Origins
from schemas.json.columnar import Encoding, encode_objects
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
class JsonRowEncoder:
    """Objects of columns; `name` is that of their schema, `Key` or `Value`. See `formats.protocol.KeyEncoder`."""

    name: str
    columns: tuple[Column, ...]
    encoding: Encoding

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.BinaryArray:
        frame = row_frame(self.name, self.columns, self.encoding)
        return encode_objects(self.columns, arrays, self.encoding, *frame)


@dataclass(frozen=True, slots=True)
class AvroRowEncoder:
    """Records of columns behind constant bytes, such as the id of a schema. See `formats.protocol.KeyEncoder`."""

    columns: tuple[Column, ...]
    before: bytes = b""

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.BinaryArray:
        return encode_records(len(arrays[0]), self.before, (self.columns, arrays))


@dataclass(frozen=True, slots=True)
class UpsertEncoder:
    """Rows, and nulls for those that are gone."""

    rows: JsonRowEncoder | AvroRowEncoder

    def inserts(self, arrays: Sequence[pa.Array], origins: Origins) -> pa.BinaryArray:
        return self.rows(arrays)

    def changes(
        self, ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array], origins: Origins
    ) -> pa.BinaryArray:
        return rows_and_nulls(ops, after, self.rows)


@dataclass(frozen=True, slots=True)
class ChangeEncoder:
    """`Change` records."""

    columns: tuple[Column, ...]

    def inserts(self, arrays: Sequence[pa.Array], origins: Origins) -> pa.BinaryArray:
        return encode_inserts(self.columns, arrays)

    def changes(
        self, ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array], origins: Origins
    ) -> pa.BinaryArray:
        return encode_changes(self.columns, ops, before, after)
