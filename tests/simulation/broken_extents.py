"""Drivers that get the extent of a job wrong: what one that begins now sends, or when one has ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from schemas.job import JobDefinition
from state.progress_table import ProgressTable
from state.values.aligned import AlignedBarrier
from state.values.plan import BatchPlan, JobPlan, JobState
from state.values.progress import Parts
from streaming.protocol.batches import Batches
from streaming.protocol.planner import DuplicatesBefore, Planner
from streaming.protocol.recovery.forward import Forward
from streaming.protocol.recovery.recover import Recovery
from streaming.protocol.recovery.steps import Step


class _ForgetsNow(ProgressTable):
    def load(self, jobs: Iterable[JobState]) -> dict[str, Parts]:
        everything = (replace(job, definition=replace(job.definition, from_now=False)) for job in jobs)
        return super().load(everything)


class SendsRowsFromBefore(Batches):
    """Of a job that begins now, once it was started again."""

    progress_type = _ForgetsNow


class _GoesOn(Recovery):
    def go_on_behind(self, plan: BatchPlan) -> None:
        super().go_on_behind(plan)
        self.executor.state.jobs = tuple(replace(job, ended=False) for job in self.executor.state.jobs)


class SendsBehindTheEnd(Batches):
    """To an output that has ended, once it was started again."""

    recovery_type = _GoesOn


class _KeepsNoEnd(Planner):
    def ordinary(self, waiting: Sequence[AlignedBarrier], duplicates: DuplicatesBefore) -> BatchPlan:
        plan = super().ordinary(waiting, duplicates)
        return plan.with_jobs([JobPlan(replace(job.state, ended=False), job.slices) for job in plan.jobs])


class NeverEnds(Batches):
    """No plan has it that a job has ended, so lanes send to it."""

    planner_type = _KeepsNoEnd


class CountsEnded(Forward):
    """Outputs that have ended are taken for outputs that are behind."""

    def step(
        self,
        jobs: Sequence[JobState],
        configured: Iterable[JobDefinition],
        position: int,
        tables: Iterable[int],
    ) -> Step | None:
        going_on = [replace(job, ended=False) for job in jobs]
        return super().step(going_on, configured, position, tables)
