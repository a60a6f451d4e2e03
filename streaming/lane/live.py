"""The live half of what a lane sends: changes that the positions make visible, and each interval's barrier.

To a job that reads the upstream the records that its slices hold are such changes too, of the first interval.

Changes come in one part or in many, in the order of `streaming.lane.changes`. An interval is over once a change of a
later one, or the end, has come; its barrier follows what all parts held of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from streaming.core.visibility import HIDDEN, visible_ops
from streaming.lane.changes import Bools, Changes
from streaming.lane.shares import Shares, before_batch
from streaming.lane.task import LaneJob, LaneTask
from streaming.sink.columns import ChangeColumns, Run
from streaming.sink.writers import LaneWriters


class LiveChanges:
    """Sends the live half of one lane and batch. Call `send` for each part, in order, then `end` once.

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

    def send(self, shares: Shares) -> None:
        """Send a part."""
        if not shares.intervals:
            return
        visible = [(job, self._visible(job, shares.of_job(job))) for job in self._jobs]
        for number in shares.intervals:
            self._close_before(number)
            for job, runs in visible:
                if len(runs[number]):
                    self._writers.of(job.output).changes(runs[number])

    def end(self) -> None:
        """Send the remaining barriers; call it behind the last part."""
        self._close_before(len(self._task.plan.barriers))

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
                    self._writers.of(job.output).barrier(job.output, partition, barrier)
        self._closed = max(self._closed, number)

    def _visible(self, job: LaneJob, changes: Changes) -> list[Run]:
        """The changes that the job's output gets, one run per interval."""
        shown, history = self._shown(job, changes)
        ops = _passing_ops(self._task, job, changes)
        rows = np.flatnonzero(shown & (ops != HIDDEN))
        name, early = job.definition.name, int(history[rows].sum())
        self.history[name] += early
        self.sent[name] += len(rows) - early
        parts = job.scan.parts_of(changes)[rows]
        barriers = [aligned.barrier for aligned in self._task.plan.barriers]
        return ChangeColumns(
            output=job.output,
            decoded=changes,
            rows=rows,
            ops=ops[rows],
            partitions=job.output.partitions_of(parts),
            parts=parts,
            bounds=np.searchsorted(rows, changes.bounds(len(barriers))),
            barriers=barriers,
        ).runs()

    def _shown(self, job: LaneJob, changes: Changes) -> tuple[Bools, Bools]:
        """Which changes the positions show, whatever the filter says, and which of all stand before the batch."""
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
