"""The format `change`: Avro binary without a schema in front, full images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.avro.columns.changes import read_changes, read_keys
from schemas.avro.fallback import ChangeRecords, KeyRecords
from schemas.codec.results import Decoded, ReadStructs, read_marked, replaced, row_type
from schemas.errors import Code, InputError
from schemas.records import Change, Row
from schemas.table import Column

_NONE: tuple[int | None, Row | None, Row | None] = (None, None, None)


@dataclass
class ChangeDecoder:
    """See `schemas.codec.results.Decoder`. Record keys are not compared with those of rows."""

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        self._changes, self._keys = ChangeRecords(self.columns), KeyRecords(self.key_columns)

    def decode(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> Decoded:
        ops, before, after, marked = read_changes(self.columns, values)
        rows, found, errors = read_marked(values, marked, self._change)
        if not found:
            return Decoded(ops, before, after, errors)
        kind = row_type(self.columns)
        changes = [_NONE if each is None else (each.op.value, each.before, each.after) for each in found]
        own_ops, own_before, own_after = zip(*changes, strict=True)
        return Decoded(
            replaced(ops, rows, pa.array(own_ops, pa.int8())),
            replaced(before, rows, structs_of(own_before, kind)),
            replaced(after, rows, structs_of(own_after, kind)),
            errors,
        )

    def decode_keys(self, keys: pa.BinaryArray) -> ReadStructs:
        structs, marked = read_keys(self.key_columns, keys)
        rows, found, errors = read_marked(keys, marked, self._keys.decode)
        if not found:
            return ReadStructs.of(structs)
        own = structs_of(found, row_type(self.key_columns))
        return ReadStructs.of(replaced(structs, rows, own), errors)

    def _change(self, value: bytes | None) -> Change:
        if not value:
            raise InputError(Code.EMPTY_RECORD, found="a value of 0 bytes")
        return self._changes.decode(value)


def structs_of(rows: Sequence[Row | None], kind: pa.StructType) -> pa.StructArray:
    """Rows as structs, null where there is none."""
    absent = (None,) * kind.num_fields
    cells = list(zip(*(row or absent for row in rows), strict=True)) or [()] * kind.num_fields
    columns = [pa.array(column, each.type) for column, each in zip(cells, kind, strict=True)]
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
