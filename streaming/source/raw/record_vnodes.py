"""The vnodes of raw records, from their keys alone.

A record's key holds the primary key, which holds the distribution key. So records can be brought to their lanes before
any value is read, and an invalid value is met by the lane that the record would be for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import InputError
from schemas.formats.protocol import Format
from schemas.table import TableSchema
from state.vnode import row_hashes
from streaming.source.raw.columnar_pieces import ColumnarPieces
from streaming.source.raw.framed_ids import NamedSchemas
from streaming.source.raw.records import Records

Bools = npt.NDArray[np.bool_]


class Vnodes(NamedTuple):
    """Of n records.

    `numbers` are null where a key can't be read, and where a record is marked as a barrier. `are_unknown`: the key
    names a schema that is not known, so any lane may be the one that the record is for.
    """

    numbers: pa.Int32Array
    are_unknown: Bools


@dataclass
class RecordVnodes:
    """Reads keys of one table and format. Rows without identity, and tables by partition, have partitions as vnodes."""

    format: Format
    table: TableSchema
    _pieces: ColumnarPieces = field(default_factory=ColumnarPieces)

    def __post_init__(self) -> None:
        table = self.table
        self._is_hashed = table.has_key and not table.by_partition
        self._key_columns = table.key_columns
        self._kind = pa.struct([(column.name, column.type.arrow) for column in self._key_columns])
        self._by_columns = self.format.key_reader(self._key_columns) if self._is_hashed else None
        self._rows = self.format.rows(table.columns, self._key_columns)

    def of(self, records: Records) -> Vnodes:
        """The vnodes of records. Raises nothing: what can't be read has none."""
        plain = ~records.marked.to_numpy(zero_copy_only=False)
        if not self._is_hashed:
            return Vnodes(pc.if_else(pa.array(plain), records.partitions, None), np.zeros_like(plain))
        are_unknown = self._unknown(records.keys) & plain
        read = plain & ~are_unknown & records.keys.is_valid().to_numpy(zero_copy_only=False)
        numbers = self._numbers(records.keys if read.all() else records.keys.filter(pa.array(read)))
        if not read.all():
            numbers = numbers.take(pa.array(np.cumsum(read) - 1, mask=~read))
        return Vnodes(numbers, are_unknown)

    def _unknown(self, keys: pa.BinaryArray) -> Bools:
        if not self.format.framed.key:
            return np.zeros(len(keys), np.bool_)
        return NamedSchemas.of(keys).outside({schema.id for schema in self.format.known.schemas})

    def _numbers(self, keys: pa.BinaryArray) -> pa.Int32Array:
        pieces = [
            *self._pieces.read(
                len(keys),
                lambda start, end: self._columnar(keys, start, end),
                lambda start, end: self._one_by_one(keys.slice(start, end - start)),
            )
        ]
        if not pieces:
            return pa.array([], pa.int32())
        rows = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        return self._hashed(rows)

    def _columnar(self, keys: pa.BinaryArray, start: int, end: int) -> pa.StructArray:
        if self._by_columns is None:
            return self._one_by_one(keys.slice(start, end - start))
        columns = self._by_columns(compact(keys, start, end))
        return pa.StructArray.from_arrays(list(columns), fields=list(self._kind))

    def _one_by_one(self, keys: pa.BinaryArray) -> pa.StructArray:
        found = [self._key(key) for key in keys.to_pylist()]
        absent = (None,) * len(self._key_columns)
        cells = zip(*(key or absent for key in found), strict=True)
        columns = [pa.array(each, kind.type) for each, kind in zip(cells, self._kind, strict=True)]
        mask = pa.array([key is None for key in found], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=list(self._kind), mask=mask)

    def _key(self, key: bytes) -> Sequence[object] | None:
        try:
            return self._rows.read_key(key)
        except InputError:
            return None

    def _hashed(self, rows: pa.StructArray) -> pa.Int32Array:
        table = self.table
        columns = [pc.struct_field(rows, name) for name in table.distribution_key]
        hashes = row_hashes(columns, [table.by_name[name] for name in table.distribution_key])
        numbers = (hashes % table.vnode_count).astype(np.int32)
        return pa.array(numbers, mask=~rows.is_valid().to_numpy(zero_copy_only=False))


def compact(column: pa.Array, start: int, end: int) -> pa.Array:
    """Some values of a column, copied unless that is all of them.

    It is no slice, whose offset every reader of buffers would have to heed.
    """
    if (start, end) == (0, len(column)):
        return column
    return column.take(pa.array(np.arange(start, end)))


@lru_cache(maxsize=1)
def vnodes_of(format_: Format, table: TableSchema) -> RecordVnodes:
    """The reader of a format and table; that of the last call is kept."""
    return RecordVnodes(format_, table)
