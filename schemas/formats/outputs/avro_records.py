"""Encoders of outputs in Avro whose records name registered schemas: framed rows and keys.

The bytes behind the frame are those of `change`: names and defaults of a schema leave no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.avro.columnar import encode_records
from schemas.avro.registered import frame
from schemas.by_op import rows_and_nulls
from schemas.formats.protocol import Origins
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
