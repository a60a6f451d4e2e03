"""Plans the next batch from topics and tables.

Nothing here has an effect on topics or tables. Schemas of new outputs are registered, for a plan has their ids, which
lanes send. Registering them again, after a crash, gives the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem, TopicError
from schemas.job import JobDefinition
from schemas.kinds.lanes import rescale_incompatibility
from schemas.records import RecordId
from schemas.settings.security import hash_key_of
from state.progress_table import ProgressTable
from state.replica import Replica
from state.values.aligned import AlignedBarrier, Pin, ReplicaVersion
from state.values.plan import BatchPlan, JobPlan, JobState, Slice
from state.values.progress import parts_done
from state.values.seen import Marks, without_columns
from streaming.core.batch_size import BatchSizer
from streaming.core.jobs import PAUSED_AT_START, MutationReport
from streaming.core.planning import CutFunction, choose_barriers, of_half_a_minute, upto_released
from streaming.protocol.recovery.steps import Step, fenced_if_superseded, out_of_step, upto_mutation
from streaming.protocol.setup import BatchSetup
from streaming.protocol.stream_state import StreamState
from streaming.protocol.table_read import TableReading
from streaming.scan.kinds import Scans
from streaming.sink.protocol import is_of_job

log = structlog.get_logger(__name__)

DuplicatesBefore = Callable[[AlignedBarrier], Sequence[RecordId]]
"""Records, (partition, offset), before a barrier that repeat a barrier."""


class Planner:
    """Makes the plans of one service. Called by the thread that runs batches."""

    def __init__(
        self,
        setup: BatchSetup,
        *,
        replica: Replica,
        scans: Scans,
        progress_table: ProgressTable,
        batch_sizer: BatchSizer,
        state: StreamState,
        reading: TableReading,
    ) -> None:
        self._setup, self._journal, self._forward = setup, setup.journal, setup.forward
        self._replica, self.scans, self._progress_table = replica, scans, progress_table
        self._batch_sizer, self._state, self._reading = batch_sizer, state, reading
        self._stand_still = set[str]()

    def step(self) -> Step | None:
        """The step by which the next batch brings an older state forward, None for an ordinary batch."""
        state, forward = self._state, self._forward
        tables = self._replica.log_epoch, self._replica.compacted_epoch, self._progress_table.epoch
        with fenced_if_superseded(self._journal):
            state.jobs = forward.joined(state.jobs, state.configured, state.epoch)
            state.progress = {job.name: job.first_progress for job in state.jobs} | state.progress
            return forward.step(state.jobs, state.configured, state.epoch, tables)

    def first_part(self, barrier: AlignedBarrier, repeated: Sequence[RecordId]) -> BatchPlan:
        """The interval up to a barrier that no job waits for, before it is cut into parts."""
        return self._plan((barrier,), self._replica.pin(), repeated, releases=False)

    def forward_step(
        self, step: Step, barriers: Sequence[AlignedBarrier], duplicates: DuplicatesBefore
    ) -> BatchPlan:
        """The plan of a step over all of these barriers.

        Raises: as `Registering.ids_of`; StateError(OUTPUT_OUT_OF_STEP) while the table is read from its database:
        a table can't be read as of a barrier that is over.
        """
        if self._reading.is_on:
            with fenced_if_superseded(self._journal):
                raise out_of_step(
                    f"outputs that hold barrier {step.upto}, and a table that is not yet read to its end",
                    "a state that is older than its outputs only once its table is there",
                )
        if not step.silent:
            self._state.jobs = tuple(map(self._with_ids, self._state.jobs))
        plan = self._plan(barriers, self._replica.pin(), duplicates(barriers[-1]))
        jobs = self._forward.jobs_of(step, self._state.jobs, self._state.progress)
        lanes = self._forward.lanes_of(step, jobs, self._state.lanes)
        return replace(plan.with_jobs(self._counted(jobs)), lanes=lanes, silent=step.silent)

    def ordinary(self, waiting: Sequence[AlignedBarrier], duplicates: DuplicatesBefore) -> BatchPlan:
        """The plan over the first of the waiting barriers. Incompatible new jobs are refused.

        Raises: TopicError for such a job of the configuration, ConfigError and EnvironmentProblem likewise.
        """
        state, version = self._state, self._replica.pin()
        if any(job.definition.sends_new for job in state.jobs):
            waiting = of_half_a_minute(waiting)
        barriers = tuple(
            choose_barriers(waiting, state.next_offsets(), self._batch_sizer.most_records(state.lanes))
        )
        if not self._forward.is_over:
            barriers = upto_mutation(barriers)
        self._pause_at_start(barriers[-1].epoch)
        pin = Pin(version, state.next_offsets())
        before = {job.name: job.definition.output_partitions for job in state.jobs}
        known = 0 if state.position is None else len(state.position.ends)
        state.jobs = tuple(job.with_partitions(len(pin.offsets), known) for job in state.jobs)
        for job in state.jobs:
            if not job.opened:
                self._check_new(job, pin)
        self._register()
        jobs = self._counted(_gained(job, before) for job in self._planned(pin, barriers[-1]))
        return self._plan(barriers, version, duplicates(barriers[-1])).with_jobs(jobs)

    def _counted(self, jobs: Iterable[JobPlan]) -> list[JobPlan]:
        """With the parts that no-shuffle backfills have left, which decide about `Lanes`."""
        progress = self._state.progress
        return [
            replace(job, left=definition.part_count - parts_done(progress.get(definition.name, {})))
            if (definition := job.state.definition).is_coupled
            else job
            for job in jobs
        ]

    def _pause_at_start(self, epoch: int) -> None:
        state, pause = self._state, self._setup.start_pause
        if pause.is_due:
            state.add_report(MutationReport(epoch, PAUSED_AT_START))
        state.jobs = pause.planned(state.jobs, epoch)

    def _planned(self, pin: Pin, end: AlignedBarrier) -> list[JobPlan]:
        state, cut_of = self._state, self.cut_of(pin)
        able = [replace(job, paused=job.paused or self._has_lost(job, pin)) for job in state.jobs]
        planned = self._batch_sizer.plan_jobs(able, state.progress, end, cut_of, self._setup.now_ms())
        return [replace(plan, state=job) for plan, job in zip(planned, state.jobs, strict=True)]

    def cut_of(self, pin: Pin) -> Callable[[JobDefinition], CutFunction]:
        """By job, the end of its slices: before unreleased rows, while the table is read from its database."""
        cut_of, reading = self.scans.cut_of(pin), self._reading
        if not reading.is_on:
            return cut_of
        return lambda job: upto_released(cut_of(job), reading.released)

    def _has_lost(self, job: JobState, pin: Pin) -> bool:
        """True if the rows that the job would read next are gone, so that it has to stand still. Logged once."""
        lost = self.scans.scan_for(job.definition).lost(pin, self._state.progress.get(job.name, {}))
        if lost is not None and job.name not in self._stand_still:
            log.error("job_stands_still", job=job.name, code=Code.DATA_LOST, gone=lost, next_step="drop it")
            self._stand_still.add(job.name)
        return lost is not None

    def _plan(
        self,
        barriers: Sequence[AlignedBarrier],
        version: ReplicaVersion,
        skipped: Sequence[RecordId],
        *,
        releases: bool = True,
    ) -> BatchPlan:
        plan = BatchPlan(
            start=self._state.position,
            barriers=tuple(barriers),
            first_offsets=self._state.next_offsets(),
            replica=version,
            lanes=self._state.lanes,
            lanes_set=self._state.lanes_set,
            skipped=tuple(sorted(skipped)),
            seen=self._seen(),
            progress_epoch=self._progress_table.epoch,
            moved_at=self._state.moved_at,
        )
        self._refuse_moved(plan)
        # A long interval is not held whole, and its chunks can wait for the next one.
        releases = releases and plan.max_records <= self._setup.limits.interval_records
        return replace(plan, reading=self._reading.planned(plan.end_offsets, releases=releases))

    def _seen(self) -> Marks:
        """The state of the partitions; frames that lack a retired column have not lost it if it comes back."""
        retired = [column.name for column in self._setup.table.columns if column.is_retired]
        return without_columns(self._state.seen, retired) if retired else self._state.seen

    def _refuse_moved(self, plan: BatchPlan) -> None:
        """Raises: TopicError(PARTITIONS_CHANGED) where events of a key that wait for its chunk would have no order."""
        if self._reading.is_on and plan.moves_from is not None:
            raise TopicError(
                Code.PARTITIONS_CHANGED,
                where=self._setup.bad_records.topic,
                found="partitions that were added while the table is read from its database",
                partitions=min(
                    each.barrier.partitions for each in (plan.start or plan.end, plan.barriers[0])
                ),
                before="when the table began to be read",
            )

    def _check_new(self, job: JobState, pin: Pin) -> None:
        if job.definition.from_now and self._reading.is_on:
            self._wait_for_table(job)
            return
        try:
            reason = self.scans.scan_for(job.definition).incompatibility(job.definition, pin)
            reason = self._rescaled(job) or reason
            if reason is not None:
                raise ConfigError(Code.JOB_INVALID, where=f"job {job.name}", found=reason)
            hash_key_of(job.definition)
            self._setup.sink_of(job.definition).refuse_used(job.definition)
        except BackfillError as error:
            if not is_of_job(error, job.definition):
                raise
            if self._journal.is_superseded:  # the records are the successor's
                raise self._journal.fenced() from error
            # A `Lanes` since the start is no fault of the configuration, for which the service would end.
            self._state.refuse(job, error, may_raise=self._rescaled(job) is None)

    def _rescaled(self, job: JobState) -> str | None:
        state, table = self._state, self._setup.table
        return rescale_incompatibility(
            state.lanes, [(job.definition, False)], table, len(state.next_offsets())
        )

    def _wait_for_table(self, job: JobState) -> None:
        # Changes of rows that are not released yet come with these rows, and not as changes.
        problem = ConfigError(
            Code.JOB_INVALID,
            where=f"job {job.name}",
            found="from: now while the table is read from its database",
            expected="a table that is read to its end",
            next_step="create it once `backfill status` shows no reading",
        )
        if not self._state.delay(job, problem):
            self._state.refuse(job, problem)

    def _register(self) -> None:
        for job in self._state.jobs:
            try:
                self._state.replace_job(job, self._with_ids(job))
            except (ConfigError, EnvironmentProblem) as error:
                if job.opened:
                    raise
                self._put_off(job, error)

    def _with_ids(self, job: JobState) -> JobState:
        definition = job.definition
        if not definition.format.framed or definition.format.ids is not None:
            return job
        return replace(job, definition=definition.with_ids(self._setup.registers.ids_of(definition)))

    def _put_off(self, job: JobState, error: BackfillError) -> None:
        # A registry that is away is no fault of a job. A job of the configuration is tried again with the next batch.
        if error.code is not Code.REGISTRY_UNREACHABLE or not self._state.delay(job, error):
            self._setup.registers.forget(job.definition)
            self._state.refuse(job, error)


def _gained(job: JobPlan, before: Mapping[str, int]) -> JobPlan:
    """With the partitions that the output gains: nothing is there to be read, so each is read to its end at once."""
    first, count = before.get(job.state.name, 0), job.state.definition.output_partitions
    if job.opens or not 0 < first < count:
        return job
    planned = {item.part for item in job.slices}
    added = tuple(Slice(part, None, None) for part in range(first, count) if part not in planned)
    return replace(job, slices=job.slices + added, gains_from=first)
