"""A plan whose slices can't be sent: they take too long or too much memory, or a row is longer than its output takes.

The plan in the journal is executed until it is done, so one that is too large would be tried for ever, and no pause,
throttle or drop behind it would take effect. Its slices may be given up as long as nothing of it was sent.

Slices take too long where the broker ends the transaction, and too much memory where workers die of them:

    1  the journal gets a new version: a lane of an older task that opens its output from here on finds itself
       superseded, and sends nothing
    2  every lane's id is fenced, which ends its open transaction
    3  the tails of all lanes are read. If all of them end with the barrier before, the same batch without slices takes
       the plan's place, and the next ones read less. If a lane has sent its part the plan stays, and the other lanes
       get as much time as for an interval in parts (`limits.long_transaction`)

Of a row that its output does not take only the job's own slices are given up, those of lanes that have not sent them,
and the job is paused: it stands before the row then, and goes on once it is resumed.

It is the order of a takeover, for the same reason: if tails were read before step 1 or 2, a lane that Spark had lost
could send its part of the old plan afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from schemas.errors import BackfillError, Code
from state.journal import Journal, is_superseded
from state.values.plan import BatchPlan, JobPlan
from streaming.core.jobs import MutationReport
from streaming.lane.task import LaneJob, LaneTask, LongRow, places_before

log = structlog.get_logger(__name__)


def is_overrun(task: LaneTask, problem: BackfillError, took_ms: float, attempt: int) -> bool:
    """True if an attempt failed by its slices: the transaction's time was over, or lanes died twice.

    The error of a timeout is no criterion: a fenced epoch, a lost coordinator and messages that expired look the same.
    An attempt that was shorter than a transaction may be did not fail by it.
    """
    # Where the registry was waited for, no lane had begun to send; a silent batch sends nothing, and reads no slice.
    if problem.code is Code.REGISTRY_UNREACHABLE or not any(job.slices for job in task.plan.sent_jobs):
        return False
    return took_ms >= task.transaction_timeout_ms or (problem.code is Code.SPARK_FAILED and attempt > 1)


class Overruns:
    """Relieves plans of one journal, whose owner is this instance."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def relieved(self, task: LaneTask, task_for: Callable[[BatchPlan], LaneTask]) -> LaneTask:
        """The task of the same batch without slices, or of the same plan with more time.

        Raises: Fenced when another instance has taken over; as `Writer.already_sent`; EnvironmentProblem.
        """
        self._journal.write_plan(task.plan)
        renewed = task_for(task.plan)
        if self.nothing_was_sent(renewed):
            plan = without_slices(task.plan)
            self._journal.write_plan(plan)
            log.warning("plan_given_up", epoch=plan.epoch, reason="too slow for a transaction, or too large")
            return task_for(plan)
        log.warning("plan_gets_more_time", epoch=task.plan.epoch)
        return replace(renewed, unhurried=True)

    def without_reads(
        self, task: LaneTask, row: LongRow, task_for: Callable[[BatchPlan], LaneTask]
    ) -> LaneTask:
        """The task of the same batch in which the job of a row is paused, and reads no slice that was not sent.

        Raises: as `relieved`.
        """
        self._journal.write_plan(task.plan)
        renewed = task_for(task.plan)
        sent = [lane for lane in range(task.plan.lanes) if self._has_sent(renewed, lane)]
        plan = task.plan.with_jobs([_paused(job, row, renewed, sent) for job in task.plan.jobs])
        self._journal.write_plan(plan)
        log.error(
            "job_paused",
            job=row.job,
            code=Code.RECORD_TOO_LARGE,
            key=row.key,
            found=row.found,
            expected=row.expected,
            next_step="raise the limit and resume the job, or drop it",
        )
        return task_for(plan)

    def nothing_was_sent(self, task: LaneTask) -> bool:
        """True if all lanes' partitions end with the barrier before the batch; then all lanes are fenced."""
        return not any(self._has_sent(task, lane) for lane in range(task.plan.lanes))

    def _has_sent(self, task: LaneTask, lane: int) -> bool:
        before = places_before(task, [LaneJob.of(task, job, lane) for job in task.plan.sent_jobs])
        if not before:
            return False
        with task.open_writers(lane, before) as writers:
            if is_superseded(task.storage, task.journal_version):
                raise self._journal.fenced()
            return any(writers.already_sent(before, task.plan.epoch, {}))


def _paused(job: JobPlan, row: LongRow, task: LaneTask, sent: Sequence[int]) -> JobPlan:
    if job.state.name != row.job:
        return job
    parts = {part for lane in sent for part in task.parts(job.state.definition, lane)}
    kept = tuple(item for item in job.slices if item.part in parts)
    return replace(job, state=replace(job.state, paused=True, paused_by=reason_of(row)), slices=kept)


def reason_of(row: LongRow) -> str:
    """The error of a row that its job's output does not take, in one line."""
    remedy = f"raise it and resume {row.job}, or drop {row.job}"
    found = f"found {row.found}; expected {row.expected}; next: {remedy}"
    return f"{Code.RECORD_TOO_LARGE} at the row {row.key}: {found}"


def report_of(row: LongRow, plan: BatchPlan) -> MutationReport:
    """The report of a job that is paused before a row."""
    return MutationReport(plan.epoch, f"pause {row.job}: {reason_of(row)}", Code.RECORD_TOO_LARGE)


def without_slices(plan: BatchPlan) -> BatchPlan:
    """The batch without reading: jobs open, changes and barriers flow."""
    return plan.with_jobs([replace(job, slices=()) for job in plan.jobs])
