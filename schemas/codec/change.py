"""The format `change`: Avro binary without a schema in front, full images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from schemas.avro.codec import ChangeCodec, KeyCodec
from schemas.avro.columns.changes import read_changes, read_keys
from schemas.codec.pieces import ColumnarPieces, compact
from schemas.codec.results import Decoded, ReadStructs, row_type
from schemas.errors import Code, InputError
from schemas.records import Change, Row
from schemas.table import Column


@dataclass
class ChangeDecoder:
    """See `schemas.codec.results.Decoder`. Record keys are not compared with those of rows."""

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    _pieces: ColumnarPieces = field(default_factory=ColumnarPieces)
    _key_pieces: ColumnarPieces = field(default_factory=ColumnarPieces)

    def __post_init__(self) -> None:
        self._changes, self._keys = ChangeCodec(self.columns), KeyCodec(self.key_columns)

    def decode(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> Decoded:
        errors = dict[int, InputError]()

        def by_columns(start: int, end: int) -> Decoded:
            part = compact(values, start, end)
            ops, before, after = read_changes(self.columns, part, part)
            return Decoded(pa.array(ops), before, after, {})

        def one_by_one(start: int, end: int) -> Decoded:
            return self._one_by_one(values, start, end, errors)

        found = list(self._pieces.read(len(values), by_columns, one_by_one))
        kind = row_type(self.columns)
        return Decoded(
            pa.concat_arrays([pa.array([], pa.int8()), *(each.ops for each in found)]),
            pa.concat_arrays([pa.array([], kind), *(each.before for each in found)]),
            pa.concat_arrays([pa.array([], kind), *(each.after for each in found)]),
            errors,
        )

    def decode_keys(self, keys: pa.BinaryArray) -> ReadStructs:
        errors, kind = dict[int, InputError](), row_type(self.key_columns)

        def by_columns(start: int, end: int) -> pa.StructArray:
            return pa.StructArray.from_arrays(
                read_keys(self.key_columns, compact(keys, start, end)), fields=list(kind)
            )

        def one_by_one(start: int, end: int) -> pa.StructArray:
            rows = list[Row | None]()
            for row in range(start, end):
                try:
                    rows.append(self._keys.decode(keys[row].as_py()))
                except InputError as error:
                    errors[row] = error
                    rows.append(None)
            return structs_of(rows, kind)

        parts = self._key_pieces.read(len(keys), by_columns, one_by_one)
        return ReadStructs.of(pa.concat_arrays([pa.array([], kind), *parts]), errors)

    def _one_by_one(
        self, values: pa.BinaryArray, start: int, end: int, errors: dict[int, InputError]
    ) -> Decoded:
        ops, before, after = list[int | None](), list[Row | None](), list[Row | None]()
        for row in range(start, end):
            change: Change | None
            try:
                change = self._change(values[row].as_py())
            except InputError as error:
                errors[row] = error
                change = None
            ops.append(None if change is None else change.op.value)
            before.append(None if change is None else change.before)
            after.append(None if change is None else change.after)
        kind = row_type(self.columns)
        return Decoded(pa.array(ops, pa.int8()), structs_of(before, kind), structs_of(after, kind), {})

    def _change(self, value: bytes) -> Change:
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
