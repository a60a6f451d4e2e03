"""What a lane sends for a batch, in one transaction, in this order (docs/contract.md#records-on-an-output, #the-law).

    for each job: the upstream records at fault that the lane found, if they are parked, to the job's dead letters
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

import pyarrow as pa

from schemas.avro.chunks import chunks, whole
from schemas.records import Barrier
from streaming.lane.live import LiveChanges
from streaming.lane.shares import Shares
from streaming.lane.task import LaneJob, LaneTask, Sent
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.stopwatch import Stopwatch
from streaming.sink.columns import Rows
from streaming.sink.writers import LaneWriters


def send_letters(task: LaneTask, lane: int, jobs: Sequence[LaneJob], writers: LaneWriters) -> None:
    """The records that the plan parks and this lane has found, to every job's dead letters."""
    parked = [item for item in task.plan.parked if item.lane == lane]
    for letter in task.read_letters(parked) if parked else ():
        for job in jobs:
            writers.of(job.output).letter(job.output, letter)


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
                barrier = job.barrier(task.plan.start.barrier, partition, {})
                writers.of(job.output).barrier(job.output, partition, barrier)


def _send_snapshot(
    job: LaneJob, barrier: Barrier, writers: LaneWriters, watch: Stopwatch
) -> tuple[dict[int, int], int]:
    """Send the rows of the job's slices, in the interval that `barrier` closes.

    Returns how many rows were read in each part, and how many passed the filter and were sent.
    """
    read: dict[int, int] = {}
    sent = 0
    if job.plan.slices:
        parts = frozenset(item.part for item in job.plan.slices)
        columns = job.read_columns()
        watch.lap("snapshot")
        read_slice = job.scan.reader(parts, columns)
        watch.lap(
            "overlay"
        )  # what the slices share, which follows from the log's files, whatever is read beneath it
        for item in job.plan.slices:
            count = 0
            for rows in read_slice(item):
                count += rows.num_rows
                sent += _send_rows(job, item.part, barrier, rows, writers)
            read[item.part] = count
    return read, sent


def _send_rows(job: LaneJob, part: int, barrier: Barrier, rows: pa.Table, writers: LaneWriters) -> int:
    partition, sent = job.definition.partition_of(part), 0
    for chunk in chunks(rows):
        arrays = {name: whole(chunk[name]) for name in chunk.schema.names}
        passes = job.passes(arrays)
        if passes is not None:
            arrays = {name: array.filter(passes) for name, array in arrays.items()}
        shown = Rows(output=job.output, partition=partition, part=part, barrier=barrier, arrays=arrays)
        if len(shown):
            writers.of(job.output).rows(shown)
        sent += len(shown)
    return sent
