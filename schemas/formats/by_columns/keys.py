"""Record keys by whole columns (`schemas.formats.protocol.KeyReader`): what `Rows.read_key` reads from each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columns.by_id import RegisteredColumns
from schemas.avro.projection import Project
from schemas.avro.registered import Schemas
from schemas.formats.by_columns.json_rows import read_rows
from schemas.formats.by_columns.upserts import struct_of
from schemas.json.pieces import join
from schemas.json.written import text
from schemas.records import OddRecordError, refuse
from schemas.table import Column
from schemas.types import TypeName

_UNQUOTED = {TypeName.BOOLEAN, TypeName.INT, TypeName.BIGINT}
"""Types whose values have no quotes in JSON."""
_SYNTAX = r'["\\,:{}\[\]\s]'
"""What a plain value has no use for, and could change the object around it."""


class RegisteredRows:
    """Rows in Avro by the schema that each names; a `formats.by_columns.rows.RowReader`."""

    def __init__(self, schemas: Schemas, project: Project, columns: Sequence[Column]) -> None:
        self._columns = RegisteredColumns(schemas, project, struct_of(columns))

    def __call__(self, records: pa.BinaryArray) -> list[pa.Array]:
        """Raises: OddRecordError."""
        return list(self._columns.read(records).flatten())


class RegisteredKeys(RegisteredRows):
    """Keys in Avro by the schema that each names."""

    def __call__(self, records: pa.BinaryArray) -> list[pa.Array]:
        """Raises: OddRecordError."""
        return without_nulls(super().__call__(records))


@dataclass(frozen=True)
class ObjectKeys:
    """JSON objects of the key columns."""

    key_columns: tuple[Column, ...]

    def __call__(self, keys: pa.BinaryArray) -> list[pa.Array]:
        """Raises: OddRecordError."""
        return without_nulls(read_rows(self.key_columns, keys, exact=True))


@dataclass(frozen=True)
class ValueKeys:
    """The values of a single key column in JSON, or, if `plain`, the same without quotes."""

    column: Column
    plain: bool

    def __call__(self, keys: pa.BinaryArray) -> list[pa.Array]:
        """Raises: OddRecordError."""
        if self.plain and self.column.type.name is TypeName.STRING:
            return [_texts(keys)]
        refuse(keys.null_count)
        refuse(self.plain and pc.any(pc.match_substring_regex(keys, _SYNTAX), min_count=0).as_py())
        has_quotes = self.column.type.name not in _UNQUOTED and not self.column.unsigned
        quote = b'"' if self.plain and has_quotes else b""
        name = text(self.column.name).encode()
        return ObjectKeys((self.column,))(join([b"{%s:%s" % (name, quote), keys, quote + b"}"]))


def _texts(keys: pa.BinaryArray) -> pa.StringArray:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        raise OddRecordError from None


def without_nulls(keys: Sequence[pa.Array]) -> list[pa.Array]:
    """Raises: OddRecordError for a null in one of the columns."""
    refuse(any(key.null_count for key in keys))
    return list(keys)
