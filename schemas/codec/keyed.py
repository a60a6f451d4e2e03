"""The envelopes `upsert` and `append`: a value is a row, of its key or without identity, whatever its encoding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.codec.results import Decoded, Flags, ReadStructs, RowErrors, StructReader, row_type, structs_at
from schemas.errors import Code, InputError
from schemas.records import NO_DATA, Op
from schemas.table import Column

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
        read = self.keys.read(keys)
        if self.empty_keys:
            return read
        errors = RowErrors(dict(read.errors))
        for row in np.flatnonzero(_flags(pc.equal(pc.binary_length(keys), 0))):
            errors.by_row[int(row)] = _without_key()
        return read._replace(errors=errors.by_row)

    def decode(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> Decoded:
        count, errors = len(values), RowErrors()
        own = self._keys(keys, errors)
        is_row = _flags(pc.greater(pc.binary_length(values), 0)) & ~errors.flags(count)
        rows = np.flatnonzero(is_row)
        read = self.rows.read(values if len(rows) == count else values.take(pa.array(rows)))
        errors.add_of(rows, read.errors)
        errors.add_of(rows, read.late)
        structs = structs_at(read.structs, rows, count)
        found = dict(zip((each.name for each in structs.type), structs.flatten(), strict=True))
        is_row &= structs.is_valid().to_numpy(zero_copy_only=False)
        if IS_DELETED in found:
            is_row &= ~_flags(found[IS_DELETED])
        by_name = dict(zip((each.name for each in self.key_columns), own.flatten(), strict=True))
        for column in self.columns:
            if column.name in by_name:
                wrong = is_row & _flags(pc.not_equal(found[column.in_records.name], by_name[column.name]))
                errors.add_all(np.flatnonzero(wrong), _other_key())
        return self._decoded(found, by_name, is_row, errors)

    def _keys(self, keys: pa.BinaryArray, errors: RowErrors) -> pa.StructArray:
        has_key = keys.is_valid().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(~has_key):
            errors.add(int(row), _without_key())
        rows = np.flatnonzero(has_key)
        read = self.decode_keys(keys if len(rows) == len(keys) else keys.take(pa.array(rows)))
        errors.add_of(rows, read.errors)
        errors.add_of(rows, read.late)
        return structs_at(read.structs, rows, len(keys))

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
            _structs(self.columns, before, ~is_row & ~is_wrong),
            _structs(self.columns, after, is_row),
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
        rows, count = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)), len(values)
        read = self.rows.read(values if len(rows) == count else values.take(pa.array(rows)))
        errors = RowErrors()
        errors.add_of(rows, read.errors)
        errors.add_of(rows, read.late)
        structs = structs_at(read.structs, rows, count)
        is_wrong = errors.flags(count)
        is_row = structs.is_valid().to_numpy(zero_copy_only=False) & ~is_wrong
        ops = np.where(is_row, np.int8(Op.INSERT), np.int8(NO_DATA))
        after = _structs(self.columns, structs.flatten(), is_row)
        return Decoded(pa.array(ops, mask=is_wrong), pa.nulls(count, after.type), after, errors.by_row)


def _structs(columns: tuple[Column, ...], arrays: list[pa.Array], is_there: Flags) -> pa.StructArray:
    mask = None if is_there.all() else pa.array(~is_there)
    return pa.StructArray.from_arrays(list(arrays), fields=list(row_type(columns)), mask=mask)


def _without_key() -> InputError:
    return InputError(Code.KEY_MISMATCH, found="a record without a key")


def _other_key() -> InputError:
    return InputError(Code.KEY_MISMATCH, found="a value whose key columns are not those of its key")


def _flags(found: pa.Array) -> Flags:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
