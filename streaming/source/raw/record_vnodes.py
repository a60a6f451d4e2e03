"""The vnodes of raw records, from their keys alone.

A record's key holds the primary key, which holds the distribution key. So records can be brought to their lanes before
any value is read, and an invalid value is met by the lane that the record would be for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.codec.results import null_where, row_type, with_names
from schemas.formats.protocol import UpstreamFormat
from schemas.table import TableSchema
from state.vnode import row_hashes
from streaming.source.raw.framed_ids import NamedSchemas
from streaming.source.raw.records import Records

Bools = npt.NDArray[np.bool_]


class Vnodes(NamedTuple):
    """The vnodes of n records.

    `numbers` are null where a key can't be read, and where a record is marked as a barrier. `are_unknown`: the key
    names a schema that is not known, so any lane may be the one that the record is for.
    """

    numbers: pa.Int32Array
    are_unknown: Bools


@dataclass
class RecordVnodes:
    """Reads keys of one table and format. Rows without identity, and tables by partition, have partitions as vnodes."""

    format: UpstreamFormat
    table: TableSchema

    def __post_init__(self) -> None:
        table = self.table
        self._is_hashed = table.has_key and not table.by_partition
        self._kind = row_type(table.key_columns)
        self._decoder = self.format.decoder(table.columns, table.key_columns)

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
        read = self._decoder.decode_keys(keys)
        is_wrong = np.zeros(len(keys), np.bool_)
        is_wrong[[*read.errors, *read.late]] = True
        return self._hashed(null_where(with_names(read.structs, self._kind), is_wrong))

    def _hashed(self, rows: pa.StructArray) -> pa.Int32Array:
        table = self.table
        columns = [pc.struct_field(rows, name) for name in table.distribution_key]
        hashes = row_hashes(columns, [table.by_name[name] for name in table.distribution_key])
        numbers = (hashes % table.vnode_count).astype(np.int32)
        return pa.array(numbers, mask=~rows.is_valid().to_numpy(zero_copy_only=False))


@lru_cache(maxsize=1)
def vnodes_of(format_: UpstreamFormat, table: TableSchema) -> RecordVnodes:
    """The reader of a format and table; that of the last call is kept."""
    return RecordVnodes(format_, table)
