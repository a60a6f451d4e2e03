"""Shares of a lane's changes for its jobs.

    own        changes of the lane's vnodes in the batch: they become part of the log, and jobs that read the replica
               are sent from them
    upstream   records of the lane's upstream partitions, from before the batch too: for jobs that read the upstream

Without a job of the second kind the lane gets only its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from state.values.plan import BatchPlan
from streaming.core.offset_ranges import readers
from streaming.lane.changes import Bools, Changes
from streaming.lane.task import LaneJob, LaneTask


@dataclass(frozen=True)
class Shares:
    """The shares of one part of a lane's changes, in their order. `upstream` is None if no job reads it."""

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
