"""The upstream of a history: written in full beforehand, arriving bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.avro.codec import decode_barrier
from schemas.codec.log_positions import POSITION_TYPE
from schemas.errors import InputError
from schemas.formats.protocol import Images, UpstreamFormat
from schemas.formats.registry import DEFAULT
from schemas.position import Key
from schemas.records import NO_DATA, Barrier, Op, Row
from state.columns import OFFSET, OP, PARTITION, TRANSACTION, VNODE
from state.values.aligned import padded
from state.values.plan import Parked
from streaming.core.offset_ranges import history_ranges, readers
from streaming.kafka.barriers import FoundBarrier
from streaming.lane.task import LaneTask
from streaming.sink.dead_letters import DeadLetter
from streaming.source import decoded as columns
from streaming.source.barriers.source import BarrierSource
from streaming.source.decoded import AFTER, BEFORE, ERROR, MARKED, POSITION, TIME, UNCHANGED
from streaming.verify.history import TopicEntry
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.log_positions import position_column
from tests.kit.tables import vnode_of
from tests.kit.upstream import RowsUpstream, Upstream
from tests.simulation.arrivals import Arrivals, ArrivedSource, Wait
from tests.simulation.connector import ConnectorUpstream
from tests.simulation.database import DatabaseUpstream
from tests.simulation.initial import MemorySource

_OF_CONNECTORS = {POSITION: POSITION_TYPE, UNCHANGED: pa.list_(pa.int32())}


class Changelog:
    """All records of the topic, once as bytes and once decoded for the lanes.

    `entries` are those that the judge goes by: without `extra`, the records that stand for no change.

    `initial` is the table that it starts from, and where: what lies before that is not read, by nobody. With a
    `timeline` it is not copied: it is what the database's table was at these offsets.

    `faulty` are the places, (partition, offset), of records that the contract forbids. Of a format without rows before
    the lanes get no more than it has.
    """

    def __init__(
        self,
        upstream: Upstream,
        faulty: frozenset[tuple[int, int]] = frozenset(),
        upstream_format: UpstreamFormat = DEFAULT,
        initial: MemorySource | None = None,
    ) -> None:
        self.initial = initial
        nothing = [0] * len(upstream.topic.partitions)
        self.begins = padded(() if initial is None else initial.offsets, nothing)
        self.table, self.faulty, self.format = upstream.table, faulty, upstream_format
        self._connector = upstream if isinstance(upstream, ConnectorUpstream) else None
        self.records: list[list[TopicEntry]] = upstream.topic.partitions
        self.extra = frozenset[tuple[int, int]](self._connector.extra if self._connector else ())
        self.extra |= frozenset(upstream.nothing if isinstance(upstream, RowsUpstream) else ())
        self.entries = [
            [
                entry
                for entry in records
                if (number, entry.offset) not in self.extra and entry.offset >= self.begins[number]
            ]
            for number, records in enumerate(self.records)
        ]
        self.barriers = [list(_barriers(number, entries)) for number, entries in enumerate(self.entries)]
        self.late = [len(self.barriers[0]) - len(barriers) for barriers in self.barriers]
        """Of partitions that were added, the barriers before their first one."""
        self.timeline = upstream.timeline if isinstance(upstream, DatabaseUpstream) else None
        schema = columns.decoded_schema(self.table)
        for name, kind in _OF_CONNECTORS.items() if self._connector else ():
            schema = schema.append(pa.field(name, kind))
        if self.timeline is not None:
            schema = schema.append(pa.field(TRANSACTION, pa.int64()))
        if any(self.late):
            schema = schema.append(pa.field(TIME, pa.int64()))
        self.rows = pa.RecordBatch.from_pylist(
            [row for number in range(len(self.records)) for row in self._decoded(number)], schema=schema
        )
        self._partition, self._offset = (self.rows[name].to_numpy() for name in (PARTITION, OFFSET))
        self._vnode = self.rows[VNODE].fill_null(-1).to_numpy()
        self._is_marked = self.rows[OP].fill_null(-1).to_numpy() == MARKED

    @property
    def count(self) -> int:
        """Of partitions."""
        return len(self.entries)

    @property
    def last(self) -> Barrier:
        """The last barrier of all."""
        barrier = self.barriers[0][-1].barrier
        assert barrier is not None
        return barrier

    def lane_rows(self, task: LaneTask, lane: int) -> pa.RecordBatch:
        """The rows of a lane's vnodes, what has no vnode with vnode 0; where jobs read the upstream more.

        Where vnodes are partitions, all that lies in the lane's, and nothing else.
        """
        plan, vnodes = task.plan, task.vnodes(lane)
        if task.table.by_partition:
            return self._rows_in_place(task, lane)
        low = max(vnodes.start, 0) if vnodes.start else -1
        of_vnodes = (self._vnode >= low) & (self._vnode < vnodes.stop)
        live = self._within(list(zip(plan.first_offsets, plan.end_offsets, strict=True)))
        if not readers(plan):
            return self.rows.filter(pa.array(of_vnodes & live))
        has_row, partitions = self._vnode >= 0, task.upstream_partitions(lane)
        of_partitions = (self._partition >= partitions.start) & (self._partition < partitions.stop)
        wanted = live & (of_vnodes | of_partitions & has_row)
        for layer in history_ranges(plan):
            early = (
                self._within(layer)
                & ~self._is_marked
                & (self._offset >= np.asarray(self.begins)[self._partition])
            )
            wanted |= early & np.where(has_row, of_partitions, of_vnodes)
        return self.rows.filter(pa.array(wanted))

    def _rows_in_place(self, task: LaneTask, lane: int) -> pa.RecordBatch:
        plan, partitions = task.plan, task.upstream_partitions(lane)
        wanted = self._within(list(zip(plan.first_offsets, plan.end_offsets, strict=True)))
        for layer in history_ranges(plan):
            wanted |= self._within(layer) & ~self._is_marked
        wanted &= (self._partition >= partitions.start) & (self._partition < partitions.stop)
        return self.rows.filter(pa.array(wanted))

    @property
    def rise(self) -> int | None:
        """The first barrier that tells of added partitions."""
        late = min(filter(None, self.late), default=None)
        found = None if late is None else self.barriers[0][late].barrier
        return None if found is None else found.curr

    def _within(self, ranges: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
        first, end = np.asarray([*ranges, *[(0, 0)] * (self.count - len(ranges))]).T
        within: npt.NDArray[np.bool_] = self._offset < end[self._partition]
        within &= self._offset >= first[self._partition]
        return within

    def vnode_of(self, key: Key) -> int:
        """Of a key that is there."""
        if not self.table.by_partition:
            return vnode_of(self.table, key)
        encoded = KeyCodec(self.table.key_columns).encode(key)
        homes = (
            n for n, entries in enumerate(self.entries) if any(entry.key == encoded for entry in entries)
        )
        return next(homes)

    def rows_at(self, epoch: int, faulty: frozenset[tuple[int, int]] | None = None) -> dict[Key, Row]:
        """The table as of a barrier, without the invalid records."""
        faulty = self.faulty if faulty is None else faulty
        codec, content = ChangeCodec(self.table.columns), () if self.initial is None else self.initial.content
        rows = {self.table.key_of(row): row for row in content}
        for entry in self._before(epoch, faulty):
            change = codec.decode(entry.value or b"")
            key = self.table.key_of(change.row)
            rows.pop(key, None)
            if change.after is not None:
                rows[key] = change.after
        return rows

    def _before(self, epoch: int, faulty: frozenset[tuple[int, int]]) -> list[TopicEntry]:
        """The changes before a barrier; by interval and time, where a key may come from several partitions."""
        found = list[tuple[int, TopicEntry]]()
        last = sum(each.barrier is not None and each.barrier.curr < epoch for each in self.barriers[0])
        for number, entries in enumerate(self.entries):
            interval = self.late[number]
            for entry in entries:
                if interval > last:
                    break
                interval += entry.barrier is not None
                if entry.barrier is None and (number, entry.offset) not in faulty:
                    found.append((interval, entry))
        if any(self.late):
            found.sort(key=lambda each: (each[0], each[1].time_ms))
        return [entry for _, entry in found]

    def letters(self, parked: Sequence[Parked]) -> list[DeadLetter]:
        """The records as they lie in the topic."""
        by_place = {(n, entry.offset): entry for n, entries in enumerate(self.records) for entry in entries}
        found = ((by_place[item.partition, item.offset], item) for item in parked)
        return [
            DeadLetter(e.key, e.value, item.code, f"up-{item.partition}@{item.offset}") for e, item in found
        ]

    def source(self, arrivals: Arrivals, wait: Wait, partitions: int) -> BarrierSource:
        """The barriers as they arrive, for one run of the service; `wait` lets others run until a condition holds."""
        return ArrivedSource(arrivals, wait, partitions)

    def _decoded(self, number: int) -> Iterator[dict[str, Any]]:
        codec, names = ChangeCodec(self.table.columns), self.table.column_names
        for entry in self.records[number]:
            place: dict[str, Any] = {PARTITION: number, OFFSET: entry.offset, columns.KEY: entry.key}
            place[columns.SIZE] = len(entry.key or b"") + len(entry.value or b"")
            place[TIME] = entry.time_ms
            if entry.barrier is not None:
                yield {**place, OP: MARKED}
                continue
            place[VNODE] = self._vnode_of_record(number, entry.key)
            if entry.value is None or self._says_nothing((number, entry.offset)):
                yield {**place, OP: NO_DATA}
                continue
            try:
                change = codec.decode(entry.value)
            except InputError as error:
                said = {name: getattr(error, name) for name in ("code", "found", "expected")}
                yield {**place, ERROR: said}
                continue
            before, after = (
                None if half is None else dict(zip(names, half, strict=True))
                for half in (change.before, change.after)
            )
            op = change.op
            if self.format.images is Images.AFTER_ONLY:
                op = Op.DELETE if after is None else Op.INSERT
                key = {
                    name: before[name] if before and name in self.table.primary_key else None
                    for name in names
                }
                before = key if after is None else None
            row = {**place, OP: int(op), BEFORE: before, AFTER: after}
            yield {**row, **self._of_connector((number, entry.offset), after)}

    def _vnode_of_record(self, number: int, key: bytes | None) -> int | None:
        """Of its key, whatever its value is."""
        if not self.table.has_key or self.table.by_partition:
            return number
        try:
            return vnode_of(self.table, KeyCodec(self.table.key_columns).decode(key or b""))
        except InputError:
            return None

    def _says_nothing(self, place: tuple[int, int]) -> bool:
        """True for a tombstone in a topic whose deletes have said what was there."""
        connector = self._connector
        if connector is None or self.format.images is not Images.FULL:
            return False
        return place in connector.extra and place not in connector.positions

    def _of_connector(self, place: tuple[int, int], after: dict[str, Any] | None) -> dict[str, Any]:
        connector = self._connector
        if connector is None:
            return {}
        found, last = connector.positions.get(place), self.table.column_names[-1]
        [position] = position_column([found]).to_pylist()
        own: dict[str, Any] = {POSITION: position}
        if self.timeline is not None:
            own[TRANSACTION] = connector.transactions.get(place)
        if after is None or place not in connector.without or not self.format.may_be_unchanged:
            return {**own, UNCHANGED: None}
        index = len(self.table.column_names) - 1
        return {**own, UNCHANGED: [index], AFTER: {**after, last: None}}


def _barriers(number: int, entries: Sequence[TopicEntry]) -> Iterator[FoundBarrier]:
    for entry in entries:
        if entry.barrier is not None:
            barrier = decode_barrier(entry.barrier, entry.value, where="upstream")
            yield FoundBarrier(number, entry.offset, barrier)
