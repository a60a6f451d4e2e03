"""Routes of records to lanes: the one rule of the exchange and of lanes that read the topic themselves.

A record goes to the lane of its vnode. Where jobs read the upstream, it also goes to the lane of its partition, and
records from before the batch go to that lane alone. What has no vnode (a key that can't be read, a barrier's mark)
goes to lane 0; a key whose schema is not known goes to every lane: whose record it is, is not known either, and a lane
that has sent its part would never get it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.table import TableSchema
from state.values.plan import BatchPlan
from streaming.core.offset_ranges import readers
from streaming.source.raw.record_vnodes import Bools, Vnodes
from streaming.source.raw.records import Records

Numbers = npt.NDArray[np.int64]


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
