"""A scan that nobody foresaw: it reads whole vnodes, one after another; a part is an output partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from schemas.kinds.kinds import ScanConfig
from schemas.position import Key
from schemas.table import Column, TableSchema
from state.replica import Replica
from state.values.pin import Pin
from state.values.plan import Slice
from state.values.progress import Progress
from streaming.core.planning import Amount, Cut
from streaming.core.visibility import covered
from streaming.scan.kinds import Arrangement
from streaming.scan.protocol import LiveRows, PinnedScan, Scan, SliceReader
from tests.kit.tables import table

ALL = Amount(1 << 40, 1 << 60)


class ByPartition(ScanConfig):
    """A position is the last vnode that was read, as text: nothing that a key of the table could be."""

    kind: Literal["by-partition"] = "by-partition"
    parts: int = 2

    def part_count(self, vnode_count: int, output_partitions: int) -> int:
        return self.parts

    def position_columns(self, table_: TableSchema) -> tuple[Column, ...]:
        return table({"vnode": "string"}, key=["vnode"]).key_columns


class PinnedByPartition(PinnedScan):
    def __init__(self, whole: PinnedScan, vnode_count: int, parts: int) -> None:
        self.whole, self.vnode_count, self.parts = whole, vnode_count, parts

    def reader(self, parts: frozenset[int], columns: Sequence[str]) -> SliceReader:
        read_vnode = self.whole.reader(frozenset(range(self.vnode_count)), columns)

        def read(item: Slice) -> Iterator[pa.Table]:
            for vnode in vnodes_of(item.part, item.after, self.vnode_count, self.parts):
                if item.upto is None or text(vnode) <= item.upto[0]:
                    yield from read_vnode(Slice(vnode, None, None))

        return read

    def parts_of(self, changes: LiveRows) -> Any:
        return changes.vnodes * self.parts // self.vnode_count

    def covered(self, changes: LiveRows, progress: Mapping[int, Progress]) -> Any:
        places = pa.array([text(vnode) for vnode in changes.vnodes], pa.string())
        return covered(self.parts_of(changes), [places], progress, self.parts)


class ScanByPartition(Scan):
    def __init__(self, config: ByPartition, replica: Replica) -> None:
        self.parts, self.vnode_count = config.parts, replica.table.vnode_count
        self.replica = Arrangement(replica)

    def cut(self, pin: Pin, part: int, after: Key | None, limit: Amount) -> Cut:
        taken, left = Amount(0, 0), vnodes_of(part, after, self.vnode_count, self.parts)
        for vnode in left[:-1]:
            taken += self.replica.cut(pin, vnode, None, ALL).amount
            if taken.rows >= limit.rows:
                return Cut((text(vnode),), taken.rows, taken.size)
        taken += self.replica.cut(pin, left[-1], None, ALL).amount
        return Cut(None, taken.rows, taken.size)

    def pinned(self, pin: Pin, parts: frozenset[int]) -> PinnedScan:
        every = frozenset(range(self.vnode_count))
        return PinnedByPartition(self.replica.pinned(pin, every), self.vnode_count, self.parts)


def vnodes_of(part: int, after: Key | None, vnode_count: int, parts: int) -> list[int]:
    """Those of a part that lie behind a position."""
    behind = "" if after is None else after[0]
    return [
        vnode for vnode in range(vnode_count) if vnode * parts // vnode_count == part and text(vnode) > behind
    ]


def text(vnode: int) -> str:
    """In the order of vnodes."""
    return f"{vnode:05}"
