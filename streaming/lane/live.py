"""The live part of what a lane sends: changes that the positions make visible, and each interval's barrier.

To a job that reads the upstream the records that its slices hold are such changes too, of the first interval.

Changes come in one part or in many, in the order of `streaming.lane.changes`. An interval is over once a change of a
later one, or the end, has come; its barrier follows what all parts held of it.

A change may be longer than an output takes. It is measured once it is encoded: its record counts as invalid then,
and the transaction ends before anything of it is visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.error_table import expectation
from schemas.errors import Code
from schemas.position import position_to_text
from state.values.plan import BatchPlan
from streaming.core.offset_ranges import readers
from streaming.core.visibility import HIDDEN, keyed, visible_ops
from streaming.lane.faults import MOST_FAULTS, Fault
from streaming.lane.task import Faulty, LaneJob, LaneTask, LongRow, UndoneError
from streaming.sink.columns import ChangeColumns, OutputChanges
from streaming.sink.output import Output
from streaming.sink.protocol import LaneWriters
from streaming.source.decoded import Changes
from streaming.source.records import Bools


@dataclass(frozen=True)
class Shares:
    """The shares of one part of a lane's changes for its jobs, in their order.

    own        changes of the lane's vnodes in the batch: they become part of the log, and jobs that read the replica
               are sent from them
    upstream   records of the lane's upstream partitions, from before the batch too: for jobs that read the upstream;
               None without such a job
    """

    own: Changes
    upstream: Changes | None = None

    @classmethod
    def of(cls, changes: Changes, task: LaneTask, lane: int) -> Shares:
        """The shares of changes that were checked for faults: all must be valid."""
        plan = task.plan
        if not readers(plan):
            return cls(changes)
        is_own = _within(changes.vnodes, task.vnodes(lane)) & ~before_batch(changes, plan)
        is_theirs = _within(changes.partitions, task.upstream_partitions(lane))
        return cls(changes.filtered(is_own), changes.filtered(is_theirs))

    def of_job(self, job: LaneJob) -> Changes:
        """The changes to which the job's positions apply."""
        return self.upstream if job.reads_upstream and self.upstream is not None else self.own

    @property
    def intervals(self) -> range:
        """The range from the first to the last interval with changes."""
        every = [share.interval for share in (self.own, self.upstream) if share is not None and len(share)]
        return (
            range(min(each[0] for each in every), max(each[-1] for each in every) + 1) if every else range(0)
        )


def before_batch(changes: Changes, plan: BatchPlan) -> Bools:
    """Flags: True for a change from before the batch's own changes."""
    return changes.offsets < np.asarray(plan.first_offsets)[changes.partitions]


def _within(values: npt.NDArray[np.int32], wanted: range) -> Bools:
    return (values >= wanted.start) & (values < wanted.stop)


