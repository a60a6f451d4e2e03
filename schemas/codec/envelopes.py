"""The envelopes `change`, `upsert` and `append`.

Of `change` a value has full images, in Avro binary without a schema in front; else it is a row, of its key or without
identity, whatever its encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columns.records import read_change_keys, read_changes
from schemas.avro.fallback import ChangeRecords, KeyRecords
from schemas.codec.results import (
    Decoded,
    Flags,
    ReadStructs,
    RowErrors,
    StructReader,
    fields_of,
    flags_of,
    read_keys,
    read_marked,
    read_where,
    replaced,
    row_type,
    rows_of,
)
from schemas.errors import Code, InputError
from schemas.records import NO_DATA, Change, Op, Row
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
        structs, marked = read_change_keys(self.key_columns, keys)
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


IS_DELETED = "_bf_deleted"
"""The field of a row's struct that says that there is no such row; false or null where there is."""


def upsert_type(columns: tuple[Column, ...], *, has_deletes: bool) -> pa.StructType:
    """The struct that an encoding reads of a value; with `has_deletes` a boolean comes behind the columns."""
    kind = row_type(columns)
    return kind if not has_deletes else pa.struct([*kind, pa.field(IS_DELETED, pa.bool_())])


@dataclass(frozen=True)
class UpsertDecoder:
    """See `schemas.codec.results.Decoder`. The key columns are those of the key; what a row has of them is equal.

    `keys` reads the key columns, `rows` structs of `upsert_type`. A null value, an empty one, a null in a frame and a
    row that says that it is deleted are DELETEs. `empty_keys`: a key of no bytes is one.
    """

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    keys: StructReader
    rows: StructReader
    empty_keys: bool = False

    def decode_keys(self, keys: pa.BinaryArray) -> ReadStructs:
        return self.keys.read(keys)

    def decode(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> Decoded:
        count, errors = len(values), RowErrors()
        own = fields_of(
            read_keys(self.keys, keys, np.ones(count, np.bool_), errors, may_be_empty=self.empty_keys)
        )
        is_row = flags_of(pc.greater(pc.binary_length(values), 0)) & ~errors.flags(count)
        structs = read_where(self.rows, values, is_row, errors)
        found, is_row = fields_of(structs), is_row & flags_of(structs.is_valid())
        if IS_DELETED in found:
            is_row &= ~flags_of(found[IS_DELETED])
        by_name = dict(zip((each.name for each in self.key_columns), own.values(), strict=True))
        for column in self.columns:
            if (key := by_name.get(column.name)) is not None:
                is_other = flags_of(pc.not_equal(found[column.in_records.name], key))
                text = "a value whose key columns are not those of its key"
                errors.add_where(is_row & is_other, InputError(Code.KEY_MISMATCH, found=text))
        return self._decoded(found, by_name, is_row, errors)

    def _decoded(
        self, found: dict[str, pa.Array], keys: dict[str, pa.Array], is_row: Flags, errors: RowErrors
    ) -> Decoded:
        is_wrong = errors.flags(len(is_row))
        is_row = is_row & ~is_wrong
        ops = np.where(is_row, np.int8(Op.INSERT), np.int8(Op.DELETE))
        after = [
            keys[each.name] if each.name in keys else found[each.in_records.name] for each in self.columns
        ]
        nothing = [pa.nulls(len(ops), each.type.arrow) for each in self.columns]
        before = [keys.get(each.name, null) for each, null in zip(self.columns, nothing, strict=True)]
        return Decoded(
            pa.array(ops, mask=is_wrong),
            rows_of(self.columns, before, ~is_row & ~is_wrong),
            rows_of(self.columns, after, is_row),
            errors.by_row,
        )


@dataclass(frozen=True)
class AppendDecoder:
    """See `schemas.codec.results.Decoder`. Keys are not read: every key, and none, is the empty one."""

    columns: tuple[Column, ...]
    rows: StructReader

    def decode_keys(self, keys: pa.BinaryArray) -> ReadStructs:
        return ReadStructs.of(pa.array([{}] * len(keys), pa.struct([])))

    def decode(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> Decoded:
        """A null value is no row, and a null in a frame."""
        count, errors = len(values), RowErrors()
        structs = read_where(self.rows, values, flags_of(values.is_valid()), errors)
        is_wrong = errors.flags(count)
        is_row = flags_of(structs.is_valid()) & ~is_wrong
        ops = np.where(is_row, np.int8(Op.INSERT), np.int8(NO_DATA))
        after = rows_of(self.columns, structs.flatten(), is_row)
        return Decoded(pa.array(ops, mask=is_wrong), pa.nulls(count, after.type), after, errors.by_row)
