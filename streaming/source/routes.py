"""Routes of raw records to lanes: the one rule of the exchange and of lanes that read the topic themselves.

A record's key holds the primary key, which holds the distribution key, and so gives the vnode before any value is read:
an invalid value is met by the lane that the record would be for.

A record goes to the lane of its vnode. Where jobs read the upstream, it also goes to the lane of its partition, and
records from before the batch go to that lane alone. What has no vnode (a key that can't be read, a barrier's mark)
goes to lane 0; a key whose schema is not known goes to every lane: whose record it is, is not known either, and a lane
that has sent its part would never get it.
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
from state.values.plan import BatchPlan
from state.vnode import row_hashes
from streaming.core.offset_ranges import readers
from streaming.source.records import Bools, NamedSchemas, Records, read_where

Numbers = npt.NDArray[np.int64]


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
        return Vnodes(read_where(read, self._numbers, records.keys), are_unknown)

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


@dataclass(frozen=True)
class Routes:
    """Routes to `lanes` lanes by `vnodes` vnodes.

    `partitions`, if not 0, are those of the upstream, and jobs read it. The batch's own records begin at the offsets
    `first`.
    """

    lanes: int
    vnodes: int
    partitions: int = 0
    first: tuple[int, ...] = ()

    @classmethod
    def of(cls, plan: BatchPlan, table: TableSchema) -> Routes:
        """The routes of a batch whose records are exchanged or read by the lanes themselves."""
        count = len(plan.first_offsets)
        partitions = count if readers(plan) else 0
        vnodes = table.vnode_count if table.has_key and not table.by_partition else count
        return cls(plan.lanes, vnodes, partitions, tuple(plan.first_offsets))

    def placed(self, records: Records, vnodes: Vnodes) -> Placed:
        """The lanes of records."""
        numbers = vnodes.numbers.fill_null(-1).to_numpy().astype(np.int64)
        has_vnode = numbers >= 0
        own = np.where(has_vnode, numbers * self.lanes // self.vnodes, 0)
        if not self.partitions:
            return Placed(own, own, vnodes.are_unknown)
        partitions = records.partitions.to_numpy()
        of_partition = np.where(has_vnode, partitions.astype(np.int64) * self.lanes // self.partitions, own)
        is_early = records.offsets.to_numpy() < np.asarray(self.first)[partitions]
        return Placed(np.where(is_early, of_partition, own), of_partition, vnodes.are_unknown)


@dataclass(frozen=True)
class Placed:
    """Routes of n records: the lane of the vnode, that of the partition, and True if all lanes get it."""

    own: Numbers
    of_partition: Numbers
    everywhere: Bools

    def among(self, lane: int) -> Bools:
        """Flags: True for a record that the lane gets."""
        found: Bools = (self.own == lane) | (self.of_partition == lane) | self.everywhere
        return found
