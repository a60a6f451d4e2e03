"""Arrangement backfill: the replica is read, vnode by vnode in key order.

A part is a vnode, a position a primary key. A pin names two versions of Delta tables, whose files are immutable, so
later changes of the replica make no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.position import Key
from schemas.table import TableSchema
from state.replica import Replica, ReplicaFiles
from state.storage import Storage
from state.values.pin import Pin
from state.values.plan import Slice
from state.values.progress import Progress
from streaming.core.planning import Amount, Cut
from streaming.core.visibility import covered
from streaming.scan.cutting import SliceCutter
from streaming.scan.protocol import LiveRows, PinnedScan, Scan, SliceReader
from streaming.scan.snapshot import FileOrder, SnapshotReader


@dataclass(frozen=True)
class PinnedArrangement(PinnedScan):
    """`files` are the pinned versions' files of some vnodes; `orders` are the file orders of the vnodes where known."""

    storage: Storage
    table: TableSchema
    files: ReplicaFiles
    orders: Mapping[int, FileOrder]

    def reader(self, parts: frozenset[int], columns: Sequence[str]) -> SliceReader:
        reader = SnapshotReader(self.storage, self.table, self.files.of_vnodes(parts), self.orders)
        overlay = reader.overlay(parts, columns)

        def read(item: Slice) -> Iterator[pa.Table]:
            return reader.read(item, columns, overlay)

        return read

    def parts_of(self, changes: LiveRows) -> npt.NDArray[np.int32]:
        return changes.vnodes

    def covered(self, changes: LiveRows, progress: Mapping[int, Progress]) -> npt.NDArray[np.bool_]:
        return covered(changes.vnodes, changes.keys, progress, self.table.vnode_count)


class Arrangement(Scan):
    """The scan of the replica. Keys of base files are cached from batch to batch."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._pin: Pin | None = None
        self._cutter: SliceCutter | None = None

    def cut(self, pin: Pin, part: int, after: Key | None, limit: Amount) -> Cut:
        return self._cutter_at(pin).cut(part, after, limit)

    def _cutter_at(self, pin: Pin) -> SliceCutter:
        if self._cutter is not None and pin == self._pin:
            return self._cutter
        replica = self._replica
        reader = SnapshotReader(replica.storage, replica.table, replica.files(pin.replica))
        if self._cutter is None:
            self._cutter = SliceCutter(reader)
        self._cutter.use(reader)
        self._pin = pin
        return self._cutter

    def pinned(self, pin: Pin, parts: frozenset[int]) -> PinnedArrangement:
        replica = self._replica
        files = replica.files(pin.replica).of_vnodes(parts) if parts else ReplicaFiles(0, {}, ())
        orders = {} if self._cutter is None else self._cutter.orders(files)
        return PinnedArrangement(replica.storage, replica.table, files, orders)
