"""Decodes raw records to the columns of `streaming.source.decoded`, with an error for each record that is invalid.

Records are read by whole columns as far as their format can (`Format.column_reader`), in pieces if need be
(`streaming.source.raw.columnar_pieces`), and one by one by the reference decoder (`Format.rows`) where it can't. The
reference decoder has the last word on every record that columns refuse, and the words for its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import Code, InputError
from schemas.formats.by_columns.log_positions import position_column
from schemas.formats.protocol import Format, Images
from schemas.records import NO_DATA, Row, UpstreamRecord
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, OFFSET, OP, PARTITION, TRANSACTION, VNODE
from state.vnode import row_hashes
from streaming.source.decoded import (
    AFTER,
    AWAITED,
    AWAITS,
    BEFORE,
    ERROR,
    ERROR_TYPE,
    KEY,
    MARKED,
    POSITION,
    SIZE,
    UNCHANGED,
    decoded_schema_of,
)
from streaming.source.raw.columnar_pieces import ColumnarPieces
from streaming.source.raw.framed_ids import NamedSchemas
from streaming.source.raw.record_vnodes import compact, vnodes_of
from streaming.source.raw.records import Records

Bools = npt.NDArray[np.bool_]
_CONTENT = (OP, BEFORE, AFTER, UNCHANGED, POSITION, TRANSACTION, ERROR)
"""Columns that follow from key and value."""


@dataclass
class RecordDecoder:
    """Decodes records of one table and format. For one thread."""

    format: Format
    table: TableSchema
    _pieces: ColumnarPieces = field(default_factory=ColumnarPieces)

    def __post_init__(self) -> None:
        table, format_ = self.table, self.format
        self.schema = decoded_schema_of(format_, table)
        self._content = pa.schema([each for each in self.schema if each.name in _CONTENT])
        self._rows = format_.rows(table.columns, table.key_columns)
        self._by_columns = format_.column_reader(table.columns, table.key_columns)

    def decoded(self, records: Records, vnodes: pa.Int32Array) -> pa.RecordBatch:
        """The records in their order, in the columns of `schema`. `vnodes` as in `record_vnodes.Vnodes`."""
        marked, count = records.marked.to_numpy(zero_copy_only=False), len(records.marked)
        awaited = self._awaited(records)
        awaits = awaited.is_valid().to_numpy(zero_copy_only=False)
        own = {
            PARTITION: records.partitions,
            OFFSET: records.offsets,
            KEY: records.keys,
            SIZE: records.sizes,
            VNODE: vnodes,
            AWAITED: awaited,
        }
        content = self._read_plain(records, ~(marked | awaits))
        own |= dict(zip(self._content.names, content.columns, strict=True))
        if marked.any() or awaits.any():
            others = pa.array(np.where(marked, np.int8(MARKED), np.int8(AWAITS)))
            own[OP] = pc.if_else(pa.array(marked | awaits), others, own[OP])
        own[BEFORE_HASH] = self._before_hashes(own[BEFORE], count)
        return pa.RecordBatch.from_arrays([own[each.name] for each in self.schema], schema=self.schema)

    def _awaited(self, records: Records) -> pa.ListArray:
        """The ids that the registry has not been asked for, of each record that has some; else null."""
        framed, count = self.format.framed, len(records.keys)
        named = [
            NamedSchemas.of(half)
            for half, is_framed in ((records.keys, framed.key), (records.values, framed.value))
            if is_framed
        ]
        unanswered = self.format.known.unanswered(schema_id for each in named for schema_id in each.distinct)
        kind = self.schema.field(AWAITED).type
        if not unanswered:
            return pa.nulls(count, kind)
        ids = np.stack([np.where(each.within(unanswered), each.ids, -1) for each in named], axis=1)
        lists = [[int(each) for each in row if each >= 0] or None for row in ids]
        return pa.array(lists, kind)

    def _read_plain(self, records: Records, plain: Bools) -> pa.RecordBatch:
        """The content of the records that are `plain`, with nulls at the others."""
        if plain.all():
            return self._read(records.keys, records.values)
        wanted = pa.array(plain)
        found = self._read(records.keys.filter(wanted), records.values.filter(wanted))
        return found.take(pa.array(np.cumsum(plain) - 1, mask=~plain))

    def _read(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.RecordBatch:
        pieces = list(
            self._pieces.read(
                len(keys),
                lambda start, end: self._columnar(compact(keys, start, end), compact(values, start, end)),
                lambda start, end: self._one_by_one(
                    keys.slice(start, end - start), values.slice(start, end - start)
                ),
            )
        )
        if not pieces:
            return _empty(self._content)
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _columnar(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.RecordBatch:
        """Raises: OddRecordError."""
        if self._by_columns is None:
            return self._one_by_one(keys, values)
        found = self._by_columns(keys, values)
        columns = {
            OP: pa.array(found.ops),
            BEFORE: found.before,
            AFTER: found.after,
            UNCHANGED: found.unchanged,
            POSITION: found.positions,
            TRANSACTION: found.transactions,
            ERROR: pa.nulls(len(keys), ERROR_TYPE),
        }
        arrays = [_or_nulls(columns[each.name], each.type, len(keys)) for each in self._content]
        return pa.RecordBatch.from_arrays(arrays, schema=self._content)

    def _one_by_one(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.RecordBatch:
        pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
        found = [self._record(key, value) for key, value in pairs]
        records = [each if isinstance(each, UpstreamRecord) else _NOTHING for each in found]
        changes = [each.change for each in records]
        images = self._content.field(AFTER).type
        columns = {
            OP: pa.array([_op(each) for each in found], pa.int8()),
            BEFORE: _images([each.before if each else None for each in changes], images),
            AFTER: _images([each.after if each else None for each in changes], images),
            UNCHANGED: pa.array([each.unchanged for each in records], pa.list_(pa.int32())),
            POSITION: position_column(each.position for each in records),
            TRANSACTION: pa.array([each.transaction for each in records], pa.int64()),
            ERROR: _structs([_error(each) for each in found], ERROR_TYPE),
        }
        return pa.RecordBatch.from_arrays(
            [columns[each.name] for each in self._content], schema=self._content
        )

    def _record(self, key: bytes | None, value: bytes | None) -> UpstreamRecord | InputError:
        if value is None and not self.format.may_be_null:
            return InputError(Code.TOMBSTONE_UNSUPPORTED, found="a record without a value")
        try:
            return self._rows.read_record(key, value)
        except InputError as error:
            return error

    def _before_hashes(self, before: pa.StructArray, count: int) -> pa.Int64Array:
        if self.format.images is not Images.FULL:
            return pa.nulls(count, pa.int64())
        columns = [pc.struct_field(before, name) for name in self.table.column_names]
        hashes = row_hashes(columns, self.table.columns)
        return pa.array(hashes, mask=~before.is_valid().to_numpy(zero_copy_only=False))


_NOTHING = UpstreamRecord(None)


def _op(found: UpstreamRecord | InputError) -> int | None:
    if isinstance(found, InputError):
        return None
    return NO_DATA if found.change is None else found.change.op.value


def _error(found: UpstreamRecord | InputError) -> tuple[str, str, str] | None:
    if isinstance(found, InputError):
        return found.code.value, found.found, found.expected
    return None


def _or_nulls(column: pa.Array | None, kind: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, kind) if column is None else column


def _images(rows: Sequence[Row | None], kind: pa.StructType) -> pa.StructArray:
    absent = (None,) * kind.num_fields
    cells = zip(*(row or absent for row in rows), strict=True)
    columns = [pa.array(column, each.type) for column, each in zip(cells, kind, strict=True)]
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _structs(tuples: Sequence[Sequence[object] | None], kind: pa.StructType) -> pa.StructArray:
    names = [each.name for each in kind]
    return pa.array([each and dict(zip(names, each, strict=True)) for each in tuples], kind)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)


@lru_cache(maxsize=1)
def decoder_of(format_: Format, table: TableSchema) -> RecordDecoder:
    """The decoder of a format and table; that of the last call is kept."""
    return RecordDecoder(format_, table)


def decoded(records: Records, format_: Format, table: TableSchema) -> pa.RecordBatch:
    """The records in their order, decoded."""
    return decoder_of(format_, table).decoded(records, vnodes_of(format_, table).of(records).numbers)
