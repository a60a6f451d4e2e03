"""The common part of outputs in Avro whose records name registered schemas: framed rows and keys, and their reference.

The bytes behind the frame are those that `schemas.avro.codec` writes: names and defaults of a schema leave no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from schemas.avro.columnar import encode_records
from schemas.avro.limits import MalformedError
from schemas.avro.output_schemas import row_record
from schemas.avro.reader import Ranges, RecordReader
from schemas.avro.registered import FRAME_BYTES, SchemaIds, frame
from schemas.by_op import rows_and_nulls
from schemas.errors import Code, InputError
from schemas.formats.outputs.halves import Keys, UpsertRows, Values, mismatch
from schemas.formats.protocol import Origins
from schemas.position import Key
from schemas.records import Row
from schemas.table import Column


@dataclass(frozen=True, slots=True)
class FramedKeys:
    """Encodes records of the key columns, in key order."""

    key_columns: tuple[Column, ...]
    schema_id: int

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.BinaryArray:
        """See `formats.protocol.KeyEncoder`."""
        return encode_records(len(arrays[0]), frame(self.schema_id), (self.key_columns, arrays))


@dataclass(frozen=True, slots=True)
class FramedUpserts:
    """Encodes rows, and nulls for deletes."""

    columns: tuple[Column, ...]
    schema_id: int

    def inserts(self, arrays: Sequence[pa.Array], origins: Origins) -> pa.BinaryArray:
        return encode_records(len(arrays[0]), frame(self.schema_id), (self.columns, arrays))

    def changes(
        self, ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array], origins: Origins
    ) -> pa.BinaryArray:
        return rows_and_nulls(ops, after, lambda arrays: self.inserts(arrays, origins))


class FramedRecord:
    """Reads and writes records of one schema. `what` names them in errors; `general` is the code of most errors."""

    def __init__(self, schema: dict[str, Any], schema_id: int, what: str, general: Code) -> None:
        self._schema, self._id = fastavro.parse_schema(schema), schema_id
        self._reader = RecordReader(self._schema)
        self._what, self._general = what, general

    def write(self, record: dict[str, Any]) -> bytes:
        """ValueError, TypeError or the like for a record that the schema can't hold."""
        out = BytesIO(frame(self._id))
        out.seek(FRAME_BYTES)
        fastavro.schemaless_writer(out, self._schema, record)
        return out.getvalue()

    def read(self, data: bytes) -> dict[str, Any]:
        """Raises: MalformedError."""
        if data[:FRAME_BYTES] != frame(self._id):
            raise MalformedError(f"its first {FRAME_BYTES} bytes are not schema {self._id}'s")
        return self._reader.read(data[FRAME_BYTES:])

    def error(self, reason: MalformedError, data: bytes, where: str | None) -> InputError:
        """The error for bytes that are no such record."""
        found = f"{self._what} of {len(data)} bytes that is not in this output's form ({reason})"
        expected = f"a zero byte, the schema id {self._id} in four bytes, and Avro by this schema"
        return InputError(reason.code or self._general, where=where, found=found, expected=expected)


def same(data: bytes, written: bytes) -> None:
    """Refuse bytes that differ from the one form in which the record is written. Raises: MalformedError."""
    if data != written:
        raise MalformedError("another form than this format writes")


class FramedRows(Values):
    """Rows of columns, in the one form that they have."""

    def __init__(
        self, name: str, columns: Sequence[Column], schema_id: int, what: str, general: Code
    ) -> None:
        self._record = FramedRecord(row_record(name, columns, None), schema_id, what, general)
        self._names, self._ranges = [column.name for column in columns], Ranges(columns)

    def read(self, data: bytes, where: str | None) -> Row:
        """Raises: InputError: AVRO_TRUNCATED, AVRO_TRAILING, AVRO_LIMIT, VALUE_OUT_OF_RANGE, BAD_ENCODING, general."""
        try:
            row = tuple(self._record.read(data).values())
            self._ranges.check(row)
            same(data, self.write(row))
        except MalformedError as reason:
            raise self._record.error(reason, data, where) from None
        return row

    def write(self, row: Row) -> bytes:
        return self._record.write(dict(zip(self._names, row, strict=True)))


class FramedKeyRows(Keys):
    """The reference implementation of `FramedKeys`."""

    def __init__(self, key_columns: Sequence[Column], schema_id: int) -> None:
        self.columns = tuple(key_columns)
        self._rows = FramedRows("Key", key_columns, schema_id, "a key", Code.KEY_MISMATCH)

    def read(self, data: bytes | None, where: str | None) -> Key:
        if not data:
            raise mismatch("a record without a key", where)
        return self._rows.read(data, where)

    def write(self, key: Key) -> bytes:
        return self._rows.write(key)


def upsert_rows(columns: Sequence[Column], key_columns: Sequence[Column], ids: SchemaIds) -> UpsertRows:
    """The reference implementation of `FramedUpserts`."""
    return UpsertRows(columns, FramedKeyRows(key_columns, ids.key), framed_values(columns, ids.value))


def framed_values(columns: Sequence[Column], schema_id: int) -> FramedRows:
    """The reader and writer of values alone, for records without keys of their own."""
    return FramedRows("Value", columns, schema_id, "a value", Code.CHANGE_MALFORMED)
