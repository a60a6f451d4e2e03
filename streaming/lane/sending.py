"""Sends a lane's share of a batch, in one transaction, in this order (docs/contract.md#records-on-an-output, #the-law).

    for each job: the invalid upstream records that the lane found, if they are parked, to the job's dead letters
    for each job: the start barrier, if the job opens with this batch
    for each job: the rows of its slices, as INSERTs, as of the barrier that the batch starts from
    for each interval of the batch, for each job:
        the changes that the *new* positions make visible
        the interval's barrier, with the progress of the parts that changed (the first interval only)

So a row comes before the changes that go on from it, and a barrier reports a position only behind all that it covers. A
job that reads the upstream has no rows: what its slices hold comes with the changes, as some of the first interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.avro.chunks import chunks, whole
from schemas.position import Key, position_to_text
from schemas.records import Barrier
from streaming.lane.live import LiveChanges, Shares, too_long_expected
from streaming.lane.task import LaneJob, LaneTask, LongRow, Sent, UndoneError
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.timing import Stopwatch
from streaming.sink.columns import SnapshotRows
from streaming.sink.protocol import LaneWriters

_ENOUGH_ROWS = 8_192
"""Rows that are sent together: a piece takes a millisecond whatever it holds, and each of many parts may have a row."""
_ENOUGH_BYTES = 4 << 20


def send_letters(task: LaneTask, lane: int, jobs: Sequence[LaneJob], writers: LaneWriters) -> None:
    """The records that the plan parks and this lane has found, to every job's dead letters."""
    parked = [item for item in task.plan.parked if item.lane == lane]
    for letter in task.read_letters(parked) if parked else ():
        for job in jobs:
            sent = letter.without_content if job.definition.is_masked else letter
            writers.writer_for(job.output).letter(job.output, sent)


def send_all(
    task: LaneTask, jobs: Sequence[LaneJob], parts: Iterable[Shares], writers: LaneWriters, watch: Stopwatch
) -> Sent:
    """Send everything of the lane for a batch, in the order given above, inside the open transaction.

    The changes come in parts, in order; the next part is drawn when the one before it has been sent.
    """
    _open_jobs(task, jobs, writers)
    read: dict[str, dict[int, int]] = {}
    sent: dict[str, int] = {}
    for job in jobs:
        read[job.definition.name], sent[job.definition.name] = _send_snapshot(
            job, task.plan.barriers[0].barrier, writers, watch
        )
    watch.lap("snapshot")
    failpoints.reach(Failpoint.LANE_SENT_SNAPSHOT)
    live = LiveChanges(task, jobs, writers, read)
    for shares in parts:
        live.send(shares)
        watch.lap("live")
    live.end()
    watch.lap("live")
    for name, count in live.history.items():
        sent[name] += count
    return Sent(rows_read=read, snapshot=sent, live=dict(live.sent), history=dict(live.history))


def _open_jobs(task: LaneTask, jobs: Iterable[LaneJob], writers: LaneWriters) -> None:
    for job in jobs:
        if job.plan.opens:
            assert task.plan.start is not None, "a job starts at a barrier"
            for partition in job.partitions:
                barrier = job.barrier(task.plan.start.barrier, partition, job.before)
                barrier = replace(barrier, columns=())  # it closes nothing
                writers.writer_for(job.output).barrier(job.output, partition, barrier)


def _send_snapshot(
    job: LaneJob, barrier: Barrier, writers: LaneWriters, watch: Stopwatch
) -> tuple[dict[int, int], int]:
    """Send the rows of the job's slices, in the interval that `barrier` closes.

    Returns how many rows were read in each part, and how many passed the filter and were sent.
    """
    read: dict[int, int] = {}
    gathered = _GatheredRows(job, barrier, writers)
    if job.plan.slices:
        parts = frozenset(item.part for item in job.plan.slices)
        watch.lap("snapshot")
        read_slice = job.scan.reader(parts, gathered.columns)
        # What the slices share, which follows from the log's files, whatever is read beneath it.
        watch.lap("overlay")
        for item in job.plan.slices:
            count = 0
            for rows in read_slice(item):
                count += rows.num_rows
                gathered.add(item.part, rows)
            read[item.part] = count
        gathered.flush()
    return read, gathered.sent


class _GatheredRows:
    """Rows of one job in the interval that `barrier` closes, sent in pieces that are worth it: see `_ENOUGH_ROWS`."""

    def __init__(self, job: LaneJob, barrier: Barrier, writers: LaneWriters) -> None:
        self._job, self._barrier, self._writer = job, barrier, writers.writer_for(job.output)
        self._is_sent = writers.lacks(job.output)
        self.columns = job.definition.read_columns(job.table)
        self._held: list[tuple[int, pa.Table]] = []
        self._rows = self._bytes = 0
        self.sent = 0
        """Rows that passed the filter."""

    def add(self, part: int, rows: pa.Table) -> None:
        """Rows that were read in a part; they are sent in the order in which they come."""
        self._held.append((part, rows.select(self.columns)))
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= _ENOUGH_ROWS or self._bytes >= _ENOUGH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what waits."""
        held, self._held, self._rows, self._bytes = self._held, [], 0, 0
        if not held:
            return
        counts = [rows.num_rows for _, rows in held]
        parts = np.repeat(np.array([part for part, _ in held], np.int32), counts)
        done = 0
        for chunk in chunks(pa.concat_tables([rows for _, rows in held])):
            self._send(parts[done : done + chunk.num_rows], chunk)
            done += chunk.num_rows

    def _send(self, parts: npt.NDArray[np.int32], chunk: pa.Table) -> None:
        job = self._job
        arrays = {name: whole(chunk[name]) for name in self.columns}
        passes = job.passes(arrays)
        if passes is not None:
            arrays = {name: array.filter(passes) for name, array in arrays.items()}
            parts = parts[passes.to_numpy(zero_copy_only=False)]
        if len(parts):
            rows = SnapshotRows(output=job.output, parts=parts, barrier=self._barrier, arrays=arrays)
            if self._is_sent and (too_long := _long_row(job, rows)) is not None:
                raise UndoneError(too_long)
            self._writer.rows(rows)
        self.sent += len(parts)


def _long_row(job: LaneJob, rows: SnapshotRows) -> LongRow | None:
    """The first row whose record is too long for the job's output."""
    limit = job.record_bytes
    if limit is None:
        return None
    records = rows.records
    for number in records.longer_than(limit):
        key: Key = tuple(values[number].as_py() for values in rows.keys)
        found = f"a row of {records.size(number)} bytes in the output {job.output.topic}"
        return LongRow(
            job.definition.name, position_to_text(key), found, too_long_expected(job.output.topic, limit)
        )
    return None
