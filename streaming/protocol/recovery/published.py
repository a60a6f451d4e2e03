"""Positions as an output's barriers publish them, read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.job import JobDefinition
from schemas.kinds.lanes import parts_of
from schemas.position import position_from_text
from schemas.records import Barrier, VnodeProgress
from schemas.table import TableSchema
from state.values.plan import BatchPlan
from state.values.progress import Completed, InProgress, NotStarted, Progress

_FINISHED = object()


def progress_of(job: JobDefinition, published: VnodeProgress, table: TableSchema) -> Progress:
    """The progress of a part. Raises: ValueError for a position that is none of the job's."""
    text, columns = published.position, job.scan.position_columns(table)
    position = None if text is None else position_from_text(text, columns)
    if published.finished:
        return Completed(position, published.row_count)
    return NotStarted() if position is None else InProgress(position, published.row_count)


def mark(progress: Progress) -> object:
    """The position alone: what decides which changes are sent, whatever was counted on the way to it."""
    return _FINISHED if isinstance(progress, Completed) else progress.position


def is_of_another_plan(
    plan: BatchPlan,
    progress: Mapping[str, Mapping[int, Progress]],
    tails: Mapping[str, Sequence[Barrier | None] | None],
    table: TableSchema,
) -> bool:
    """Whether an output was sent by another plan than this one: its last barrier has other positions.

    `progress` is the jobs' before the plan, `tails` are the last barriers of each output's partitions.
    """
    if len(plan.barriers) > 1:
        return False  # positions are in the first barrier of a batch
    for job in plan.jobs:
        definition, before = job.state.definition, progress.get(job.state.name, {})
        for partition, tail in enumerate(tails[definition.output] or ()):
            if tail is None or tail.curr != plan.epoch:
                continue
            parts = parts_of(definition, partition)
            planned = {part: mark(before.get(part, NotStarted())) for part in parts if tail.full}
            planned |= {
                item.part: _FINISHED if item.upto is None else item.upto
                for item in job.slices
                if item.part in parts
            }
            if planned != {item.vnode: mark(progress_of(definition, item, table)) for item in tail.progress}:
                return True
    return False
