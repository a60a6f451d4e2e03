"""Scans under test, each over a table that changes from barrier to barrier: real ones, and one in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.kinds.kinds import ReplicaScan, ScanConfig
from schemas.position import Key
from schemas.records import Op, Row
from state.columns import BEFORE_HASH, EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.maintenance.compaction import compact_part, parts_of
from state.maintenance.merge import Merge, merge_files
from state.replica import Replica, write_log_file
from state.storage import Storage
from state.values.pin import Pin, ReplicaVersion
from state.values.plan import Slice
from state.values.progress import NotStarted, Progress, covers
from streaming.core.planning import Amount, Cut
from streaming.scan.kinds import Arrangement
from streaming.scan.protocol import LiveRows, PinnedScan, Scan, SliceReader
from tests.contracts.by_partition import ByPartition, ScanByPartition
from tests.kit.tables import table, vnode_of

TABLE = table({"id": "int", "n": "int", "v": "string"}, vnode_count=4)
ROW_BYTES = 20
Changes = Mapping[int, str | None]
"""By id the new value of `v`, None to delete the row. Deletes of absent rows are left out."""


@dataclass(frozen=True)
class Live:
    """Changes of keys, as a lane has them."""

    ids: Sequence[int]

    @property
    def vnodes(self) -> npt.NDArray[np.int32]:
        return np.array([vnode_of(TABLE, (id_,)) for id_ in self.ids], dtype=np.int32)

    @property
    def keys(self) -> Sequence[pa.Array]:
        return [pa.array(self.ids, pa.int32())]

    @property
    def partitions(self) -> npt.NDArray[np.int32]:
        return np.zeros(len(self.ids), dtype=np.int32)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        return np.arange(len(self.ids), dtype=np.int64)


class TestScan(ABC):
    """A table that starts empty, and a scan of it. `again` is the scan as another process would have it."""

    __test__ = False
    config: ScanConfig = ReplicaScan()

    def __init__(self, folder: Path) -> None:
        self.rows: dict[Key, Row] = {}
        self.epoch = 0

    @property
    def parts(self) -> range:
        return range(self.config.part_count(TABLE.vnode_count, 2))

    def apply(self, changes: Changes) -> None:
        """The changes of one interval."""
        self.epoch += 1
        legal = [(id_, value) for id_, value in changes.items() if value is not None or (id_,) in self.rows]
        for id_, value in legal:
            self.rows.pop((id_,), None)
            if value is not None:
                self.rows[id_,] = (id_, self.epoch, value)
        self._commit(legal)

    @abstractmethod
    def _commit(self, changes: Sequence[tuple[int, str | None]]) -> None: ...

    @abstractmethod
    def tidy(self) -> None:
        """Everything that happens to stored rows beside the batches."""

    @abstractmethod
    def pin(self) -> Pin:
        """As the planner would make it now."""

    @abstractmethod
    def scan(self) -> Scan:
        """As a service has it that was started just now."""


class OnReplica(TestScan):
    """On Delta tables in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._storage, self._offset = Storage(str(folder / "state")), 0
        self.replica = Replica(self._storage, TABLE)

    def _commit(self, changes: Sequence[tuple[int, str | None]]) -> None:
        rows = sorted((self._logged(id_, value) for id_, value in changes), key=lambda row: row[VNODE])
        data = pa.Table.from_pylist(rows, schema=log_schema(TABLE))
        files = [write_log_file(self._storage, data, f"log-{self.epoch}")] if rows else []
        self.replica.append(files, self.epoch)

    def _logged(self, id_: int, value: str | None) -> dict[str, Any]:
        self._offset += 1
        place = {PARTITION: 0, OFFSET: self._offset, EPOCH: self.epoch, VNODE: vnode_of(TABLE, (id_,))}
        op = Op.DELETE if value is None else Op.INSERT
        return {**place, OP: op, BEFORE_HASH: None, "id": id_, "n": self.epoch, "v": value}

    def tidy(self) -> None:
        """Even epochs compact the log into the base, odd ones merge its files."""
        replica = self.replica
        files = replica.files(replica.pin())
        if self.epoch % 2 and len(files.log) > 1:
            merged = merge_files(Merge(self._storage, TABLE, files.log))
            replica.replace_log_files(merged.files, merged.into)
        elif files.log:
            result = reduce(or_, map(compact_part, parts_of(self._storage, TABLE, files)))
            replica.commit_compaction(result.added, result.removed, self.epoch)
            replica.trim()

    def pin(self) -> Pin:
        return Pin(self.replica.pin(), (self._offset,))

    def scan(self) -> Scan:
        return Arrangement(Replica(self._storage, TABLE))


class OnReplicaByPartition(OnReplica):
    config = ByPartition()

    def scan(self) -> Scan:
        return ScanByPartition(ByPartition(), Replica(self._storage, TABLE))


class InMemory(TestScan):
    """Whole tables as of each barrier."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.versions: list[dict[Key, Row]] = [{}]

    def _commit(self, changes: Sequence[tuple[int, str | None]]) -> None:
        self.versions.append(copy(self.rows))

    def tidy(self) -> None:
        """Nothing is stored twice."""

    def pin(self) -> Pin:
        return Pin(ReplicaVersion(0, self.epoch, 0), ())

    def scan(self) -> Scan:
        return MemoryScan(self.versions)


@dataclass
class MemoryScan(Scan):
    """A part is a vnode, a position a primary key."""

    versions: Sequence[Mapping[Key, Row]]

    def cut(self, pin: Pin, part: int, after: Key | None, limit: Amount) -> Cut:
        behind = [key for key in self._keys(pin, part) if after is None or key > after]
        count = max(min(limit.rows, limit.size // ROW_BYTES), 1)
        upto = None if count >= len(behind) else behind[count - 1]
        count = min(count, len(behind))
        return Cut(upto, count, count * ROW_BYTES)

    def _keys(self, pin: Pin, part: int) -> list[Key]:
        return sorted(key for key in self.versions[pin.replica.log] if vnode_of(TABLE, key) == part)

    def pinned(self, pin: Pin, parts: frozenset[int]) -> PinnedScan:
        rows = self.versions[pin.replica.log]
        return PinnedMemory({part: [rows[key] for key in self._keys(pin, part)] for part in parts})


@dataclass
class PinnedMemory(PinnedScan):
    rows: Mapping[int, Sequence[Row]] = field(default_factory=dict)

    def reader(self, parts: frozenset[int], columns: Sequence[str]) -> SliceReader:
        schema = pa.schema([(name, TABLE.by_name[name].type.arrow) for name in columns])

        def read(item: Slice) -> Iterator[pa.Table]:
            chosen = [row for row in self.rows[item.part] if _lies_in(TABLE.key_of(row), item)]
            named = [dict(zip(TABLE.column_names, row, strict=True)) for row in chosen]
            yield pa.Table.from_pylist(named, schema=schema)

        return read

    def parts_of(self, changes: LiveRows) -> npt.NDArray[np.int32]:
        return changes.vnodes

    def covered(self, changes: LiveRows, progress: Mapping[int, Progress]) -> npt.NDArray[np.bool_]:
        keys = zip(*(column.to_pylist() for column in changes.keys), strict=True)
        known = (progress.get(int(vnode), NotStarted()) for vnode in changes.vnodes)
        return np.array([covers(state, key) for state, key in zip(known, keys, strict=True)], dtype=np.bool_)


def _lies_in(key: Key, item: Slice) -> bool:
    return (item.after is None or key > item.after) and (item.upto is None or key <= item.upto)
