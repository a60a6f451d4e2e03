"""State of the stream in memory: the position, the jobs and their progress, from which the next batch is planned.

All of it follows from journal, log and progress; a restart restores it (`streaming.protocol.recovery.recover`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import structlog

from schemas.errors import BackfillError
from schemas.job import JobDefinition
from schemas.table import TableSchema
from state.progress_table import ProgressRow
from state.values.aligned import AlignedBarrier, padded
from state.values.plan import BatchPlan, JobState
from state.values.progress import Parts
from state.values.seen import Marks
from streaming.core.batch_size import BatchSizer
from streaming.core.jobs import (
    JobsOutcome,
    MayAlter,
    MutationReport,
    add_configured,
    ended_where_complete,
    jobs_after,
)

log = structlog.get_logger(__name__)


class StreamState:
    """Changed by the thread that runs batches, read by others. `first_offsets` is the beginning of the upstream.

    `declared_lanes` are those of the configuration; `may_alter` as in `jobs_after`.
    """

    def __init__(
        self,
        table: TableSchema,
        first_offsets: Sequence[int],
        batch_sizer: BatchSizer,
        declared_lanes: int,
        may_alter: MayAlter,
    ) -> None:
        self._table, self._batch_sizer, self._declared_lanes = table, batch_sizer, declared_lanes
        self._may_alter = may_alter
        self._beginning = tuple(first_offsets)
        self.position: AlignedBarrier | None = None
        self.jobs: tuple[JobState, ...] = ()
        self.progress: dict[str, Parts] = {}
        """By job, the progress of its parts that were started."""
        self.built: tuple[int, ...] | None = None
        """End of the parts of the interval behind the position that are in the log; None without parts."""
        self.seen: Marks = {}
        """The positions seen of the upstream up to the end of the log, if its records may be redelivered."""
        self.lanes_set: int | None = None
        """Number that the last `Lanes` has set; None where the configuration's holds."""
        self.moved_at = 0
        """The last barrier that has reported added partitions, 0 for none."""
        self.configured: tuple[JobDefinition, ...] = ()
        """Jobs of the configuration that are still to be added."""
        self._in_file: frozenset[str] = frozenset()
        self._delayed: set[str] = set()
        self._refused: list[MutationReport] = []

    @property
    def epoch(self) -> int:
        """Epoch of the position; 0 at the beginning."""
        return 0 if self.position is None else self.position.epoch

    @property
    def lanes(self) -> int:
        """The lanes of the next batch."""
        return self.lanes_set or self._declared_lanes

    @property
    def starts(self) -> dict[str, int]:
        """The barrier that each job starts with."""
        return {job.name: job.start for job in self.jobs}

    def next_offsets(self) -> tuple[int, ...]:
        """First offset of each upstream partition that no batch has handled."""
        known = self.built or (() if self.position is None else self.position.ends)
        return padded(known, self._beginning)

    def configure(self, jobs: Sequence[JobDefinition]) -> None:
        """Jobs of the configuration; those not known yet start at the end of the next batch."""
        self.configured = tuple(job.with_partitions(len(self._beginning)) for job in jobs)
        self._in_file = frozenset(job.name for job in jobs)

    def refuse(self, job: JobState, error: BackfillError, *, may_raise: bool = True) -> None:
        """Remove a new job that is incompatible, or whose topics or schemas are. The next batch reports it.

        Raises: the error, for a job of the configuration that was not delayed: the operator is watching the start.
        """
        if may_raise and job.name in self._in_file - self._delayed:
            raise error
        self._refused.append(MutationReport(job.start, f"add {job.name}: {error}", error.code))
        self._remove(job)

    def add_report(self, report: MutationReport) -> None:
        """Add a report to the next batch."""
        self._refused.append(report)

    def delay(self, job: JobState, problem: BackfillError) -> bool:
        """Start a new job of the configuration one batch later. False for any other job, which would be lost."""
        if job.name not in self._in_file:
            return False
        if job.name not in self._delayed:
            log.warning("job_waits", job=job.name, code=problem.code, found=problem.found)
        self._delayed.add(job.name)
        self._remove(job)
        self.configured = (*self.configured, job.definition)
        return True

    def drop(self, names: Collection[str]) -> None:
        """Remove jobs that an operator has dropped between two batches."""
        for job in self.jobs:
            if job.name in names:
                self._remove(job)

    def replace_job(self, job: JobState, new: JobState) -> None:
        """Replace a job, which is found by identity."""
        self.jobs = tuple(new if each is job else each for each in self.jobs)

    def _remove(self, job: JobState) -> None:
        self.jobs = tuple(each for each in self.jobs if each.name != job.name)
        self.progress.pop(job.name, None)

    def take_refused(self) -> tuple[MutationReport, ...]:
        """The reports of `refuse` since the last call."""
        refused, self._refused = tuple(self._refused), []
        return refused

    def raised_by(
        self, plan: BatchPlan, rows_read: Mapping[str, Mapping[int, int]]
    ) -> tuple[dict[str, Parts], list[ProgressRow]]:
        """The progress of jobs that have read, once the plan is done, and its rows; nothing is changed here."""
        after = {}
        for job in plan.jobs:
            if job.slices:
                name = job.state.name
                after[name] = Parts(job.progress_after(self.progress.get(name, {}), rows_read.get(name, {})))
        rows = [
            ProgressRow(job.state.name, item.part, after[job.state.name][item.part])
            for job in plan.jobs
            for item in job.slices
        ]
        return after, rows

    def settle(self, plan: BatchPlan, configured: Sequence[JobDefinition]) -> JobsOutcome:
        """Advance to the plan's end. `configured` jobs that are new start there."""
        outcome = jobs_after(plan, self._table, self._may_alter)
        before = {job.name for job in outcome.jobs}
        self.jobs = add_configured(outcome.jobs, configured, plan.epoch)
        dropped = self.progress.keys() - {job.name for job in self.jobs}
        for name in dropped:
            self.progress.pop(name)
            self._batch_sizer.forget(name)
        for job in self.jobs:
            if job.name not in before or job.start == plan.epoch:
                self.progress[job.name] = job.first_progress
                self._batch_sizer.forget(job.name)
        self.jobs = ended_where_complete(self.jobs, self.progress)
        self.position, self.built, self.lanes_set = plan.end, None, outcome.lanes
        self.moved_at = plan.moved_after
        return outcome
