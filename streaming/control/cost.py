"""Estimates the cost of a job before it is created: from file statistics and a sample of the replica's rows.

The sample is processed like a lane's slice, up to Kafka: read, filter, encode. So its rate is an upper bound for one
core, and the share that the filter keeps is as good as the sample: whole parts, whose keys a hash has picked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from schemas.avro.chunks import chunks
from schemas.avro.registered import SchemaIds
from schemas.filter.columnar import evaluate
from schemas.filter.parse import parse_filter
from schemas.job import JobDefinition
from schemas.records import Barrier, BarrierKind
from schemas.table import TableSchema
from state.replica import Replica
from state.storage import Storage
from state.values.aligned import Pin
from state.values.plan import Slice
from streaming.kafka.topics import Watermarks
from streaming.scan.kinds import PinnedScan, Scans
from streaming.sink.columns import SnapshotRows
from streaming.sink.output import Output

SAMPLE_ROWS = 50_000
SAMPLE_BYTES = 256 << 20
_ANY_BARRIER = Barrier(0, 0, BarrierKind.BARRIER, 1, 0)


@dataclass(frozen=True, slots=True)
class Cost:
    """`rows` and `replica_bytes` are the whole replica's. The rest is of the sample; None where that had no row."""

    rows: int
    replica_bytes: int
    sampled_rows: int
    kept_share: float | None
    bytes_per_record: float | None
    core_rows_per_s: float | None

    @property
    def output_rows(self) -> int | None:
        """Estimate of the rows of the output's snapshot."""
        return None if self.kept_share is None else round(self.rows * self.kept_share)

    @property
    def output_bytes(self) -> int | None:
        """Estimate of the bytes of their keys and values, uncompressed."""
        if self.output_rows is None or self.bytes_per_record is None:
            return None
        return round(self.output_rows * self.bytes_per_record)

    def seconds(self, job: JobDefinition, lanes: int, limit_of_all: int | None) -> float | None:
        """Time at the rate of all lanes, or of the job's limit, or that of all jobs. None: never, or unknown."""
        bounds = [] if self.core_rows_per_s is None else [self.core_rows_per_s * lanes]
        bounds += [float(limit) for limit in (job.rate_limit, limit_of_all) if limit is not None]
        return self.rows / min(bounds) if bounds and min(bounds) > 0 else None


def cost_of(
    job: JobDefinition, table: TableSchema, storage: Storage, marks: Callable[[], Sequence[Watermarks]]
) -> Cost:
    """The cost of a job now. `marks` asks for the upstream's, of which only some jobs read."""
    if job.from_now:
        return Cost(0, 0, 0, None, None, None)
    if job.scan.reads_upstream:  # no record is read
        return Cost(sum(each.stable - each.earliest for each in marks()), 0, 0, None, None, None)
    return estimate(storage, table, job)


def estimate(storage: Storage, table: TableSchema, job: JobDefinition) -> Cost:
    """The cost of a job as the replica is now. Reads some vnodes of it, and takes about a second."""
    replica = Replica(storage, table)
    version = replica.pin()
    files = replica.files(version)
    stored = (file for base in files.base.values() for file in base)
    size = sum(file.size for file in stored) + sum(file.size for file in files.log)
    scan = Scans(replica).scan_for(job).pinned(Pin(version, ()), frozenset(range(job.part_count)))
    if job.format.ids is None:  # any will do
        job = job.with_ids(SchemaIds(0, 0))
    job = replace(job, hash_key_file=None)  # likewise
    began = time.perf_counter()
    sampled = kept = sent_bytes = 0
    for rows in _sample(scan, job, table):
        passed = _passing(rows, job, table)
        sampled += rows.num_rows
        kept += passed.num_rows
        sent_bytes += _encoded_bytes(passed, job, table)
    elapsed_s = time.perf_counter() - began
    return Cost(
        files.rows,
        size,
        sampled,
        kept / sampled if sampled else None,
        sent_bytes / kept if kept else None,
        sampled / elapsed_s if sampled else None,
    )


def _sample(scan: PinnedScan, job: JobDefinition, table: TableSchema) -> Iterator[pa.Table]:
    """Rows of the first parts: enough rows, or enough bytes."""
    columns = job.read_columns(table)
    rows = size = 0
    for part in range(job.part_count):
        for read in scan.reader(frozenset({part}), columns)(Slice(part, None, None)):
            for chunk in chunks(read):
                yield chunk
                rows, size = rows + chunk.num_rows, size + chunk.nbytes
                if size >= SAMPLE_BYTES:
                    return
        if rows >= SAMPLE_ROWS:
            return


def _passing(rows: pa.Table, job: JobDefinition, table: TableSchema) -> pa.Table:
    if job.filter is None:
        return rows
    condition = parse_filter(job.filter, table)
    arrays = {name: rows[name].combine_chunks() for name in rows.column_names}
    return rows.filter(evaluate(condition, arrays).fill_null(False))


def _encoded_bytes(rows: pa.Table, job: JobDefinition, table: TableSchema) -> int:
    if not rows.num_rows:
        return 0
    arrays = {name: rows[name].combine_chunks() for name in rows.column_names}
    parts = np.zeros(rows.num_rows, np.int32)
    shown = SnapshotRows(output=Output(job, table), parts=parts, barrier=_ANY_BARRIER, arrays=arrays)
    records = shown.records
    return int(records.keys.nbytes + records.values.nbytes)
