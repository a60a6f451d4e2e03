"""What a lane sends for a batch, in one transaction, in this order (the contract of DESIGN 2.3 and 2.4).

    for each job: the upstream records at fault that the lane found, if they are parked, to the job's dead letters
    for each job: the start barrier, if the job opens with this batch
    for each job: the rows of its slices, as INSERTs, as of the barrier that the batch starts from
    for each interval of the batch, for each job:
        the changes that the *new* positions make visible
        the interval's barrier, with the progress of the vnodes that changed (the first interval only)

So a row comes before the changes that go on from it, and a position is told where all that it covers has been sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from schemas.columnar import encode_changes, encode_inserts, encode_keys
from schemas.records import Barrier
from state.snapshot import SnapshotReader
from streaming.core.visibility import HIDDEN, covered, visible_ops
from streaming.lane.changes import Changes
from streaming.lane.dead_letters import Letter
from streaming.lane.output import LaneOutput
from streaming.lane.task import LaneJob, LaneResult, LaneTask
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.stopwatch import Stopwatch

_CHUNK_ROWS = 65_536


class LetterBox(Protocol):
    """Whatever takes dead letters."""

    def send_letter(self, topic: str, letter: Letter) -> None:
        """Queue one for the topic of these."""


def send_letters(task: LaneTask, lane: int, jobs: Iterable[LaneJob], box: LetterBox) -> None:
    """The records that the plan parks and this lane has found, to every job's dead letters."""
    parked = [item for item in task.plan.parked if item.lane == lane]
    topics = [job.definition.dead_letters for job in jobs]
    for letter in task.read_letters(parked) if parked else ():
        for topic in topics:
            box.send_letter(topic, letter)


def send_all(
    task: LaneTask,
    jobs: list[LaneJob],
    changes: Changes,
    sender: Sender,
    result: LaneResult,
    watch: Stopwatch,
) -> None:
    """Everything that the lane sends for a batch, in the order that the module tells."""
    _open_jobs(task, jobs, sender)
    _send_snapshot(task, jobs, sender, result, watch)
    watch.lap("snapshot")
    failpoints.reach(Failpoint.LANE_SENT_SNAPSHOT)
    _send_live(task, jobs, changes, sender, result)
    watch.lap("live")


class Silent:
    """Takes what was sent before and sends nothing: a batch that is run again still has to count its rows."""

    def send(self, topic: str, partitions: object, keys: pa.Array, values: pa.Array) -> None:
        """Nothing."""

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        """Nothing."""


Sender = LaneOutput | Silent


def _open_jobs(task: LaneTask, jobs: Iterable[LaneJob], sender: Sender) -> None:
    for job in jobs:
        if job.opens:
            assert task.plan.start is not None, "a job starts at a barrier"
            for partition in job.partitions:
                barrier = job.barrier(task.plan.start.barrier, partition, with_progress=False)
                sender.send_barrier(job.topic, partition, barrier)


def _send_snapshot(
    task: LaneTask, jobs: Iterable[LaneJob], sender: Sender, result: LaneResult, watch: Stopwatch
) -> None:
    for job in jobs:
        read: dict[int, int] = {}
        sent = 0
        if job.slices:
            reader = SnapshotReader(task.storage, task.table, task.files)
            columns = job.read_columns()
            watch.lap("snapshot")
            overlay = reader.overlay(frozenset(item.vnode for item in job.slices), columns)
            watch.lap("overlay")  # follows from the log's files, whatever is read beneath it
            for item in job.slices:
                partition, count = job.definition.partition_of(item.vnode), 0
                for rows in reader.read(item, columns, overlay):
                    count += rows.num_rows
                    sent += _send_rows(job, partition, rows, sender)
                read[item.vnode] = read.get(item.vnode, 0) + count
                job.read_slice(item, count)
        result.rows_read[job.definition.name] = read
        result.sent_snapshot[job.definition.name] = sent


def _send_rows(job: LaneJob, partition: int, rows: pa.Table, sender: Sender) -> int:
    sent = 0
    for chunk in _chunks(rows):
        arrays = {name: chunk.column(i) for i, name in enumerate(chunk.schema.names)}
        passes = job.passes(arrays)
        if passes is not None:
            arrays = {name: array.filter(passes) for name, array in arrays.items()}
        keys = encode_keys(job.table.key_columns, [arrays[name] for name in job.table.primary_key])
        if len(keys):
            values = encode_inserts(job.columns, [arrays[column.name] for column in job.columns])
            sender.send(job.topic, partition, keys, values)
        sent += len(keys)
    return sent


def _chunks(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(rows.combine_chunks().to_batches(max_chunksize=_CHUNK_ROWS))


def _send_live(
    task: LaneTask, jobs: Iterable[LaneJob], changes: Changes, sender: Sender, result: LaneResult
) -> None:
    visible = [(job, _visible(task, job, changes)) for job in jobs]
    for number, aligned in enumerate(task.plan.barriers):
        for job, runs in visible:
            run = runs[number]
            if len(run.keys):
                sender.send(job.topic, run.partitions, run.keys, run.values)
                result.sent_live[job.definition.name] = result.sent_live.get(job.definition.name, 0) + len(
                    run.keys
                )
            for partition in job.partitions:
                barrier = job.barrier(aligned.barrier, partition, with_progress=number == 0)
                sender.send_barrier(job.topic, partition, barrier)


@dataclass(frozen=True)
class _Run:
    """What one interval sends for one job."""

    partitions: np.ndarray[tuple[int], np.dtype[np.int32]]
    keys: pa.Array
    values: pa.Array


def _visible(task: LaneTask, job: LaneJob, changes: Changes) -> list[_Run]:
    """The job's records of every interval, encoded in one go."""
    vnode_count = task.table.vnode_count
    shown = covered(changes.vnodes, changes.keys, job.progress, vnode_count)
    names = task.table.column_names
    before_passes = job.passes(dict(zip(names, changes.before, strict=True)))
    after_passes = job.passes(dict(zip(names, changes.after, strict=True)))
    ops = changes.ops
    if before_passes is not None and after_passes is not None:
        halves = (mask.to_numpy(zero_copy_only=False) for mask in (before_passes, after_passes))
        ops = visible_ops(ops, *halves)
    rows = np.flatnonzero(shown & (ops != HIDDEN))
    taken = pa.array(rows)
    wanted = [task.table.column_names.index(column.name) for column in job.columns]
    values = encode_changes(
        job.columns,
        pa.array(ops[rows], pa.int8()),
        [changes.before[i].take(taken) for i in wanted],
        [changes.after[i].take(taken) for i in wanted],
    )
    keys = changes.key_bytes.take(taken)
    routes = np.array([job.definition.partition_of(v) for v in range(vnode_count)], dtype=np.int32)
    partitions = routes[changes.vnodes[rows]]
    bounds = np.searchsorted(rows, changes.bounds(len(task.plan.barriers)))
    return [
        _Run(partitions[low:high], keys.slice(low, high - low), values.slice(low, high - low))
        for low, high in pairwise(bounds.tolist())
    ]