class LiveChanges:
    """Sends the live part of one lane and batch. Call `send` for each part, in order, then `end` once.

    `read` are the rows that were read of each job's slices, by part; those that come with the changes are added to it.
    `sent` counts the changes of each job, `history` those that a job has sent of its slices.
    """

    def __init__(
        self,
        task: LaneTask,
        jobs: Sequence[LaneJob],
        writers: LaneWriters,
        read: Mapping[str, dict[int, int]],
    ) -> None:
        self._task, self._jobs, self._writers, self._read = task, jobs, writers, read
        self.sent: Counter[str] = Counter()
        self.history: Counter[str] = Counter()
        self._closed = 0
        self._faults: list[Fault] = []

    def send(self, shares: Shares) -> None:
        """Send a part; nothing more once a record was too long for its output. Raises: UndoneError for a row."""
        if not shares.intervals:
            return
        visible = [(job, self._visible(job, shares.of_job(job))) for job in self._jobs]
        self._measure_others(shares)
        if self._faults:
            return
        for number in shares.intervals:
            self._close_before(number)
            for job, runs in visible:
                if len(runs[number]):
                    self._writers.writer_for(job.output).changes(runs[number])

    def end(self) -> None:
        """Send the remaining barriers; call it behind the last part. Raises: UndoneError for changes."""
        if self._faults:
            raise UndoneError(Faulty(tuple(self._faults)))
        self._close_before(len(self._task.plan.barriers))

    def _measure_others(self, shares: Shares) -> None:
        """Find records of which another lane makes one that is too long, so that none of them sends its part."""
        if shares.upstream is None:
            return
        for job in self._jobs:
            for changes in (shares.own, shares.upstream):
                if changes is not shares.of_job(job):
                    rows = np.flatnonzero(~before_batch(changes, self._task.plan) & (changes.ops >= 0))
                    self._measure(job, changes, self._columns(job, changes, rows, changes.ops[rows]))

    def _measure(self, job: LaneJob, changes: Changes, columns: ChangeColumns) -> None:
        if len(self._faults) >= MOST_FAULTS or not self._writers.lacks(job.output):
            return
        for fault in long_changes(job, changes, columns):
            if fault.offset < self._task.plan.first_offsets[fault.partition]:
                # A record of before the batch, of a slice of a job that reads the upstream topic.
                place = position_to_text((fault.offset,))
                raise UndoneError(LongRow(job.definition.name, place, fault.found, fault.expected))
            self._faults.append(fault)

    def _close_before(self, number: int) -> None:
        """Send the barriers of all intervals before this one."""
        for closed in range(self._closed, number):
            upstream = self._task.plan.barriers[closed].barrier
            is_full = self._task.plan.is_full(closed)
            for job in self._jobs:
                # Positions are reported by the first: by then all that came with it has been counted.
                read = self._read[job.definition.name]
                reported = {} if closed else job.reported(read)
                is_listed = is_full and job.definition.barrier_topic is not None
                progress = job.plan.progress_after(job.before, read) if is_listed else {}
                for partition in job.partitions:
                    full = job.full_barrier(upstream, partition, progress) if is_listed else None
                    barrier = full or job.barrier(upstream, partition, reported)
                    self._writers.writer_for(job.output).barrier(job.output, partition, barrier)
        self._closed = max(self._closed, number)

    def _visible(self, job: LaneJob, changes: Changes) -> list[OutputChanges]:
        """The changes that the job's output gets, one run per interval."""
        shown, history = self._shown(job, changes)
        ops = _passing_ops(self._task, job, changes)
        rows = np.flatnonzero(shown & (ops != HIDDEN))
        rows, ops = keyed_changes(job.output, changes, rows, ops[rows])
        name, early = job.definition.name, int(history[rows].sum())
        self.history[name] += early
        self.sent[name] += len(rows) - early
        columns = self._columns(job, changes, rows, ops)
        self._measure(job, changes, columns)
        return columns.runs()

    def _columns(
        self, job: LaneJob, changes: Changes, rows: npt.NDArray[np.int64], ops: npt.NDArray[np.int8]
    ) -> ChangeColumns:
        parts = job.scan.parts_of(changes)[rows]
        barriers = [aligned.barrier for aligned in self._task.plan.barriers]
        return ChangeColumns(
            output=job.output,
            decoded=changes,
            rows=rows,
            ops=ops,
            partitions=job.output.partitions_of(parts),
            parts=parts,
            bounds=np.searchsorted(rows, changes.bounds(len(barriers))),
            barriers=barriers,
        )

    def _shown(self, job: LaneJob, changes: Changes) -> tuple[Bools, Bools]:
        """Flags of changes that the positions show, whatever the filter says, and of those from before the batch."""
        shown = job.scan.covered(changes, job.positions)
        if not job.reads_upstream:
            return shown, np.zeros(len(changes), np.bool_)
        history = before_batch(changes, self._task.plan)
        shown &= ~(history & job.scan.covered(changes, job.before))  # sent by the batches before
        parts, counts = np.unique(job.scan.parts_of(changes)[shown & history], return_counts=True)
        read = self._read[job.definition.name]
        for part, count in zip(parts.tolist(), counts.tolist(), strict=True):
            read[part] += count
        return shown, history


def _passing_ops(task: LaneTask, job: LaneJob, changes: Changes) -> npt.NDArray[np.int8]:
    """The op of each change after the job's filter, HIDDEN for none."""
    names = task.table.column_names
    before_passes = job.passes(dict(zip(names, changes.before, strict=True)))
    after_passes = job.passes(dict(zip(names, changes.after, strict=True)))
    if before_passes is None or after_passes is None:
        return changes.ops
    halves = (mask.to_numpy(zero_copy_only=False) for mask in (before_passes, after_passes))
    return visible_ops(changes.ops, *halves)


def keyed_changes(
    output: Output, changes: Changes, rows: npt.NDArray[np.int64], ops: npt.NDArray[np.int8]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]:
    """The changes at `rows` that are sent as `ops`, as an output's key has them: those that move it are there twice."""
    table = output.table
    further = [name for name in output.definition.key if name not in table.primary_key]
    if not further:
        return rows, ops
    places, taken = map(table.column_names.index, further), pa.array(rows)
    index, sent = keyed(
        ops, [(changes.before[at].take(taken), changes.after[at].take(taken)) for at in places]
    )
    return rows[index], sent


def long_changes(job: LaneJob, changes: Changes, columns: ChangeColumns) -> Iterator[Fault]:
    """Faults for those of `changes` whose records are too long for the job's output, in order."""
    if job.record_bytes is None or not len(columns.rows):
        return
    records, topic = columns.records, job.output.topic
    for number in records.longer_than(job.record_bytes):
        row = columns.rows[columns.change_of(number)]
        partition, offset = int(changes.partitions[row]), int(changes.offsets[row])
        found = f"a change of {records.size(number)} bytes in the output {topic}"
        expected = too_long_expected(topic, job.record_bytes)
        yield Fault(partition, offset, Code.RECORD_TOO_LARGE, found, expected, output=topic)


def too_long_expected(topic: str, limit: int) -> str:
    """The expectation of an output with this topic, whose records have `limit` bytes at most."""
    return expectation(Code.RECORD_TOO_LARGE, limit=limit, setting=f"max.message.bytes of {topic}")
