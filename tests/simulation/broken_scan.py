"""A scan that goes by other vnodes than live changes do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from schemas.job import JobDefinition
from state.replica import Replica
from state.values.aligned import Pin
from state.values.plan import Slice
from streaming.protocol.batches import Batches
from streaming.scan.kinds import Arrangement, PinnedArrangement, Scan, Scans, SliceReader
from tests.kit.tables import vnode_of


class _ReadsByHash(PinnedArrangement):
    def reader(self, parts: frozenset[int], columns: Sequence[str]) -> SliceReader:
        every, count = range(self.table.vnode_count), self.table.vnode_count
        read = super().reader(frozenset(every), columns)
        hashed = replace(self.table, distribution_key=self.table.primary_key, vnode_count=count)

        def of_hash(item: Slice) -> Iterator[pa.Table]:
            for vnode in every:
                for rows in read(replace(item, part=vnode)):
                    keys = zip(*(rows[name].to_pylist() for name in self.table.primary_key), strict=True)
                    yield rows.filter(
                        pa.array([vnode_of(hashed, key) == item.part for key in keys], pa.bool_())
                    )

        return of_hash


class _SlicesByHash(Arrangement):
    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._files = replica

    def pinned(self, pin: Pin, parts: frozenset[int]) -> PinnedArrangement:
        replica = self._files
        return _ReadsByHash(replica.storage, replica.table, replica.files(pin.replica), orders={})


class _ScansByHash(Scans):
    def scan_for(self, job: JobDefinition) -> Scan:
        if job.is_coupled and job.scan not in self._scans:
            self._scans[job.scan] = _SlicesByHash(self._sources.replica)
        return super().scan_for(job)


class ReadsByHash(Batches):
    """Slices have the rows of a vnode by hash, live changes those of a vnode by partition."""

    scans_type = _ScansByHash
