"""The exchange: raw records are brought to their lanes in blocks, and nothing but their keys is looked at before it.

Spark would take a row apart and put it together again for each record. Here a task for each of the upstream's
partitions takes records as Arrow columns, and gives for each lane one row: a block of records, as bytes. Spark moves
and sorts these few rows, and the lanes open them as columns again.

Where a lane's records have to be in order, blocks are cut at the ends of intervals. A partition's records come in the
order of their offsets, so blocks in the order of interval, partition and first offset hold their records in order.
Where a key may come from several partitions the partitions of an interval go on side by side, by the times of records.

Each lane has a number that Spark's hash partitioning sends to the partition of the lane's number. Repartitioning by the
lane number itself makes lanes collide, and by range it samples, which runs the plan twice. Spark puts a row into
partition pmod(Murmur3_x86_32(column, 42), partitions); asking Spark which numbers fit would be a query of two seconds
in a fresh JVM. (Spark: HashPartitioning; common/unsafe, hash/Murmur3_x86_32.hashInt.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from schemas.formats.protocol import UpstreamFormat
from schemas.table import TableSchema
from streaming.source.records import Numbers, Records, Routes, raw_schema, vnodes_of

LANE_KEY, INTERVAL, TIME, PARTITION, FIRST_OFFSET, BLOCK = (
    "lane_key",
    "interval",
    "time",
    "partition",
    "first_offset",
    "block",
)
ORDER = (INTERVAL, TIME, PARTITION, FIRST_OFFSET)
_BLOCK_SCHEMA = pa.schema(
    {
        LANE_KEY: pa.int32(),
        INTERVAL: pa.int32(),
        TIME: pa.int64(),
        PARTITION: pa.int32(),
        FIRST_OFFSET: pa.int64(),
        BLOCK: pa.binary(),
    }
)
BLOCK_ROWS = from_arrow_schema(_BLOCK_SCHEMA)
_ROWS_AT_ONCE = 10_000
"""Records that a lane decodes at a time, about."""
_SEED, _BITS = 42, 0xFFFFFFFF
_C1, _C2, _ADD = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_FINAL_1, _FINAL_2 = 0x85EBCA6B, 0xC2B2AE35
_INT_BYTES = 4


@dataclass(frozen=True)
class Exchange:
    """Packs records of one table and format into blocks; a value that is sent to Spark's tasks.

    `ends` are those of a batch's barriers, by partition each, if records have to come to their lanes in order.
    `headers` are the names of those that jobs pass on: records have them then. `moves_from`: as of a lane's task;
    records have their times then.
    """

    format: UpstreamFormat
    table: TableSchema
    routes: Routes
    ends: tuple[tuple[int, ...], ...] = ()
    headers: tuple[str, ...] = ()
    moves_from: int | None = None

    def packed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows `BLOCK_ROWS` of records (`RAW_SCHEMA`)."""
        keys, clocks = lane_keys(self.routes.lanes), dict[int, int]()
        for batch in batches:
            records = Records.concatenated([batch])
            blocks = list(self._blocks(records, keys, clocks))
            columns = zip(*blocks, strict=True) if blocks else ((),) * len(_BLOCK_SCHEMA)
            arrays = [
                pa.array(column, field.type) for column, field in zip(columns, _BLOCK_SCHEMA, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=_BLOCK_SCHEMA)

    def _blocks(
        self, records: Records, keys: Sequence[int], clocks: dict[int, int]
    ) -> Iterator[tuple[int, int, int, int, int, bytes]]:
        placed = self.routes.placed(records, vnodes_of(self.format, self.table).of(records))
        raw = records.batch
        intervals = self._intervals(records)
        times = self._times(records, intervals, clocks)
        for lane, lane_key in enumerate(keys):
            rows = np.flatnonzero(placed.among(lane))
            if not len(rows):
                continue
            mine = raw.take(pa.array(rows)) if len(rows) < raw.num_rows else raw
            for start, end in _runs(intervals[rows], times[rows], mine):
                part = mine.slice(start, end - start)
                place = part.column(0)[0].as_py(), part.column(1)[0].as_py()
                order = int(intervals[rows[start]]), int(times[rows[start]])
                yield lane_key, *order, *place, part.serialize().to_pybytes()

    def _times(self, records: Records, intervals: Numbers, clocks: dict[int, int]) -> Numbers:
        """The latest time in its partition up to each record; 0 where partitions come one after another.

        `clocks` are the latest times by partition, which are kept from call to call.
        """
        found = np.zeros(len(intervals), np.int64)
        if self.moves_from is None or not self.ends or records.times is None:
            return found
        partitions, times = records.partitions.to_numpy(), records.times.to_numpy()
        for number in np.unique(partitions).tolist():
            mine = partitions == number
            found[mine] = np.maximum(np.maximum.accumulate(times[mine]), clocks.get(number, 0))
            clocks[number] = int(found[mine][-1])
        first = np.asarray(self.routes.first or (0,) * (int(partitions.max(initial=0)) + 1))
        found[(intervals < self.moves_from) | (records.offsets.to_numpy() < first[partitions])] = 0
        return found

    def _intervals(self, records: Records) -> Numbers:
        """The number of intervals that end at or before each record in its partition; 0 if no order is asked for."""
        offsets = records.offsets.to_numpy()
        found = np.zeros(len(offsets), np.int64)
        if not self.ends:
            return found
        partitions = records.partitions.to_numpy()
        for number in np.unique(partitions).tolist():
            mine = partitions == number
            found[mine] = np.searchsorted([ends[number] for ends in self.ends], offsets[mine], side="right")
        return found


def _runs(intervals: Numbers, times: Numbers, rows: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Ranges [start, end) of rows in which interval, time and partition stay the same."""
    changes = (np.diff(each) != 0 for each in (intervals, times, rows.column(0).to_numpy()))
    cuts = np.flatnonzero(np.logical_or.reduce(list(changes))) + 1
    bounds = [0, *cuts.tolist(), len(intervals)]
    yield from pairwise(bounds)


def unpacked(
    batches: Iterable[pa.RecordBatch], *, headers: bool = False, times: bool = False
) -> Iterator[Records]:
    """The records of blocks, each batch a column of them, in their order; some thousands at a time."""
    schema = raw_schema(headers=headers, times=times)
    held: list[pa.RecordBatch] = []
    for batch in batches:
        for block in batch.column(0):
            held.append(pa.ipc.read_record_batch(block.as_buffer(), schema))
            if sum(each.num_rows for each in held) >= _ROWS_AT_ONCE:
                yield Records.concatenated(held)
                held = []
        if held:  # what one batch brings has been limited in bytes
            yield Records.concatenated(held)
            held = []


def lane_keys(lanes: int) -> list[int]:
    """`lane_keys(n)[lane]` goes to partition `lane` of n."""
    by_lane: dict[int, int] = {}
    for lane_key in count():
        by_lane.setdefault(_murmur3(lane_key) % lanes, lane_key)
        if len(by_lane) == lanes:
            return [by_lane[lane] for lane in range(lanes)]
    raise AssertionError("numbers do not end")


def _murmur3(value: int) -> int:
    """The hash of a 32-bit integer that is not negative; signed, as Java's."""
    mixed = _rotated(value * _C1 & _BITS, 15) * _C2 & _BITS
    hashed = (_rotated(_SEED ^ mixed, 13) * 5 + _ADD & _BITS) ^ _INT_BYTES
    hashed = (hashed ^ hashed >> 16) * _FINAL_1 & _BITS
    hashed = (hashed ^ hashed >> 13) * _FINAL_2 & _BITS
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & _BITS
