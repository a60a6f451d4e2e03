"""Encoders of the format `change` in Avro: `schemas.avro.columnar` behind the interface of formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.avro.columnar import encode_changes, encode_inserts, encode_keys
from schemas.formats.protocol import Origins
from schemas.table import Column


@dataclass(frozen=True, slots=True)
class ChangeKeys:
    """`Key` records."""

    key_columns: tuple[Column, ...]

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.BinaryArray:
        return encode_keys(self.key_columns, arrays)


@dataclass(frozen=True, slots=True)
class AvroChanges:
    """`Change` records."""

    columns: tuple[Column, ...]

    def inserts(self, arrays: Sequence[pa.Array], origins: Origins) -> pa.BinaryArray:
        return encode_inserts(self.columns, arrays)

    def changes(
        self, ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array], origins: Origins
    ) -> pa.BinaryArray:
        return encode_changes(self.columns, ops, before, after)
