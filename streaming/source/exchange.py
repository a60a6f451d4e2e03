"""The exchange: raw records are brought to their lanes in blocks, and nothing but their keys is looked at before it.

Spark would take a row apart and put it together again for each record. Here a task for each of the upstream's
partitions takes records as Arrow columns, and gives for each lane one row: a block of records, as bytes. Spark moves
and sorts these few rows, and the lanes open them as columns again.

Where a lane's records have to be in order, blocks are cut at the ends of intervals. A partition's records come in the
order of their offsets, so blocks in the order of interval, partition and first offset hold their records in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from schemas.formats.protocol import UpstreamFormat
from schemas.table import TableSchema
from streaming.source.lane_keys import lane_keys
from streaming.source.raw.record_vnodes import vnodes_of
from streaming.source.raw.records import Records, raw_schema
from streaming.source.routes import Numbers, Routes

LANE_KEY, INTERVAL, PARTITION, FIRST_OFFSET, BLOCK = (
    "lane_key",
    "interval",
    "partition",
    "first_offset",
    "block",
)
ORDER = (INTERVAL, PARTITION, FIRST_OFFSET)
BLOCK_ROWS = StructType(
    [
        StructField(LANE_KEY, IntegerType()),
        StructField(INTERVAL, IntegerType()),
        StructField(PARTITION, IntegerType()),
        StructField(FIRST_OFFSET, LongType()),
        StructField(BLOCK, BinaryType()),
    ]
)
_BLOCK_SCHEMA = pa.schema(
    {
        LANE_KEY: pa.int32(),
        INTERVAL: pa.int32(),
        PARTITION: pa.int32(),
        FIRST_OFFSET: pa.int64(),
        BLOCK: pa.binary(),
    }
)
_ROWS_AT_ONCE = 10_000
"""Records that a lane decodes at a time, about."""


@dataclass(frozen=True)
class Exchange:
    """Packs records of one table and format into blocks; a value that is sent to Spark's tasks.

    `ends` are those of a batch's barriers, by partition each, if records have to come to their lanes in order.
    `headers` are the names of those that jobs pass on: records have them then.
    """

    format: UpstreamFormat
    table: TableSchema
    routes: Routes
    ends: tuple[tuple[int, ...], ...] = ()
    headers: tuple[str, ...] = ()

    def packed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows `BLOCK_ROWS` of records (`RAW_SCHEMA`)."""
        keys = lane_keys(self.routes.lanes)
        for batch in batches:
            records = Records.concatenated([batch])
            blocks = list(self._blocks(records, keys))
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(column, field.type)
                    for column, field in zip(zip(*blocks, strict=True), _BLOCK_SCHEMA, strict=True)
                ]
                if blocks
                else [pa.array([], field.type) for field in _BLOCK_SCHEMA],
                schema=_BLOCK_SCHEMA,
            )

    def _blocks(self, records: Records, keys: Sequence[int]) -> Iterator[tuple[int, int, int, int, bytes]]:
        placed = self.routes.placed(records, vnodes_of(self.format, self.table).of(records))
        raw = records.batch
        intervals = self._intervals(records)
        for lane, lane_key in enumerate(keys):
            rows = np.flatnonzero(placed.among(lane))
            if not len(rows):
                continue
            mine = raw.take(pa.array(rows)) if len(rows) < raw.num_rows else raw
            for start, end in _runs(intervals[rows], mine):
                part = mine.slice(start, end - start)
                place = part.column(0)[0].as_py(), part.column(1)[0].as_py()
                yield lane_key, int(intervals[rows[start]]), *place, part.serialize().to_pybytes()

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


def _runs(intervals: Numbers, rows: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Ranges [start, end) of rows in which the interval and the partition stay the same."""
    partitions = rows.column(0).to_numpy()
    cuts = np.flatnonzero((np.diff(intervals) != 0) | (np.diff(partitions) != 0)) + 1
    bounds = [0, *cuts.tolist(), len(intervals)]
    yield from pairwise(bounds)


def unpacked(batches: Iterable[pa.RecordBatch], *, headers: bool = False) -> Iterator[Records]:
    """The records of blocks, each batch a column of them, in their order; some thousands at a time."""
    schema = raw_schema(headers=headers)
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
