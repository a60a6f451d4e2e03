"""The upstream folded into a table, one interval after another, and what an interval did to it.

Kept for each live key: its row as bytes, vnode, order and home partition. Kept for each key that no
snapshot read has reached yet: an entry in a heap per vnode, so that the keys a position has passed since
the last barrier come out in O(log n) each; deleted keys leave the heap lazily. Kept for the current
interval only: each changed key's row at the barrier before, and its changes in order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from schemas.error_table import expectation
from schemas.errors import Code
from schemas.position import Key
from schemas.records import Row
from schemas.table import TableSchema
from streaming.reading.records.forms import RowImages
from streaming.reading.values.avro_bytes import RowCodec
from streaming.verify.findings import Findings, LawFinding, Side
from streaming.verify.history import PartitionHistory, TopicEntry
from streaming.verify.positions import Positions, Standing
from streaming.verify.records.keys import KeySpace
from streaming.verify.records.rows import Halves, differing

_WORTH_THINNING = 64
NO_HOME = -1
Rows = Iterable[tuple[bytes, bytes]]
"""Keys and rows in canonical form."""


@dataclass(frozen=True)
class InitialTable:
    """The table that an upstream's changes begin from, where it is not an empty one.

    `offsets[p]` is the first record of upstream partition p that counts; `rows` are the table's as of these offsets.
    They have the declared columns, in their order and Arrow types, and are read once.
    """

    offsets: tuple[int, ...]
    rows: Iterable[pa.Table]

    def encoded(self, table: TableSchema) -> Iterator[tuple[bytes, bytes]]:
        """Each key with its row, in canonical form."""
        whole, keys = RowCodec(table.columns), RowCodec(table.key_columns)
        for row in self.decoded(table):
            yield keys.row_bytes(table.key_of(row)), whole.row_bytes(row)

    def decoded(self, table: TableSchema) -> Iterator[Row]:
        """Each row, with the values of all declared columns."""
        for piece in self.rows:
            yield from zip(*(piece[name].to_pylist() for name in table.column_names), strict=True)


@dataclass(slots=True)
class LiveKey:
    """A key of the upstream; `row` None only while a change is being applied.

    `home` is the partition of its changes, `NO_HOME` while it has none; `moves` counts the others before.
    """

    key: bytes
    order: Key
    vnode: int
    home: int
    row: bytes | None = None
    moves: int = 0


@dataclass(slots=True)
class ChangedKey:
    """The changes of one key in the current interval."""

    live: LiveKey
    row_before: bytes | None
    changes: list[Halves] = field(default_factory=list)
    needless: int = 0
    """Deletes of it while it was absent, in an upstream whose deletes do not say what was there."""


class UpstreamFold:
    """U(b). Call `apply` for every change of an interval, judge it, then `settle` before the next one.

    Of an upstream whose changes have no rows before it is the fold of what they amount to. Where vnodes are the
    upstream's partitions, each partition is a table of its own, whose keys the others are not to have.
    """

    def __init__(
        self,
        table: TableSchema,
        keys: KeySpace,
        positions: Positions,
        findings: Findings,
        rows_before: RowImages = RowImages.FULL,
    ) -> None:
        self.recording = False
        """True if `changed` is kept: from the job's start on. Before that, only the table counts."""
        self.moves = 0
        """The times that a key may go on in another partition: one for each rise."""
        self.changed: list[dict[bytes, ChangedKey]] = [{} for _ in range(keys.partitions)]
        self._apart = int(keys.is_by_partition)
        tables = keys.vnode_count if self._apart else 1
        self._live: list[dict[bytes, LiveKey]] = [{} for _ in range(tables)]
        self._unread: list[list[tuple[Key, bytes]]] = [[] for _ in range(keys.vnode_count)]
        self._stale = [0] * keys.vnode_count
        self._keys, self._positions, self._findings = keys, positions, findings
        self._table, self._rows_before = table, rows_before
        self._rows = RowCodec(table.columns)

    def __len__(self) -> int:
        return sum(map(len, self._live))

    def begin(self, rows: Rows) -> None:
        """Take the table that the changes begin from, before all else."""
        for key, row in rows:
            values = self._keys.values(key)
            live = LiveKey(key, values, self._keys.vnode_of(values, NO_HOME), NO_HOME)
            self._store(live, None, row)

    def apply(self, partition: PartitionHistory, entry: TopicEntry) -> None:
        """Fold one change; what the producer may not do is a finding, and the change counts all the same.

        Raises: InputError for a record that is no change of this table.
        """
        change = entry.change
        if change is None or change.key is None:
            raise entry.no_change(partition.at(entry.offset))
        live = self._live_key(partition, change.key)
        present = live.row
        _, before, after = change
        if self._rows_before is RowImages.NONE:
            before = present
            if before is after is None:
                if self.recording:
                    self._changed(live).needless += 1
                return  # a delete of an absent key is nothing
        if before != present:
            self._check_before(partition, entry, live, before)
        if after is not None and entry.has_other_key:
            self._object_to_key(partition, entry, live)
        if live.home == NO_HOME:
            live.home = partition.partition
        elif live.home != partition.partition and live.moves < self.moves:
            live.home, live.moves = partition.partition, live.moves + 1
        if live.home != partition.partition:
            self._object_to_home(partition, entry, live, live.home)
        elif self._apart and present is None:
            self._check_others(partition, entry, live)
        if self.recording:
            self._changed(live).changes.append((before, after))
        self._store(live, present, after)

    def _changed(self, live: LiveKey) -> ChangedKey:
        """The changes of a key in the interval so far; to be called before its next one is stored."""
        changed = self.changed[self._keys.partition_of(live.vnode)]
        record = changed.get(live.key)
        if record is None:
            record = changed[live.key] = ChangedKey(live, live.row)
        return record

    def _store(self, live: LiveKey, present: bytes | None, after: bytes | None) -> None:
        live.row = after
        if present is None and after is not None:
            self._live[live.vnode * self._apart][live.key] = live
            if not self._positions.covers(live.vnode, live.order):
                heapq.heappush(self._unread[live.vnode], (live.order, live.key))
        elif present is not None and after is None:
            del self._live[live.vnode * self._apart][live.key]
            if not self._positions.covers(live.vnode, live.order):
                self._stale[live.vnode] += 1

    def _live_key(self, partition: PartitionHistory, key: bytes) -> LiveKey:
        number = partition.partition
        live = self._live[number * self._apart].get(key)
        if live is None:
            values = self._keys.values(key)
            live = LiveKey(key, values, self._keys.vnode_of(values, number), number)
        return live

    def read(self, vnode: int, standing: Standing) -> dict[bytes, bytes]:
        """Take the keys up to the vnode's position out of the unread ones.

        Those that had a row at the barrier before are given, with that row.
        """
        changed = self.changed[self._keys.partition_of(vnode)]
        rows: dict[bytes, bytes] = {}
        for key in self._passed(vnode, standing):
            record = changed.get(key)
            if record is not None:
                row = record.row_before
            else:
                live = self._live[vnode * self._apart].get(key)
                row = None if live is None else live.row
            if row is not None:
                rows[key] = row
        return rows

    def _passed(self, vnode: int, standing: Standing) -> list[bytes]:
        heap = self._unread[vnode]
        if standing.finished:
            passed = [key for _, key in heap]
            heap.clear()
            self._stale[vnode] = 0
            return passed
        passed = []
        if standing.bound is not None:
            while heap and heap[0][0] <= standing.bound:
                passed.append(heapq.heappop(heap)[1])
        return passed

    def settle(self) -> None:
        """Forget the interval: its end is the next one's barrier before."""
        for changed in self.changed:
            changed.clear()
        for vnode, stale in enumerate(self._stale):
            heap = self._unread[vnode]
            if stale > _WORTH_THINNING and stale * 2 > len(heap):
                alive = {key: order for order, key in heap if key in self._live[vnode * self._apart]}
                heap[:] = [(order, key) for key, order in alive.items()]
                heapq.heapify(heap)
                self._stale[vnode] = 0

    def _check_before(
        self, partition: PartitionHistory, entry: TopicEntry, live: LiveKey, before: bytes | None
    ) -> None:
        if before is None:
            code, found = Code.INSERT_EXISTING_KEY, "INSERT of a present one"
        elif live.row is None:
            code, found = Code.DELETE_MISSING_KEY, "one of an absent key"
        else:
            code, names = Code.OLD_ROW_MISMATCH, self._differing(before, live.row)
            if not names:
                return
            found = f"another before in {', '.join(names)}"
        self._object(partition, entry, live, code, found)

    def _differing(self, one: bytes, other: bytes) -> list[str]:
        """The columns in which rows differ, without those whose values were not read from all records."""
        names = differing(self._rows, one, other)
        return [name for name in names if not self._table.by_name[name].read_as]

    def _object_to_key(self, partition: PartitionHistory, entry: TopicEntry, live: LiveKey) -> None:
        code = Code.KEY_MISMATCH if live.row is None else Code.UPDATE_CHANGES_PK
        self._object(partition, entry, live, code, "a row with another primary key than its record")

    def _check_others(self, partition: PartitionHistory, entry: TopicEntry, live: LiveKey) -> None:
        """Of a key that begins here: no other partition has it."""
        homes = (home for home, there in enumerate(self._live) if home != live.vnode and live.key in there)
        home = next(homes, None)
        if home is not None:
            self._object_to_home(partition, entry, live, home)

    def _object_to_home(
        self, partition: PartitionHistory, entry: TopicEntry, live: LiveKey, home: int
    ) -> None:
        code, found = Code.KEY_IN_TWO_PARTITIONS, f"a change in partition {partition.partition}"
        self._object(partition, entry, live, code, found, home)

    def _object(
        self,
        partition: PartitionHistory,
        entry: TopicEntry,
        live: LiveKey,
        code: Code,
        found: str,
        home: int = NO_HOME,
    ) -> None:
        where, expected = partition.at(entry.offset), expectation(code, partition=home)
        self._findings.add(LawFinding(Side.UPSTREAM, code, where, None, live.vnode, expected, found))
