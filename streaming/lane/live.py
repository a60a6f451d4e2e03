"""The live half of what a lane sends: changes that the positions make visible, and each interval's barrier.

Changes come in one part or in many, in the order of `streaming.lane.changes`. An interval is over once a change of a
later one, or the end, has come; its barrier follows what all parts held of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from state.values.progress import Progress
from streaming.core.visibility import HIDDEN, visible_ops
from streaming.lane.changes import Changes
from streaming.lane.task import LaneJob, LaneTask
from streaming.sink.columns import ChangeColumns, Run
from streaming.sink.writers import LaneWriters


class LiveChanges:
    """Of one lane and batch. Call `send` for each part, in order, then `end` once.

    `reported` is, for each of the jobs, the progress that the batch's first barrier reports. `sent` counts the changes
    of each job.
    """

    def __init__(
        self,
        task: LaneTask,
        jobs: Sequence[LaneJob],
        writers: LaneWriters,
        reported: Sequence[Mapping[int, Progress]],
    ) -> None:
        self._task, self._jobs, self._writers, self._reported = task, jobs, writers, reported
        self.sent: Counter[str] = Counter()
        self._closed = 0

    def send(self, changes: Changes) -> None:
        """Send a part."""
        if not len(changes):
            return
        visible = [(job, _visible(self._task, job, changes)) for job in self._jobs]
        for number in range(int(changes.interval[0]), int(changes.interval[-1]) + 1):
            self._close_before(number)
            for job, runs in visible:
                self._send_run(job, runs[number])

    def end(self) -> None:
        """Send the barriers that are left: there is nothing before them any more."""
        self._close_before(len(self._task.plan.barriers))

    def _send_run(self, job: LaneJob, run: Run) -> None:
        if len(run):
            self._writers.of(job.output).changes(run)
            self.sent[job.definition.name] += len(run)

    def _close_before(self, number: int) -> None:
        """The barriers of all intervals before this one; positions are reported by the batch's first."""
        for closed in range(self._closed, number):
            upstream = self._task.plan.barriers[closed].barrier
            for job, reported in zip(self._jobs, self._reported, strict=True):
                for partition in job.partitions:
                    barrier = job.barrier(upstream, partition, {} if closed else reported)
                    self._writers.of(job.output).barrier(job.output, partition, barrier)
        self._closed = max(self._closed, number)


def _visible(task: LaneTask, job: LaneJob, changes: Changes) -> list[Run]:
    """What the job's output gets of every interval."""
    shown = job.scan.covered(changes, job.positions)
    names = task.table.column_names
    before_passes = job.passes(dict(zip(names, changes.before, strict=True)))
    after_passes = job.passes(dict(zip(names, changes.after, strict=True)))
    ops = changes.ops
    if before_passes is not None and after_passes is not None:
        halves = (mask.to_numpy(zero_copy_only=False) for mask in (before_passes, after_passes))
        ops = visible_ops(ops, *halves)
    rows = np.flatnonzero(shown & (ops != HIDDEN))
    definition, parts = job.definition, job.scan.parts_of(changes)[rows]
    # `partition_of`, of whole columns.
    partitions = parts.astype(np.int64) * definition.output_partitions // definition.part_count
    return ChangeColumns(
        output=job.output,
        decoded=changes,
        rows=rows,
        ops=ops[rows],
        partitions=partitions.astype(np.int32),
        parts=parts,
        bounds=np.searchsorted(rows, changes.bounds(len(task.plan.barriers))),
        barriers=[aligned.barrier for aligned in task.plan.barriers],
    ).runs()
