"""A batch: plan it (`planner`), execute its effects (`executor`) in the order of `effects`, and report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from schemas.job import JobDefinition
from schemas.records import RecordId
from state.progress_table import ProgressTable
from state.replica import Replica
from state.values.aligned import AlignedBarrier
from state.values.plan import BatchPlan, JobState
from state.values.progress import Progress, is_complete
from streaming.core.batch_size import BatchSizer
from streaming.core.jobs import reads_on
from streaming.core.offset_ranges import part_ends
from streaming.protocol.effects import Effect, effects_of
from streaming.protocol.executor import Done, Executor
from streaming.protocol.lanes.attempts import LaneAttempts, LaneTasks
from streaming.protocol.lanes.overrun import Overruns
from streaming.protocol.planner import DuplicatesBefore, Planner
from streaming.protocol.recovery.recover import Recovery
from streaming.protocol.report import BatchReport, StateAtBarrier
from streaming.protocol.setup import BatchSetup
from streaming.protocol.stream_state import StreamState
from streaming.protocol.table_read import TableReading
from streaming.runtime import failpoints
from streaming.runtime.timing import Stopwatch
from streaming.scan.kinds import Scans, UpstreamLog

OnPart = Callable[[BatchPlan], None]
"""Called after each part of a long interval, with the part's plan."""


class Batches:
    """The one writer of the state. All calls come from one thread at a time.

    A canary, which breaks a component to prove that tests notice it, sets a type of its own here.
    """

    replica_type: type[Replica] = Replica
    scans_type: type[Scans] = Scans
    progress_type: type[ProgressTable] = ProgressTable
    overruns_type: type[Overruns] = Overruns
    tasks_type: type[LaneTasks] = LaneTasks
    planner_type: type[Planner] = Planner
    executor_type: type[Executor] = Executor
    recovery_type: type[Recovery] = Recovery

    def __init__(self, setup: BatchSetup) -> None:
        storage, table = setup.storage, setup.table
        limits = setup.limits
        self._setup, self._batch_sizer = setup, BatchSizer(limits.lane_bytes, limits.rate_limit)
        # Opened in reverse order of effects: the instance that we took over from may still be making its last ones. If
        # its progress is visible here, so is its log.
        progress_table = self.progress_type(storage, table)
        self.replica = self.replica_type(storage, table)
        log = UpstreamLog(setup.upstream_format, setup.begins, self._batch_sizer.likely_bytes)
        scans = self.scans_type(self.replica, log)
        self.state = StreamState(
            table, setup.first_offsets, self._batch_sizer, setup.declared_lanes, setup.may_alter
        )
        self.reading = TableReading(storage, table, setup.reads)
        tasks = self.tasks_type(setup, self.replica, scans, self._batch_sizer, self.reading)
        self._tasks = tasks
        self._attempts = LaneAttempts(setup, tasks, self.overruns_type(setup.journal))
        self.executor = self.executor_type(
            setup=setup,
            attempts=self._attempts,
            replica=self.replica,
            progress_table=progress_table,
            state=self.state,
            reading=self.reading,
            effects_of=self.effects_of,
        )
        self._planner = self.planner_type(
            setup,
            replica=self.replica,
            scans=scans,
            progress_table=progress_table,
            batch_sizer=self._batch_sizer,
            state=self.state,
            reading=self.reading,
        )
        self.ending = False
        """Set it to begin no further part of a long interval."""

    def effects_of(self, plan: BatchPlan) -> tuple[Effect, ...]:
        return effects_of(plan)

    # read by others ----------------------------------------------------------------------------------------

    @property
    def position(self) -> AlignedBarrier | None:
        """The barrier that the last batch ended with."""
        return self.state.position

    @property
    def jobs(self) -> tuple[JobState, ...]:
        """The jobs of the next batch."""
        return self.state.jobs

    @property
    def progress(self) -> Mapping[str, Mapping[int, Progress]]:
        """By job and part; parts that were not started are missing."""
        return self.state.progress

    @property
    def state_at_barrier(self) -> StateAtBarrier:
        """The state between two batches."""
        setup = self._setup
        return StateAtBarrier(
            self.jobs,
            dict(self.progress),
            self.replica.files(self.replica.pin()),
            setup.table.vnode_count,
            self.state.epoch,
            self.state.lanes,
            self.next_offsets(),
            self.state.lanes_set is not None,
            self.state.moved_at,
        )

    @property
    def finished_epoch(self) -> int:
        """The epoch of the last finished batch; 0 before the first."""
        entry = self._setup.journal.current
        if entry is None or entry.plan is None:
            return 0
        epochs = self.executor.progress_table.epoch, self.replica.log_epoch
        return entry.plan.finished_epoch(is_done=entry.plan.is_done(*epochs))

    def reads_on(self, done: BatchReport) -> bool:
        return reads_on(
            self.jobs,
            self.progress,
            done.plan,
            done.snapshot_rows,
            is_table_read=self.reading.is_on,
            interval_records=self._setup.limits.interval_records,
        )

    def next_offsets(self) -> tuple[int, ...]:
        """First offset of each upstream partition that no batch has handled."""
        return self.state.next_offsets()

    def adopt_schema(self) -> None:
        """Take what is new in the table's version into its Delta tables. For the owner, behind the fences.

        The last commit of the instance before may come just ahead of it.
        """
        self.executor.commit(self.replica.adopt_schema, self.replica.reload)

    def configure(self, jobs: Sequence[JobDefinition]) -> None:
        """Jobs of the configuration; those not known yet start at the end of the next batch."""
        self.state.configure(jobs)

    def on_each_part(self, on_part: OnPart) -> None:
        self.executor.on_part = on_part

    def give_up(self) -> None:
        """Stop retrying lanes."""
        self._attempts.give_up = True

    # batches -----------------------------------------------------------------------------------------------

    def recover(self) -> BatchReport | None:
        """Finish the batch of the journal that may be half done. Returns its report, if any."""
        effects = self.recovery_type(self.executor).left_to_do()
        if not effects:
            return None
        if effects[0].plan.until is not None:
            self._execute_part(effects)
            return None
        return self._execute(effects, Stopwatch())

    def run_batch(
        self, waiting: Sequence[AlignedBarrier], duplicates: DuplicatesBefore
    ) -> BatchReport | None:
        """One batch over the first of the waiting barriers: those of `report.plan.barriers`.

        None if it was asked to end (`ending`) between two parts of a long interval, or if barriers are still to come
        that the outputs hold already.
        """
        # 1. A state that is older than its outputs is brought forward first, up to a barrier that they hold.
        step = self._planner.step()
        if step is not None:
            most = self._batch_sizer.most_records(self.state.lanes)
            found = step.barriers_of_batch(waiting, self.next_offsets(), most)
            if found is None:
                return None
            waiting = found
        # 2. Without a job, all parts but the last of a long interval go into the log.
        repeated: tuple[RecordId, ...] = ()
        if not self.jobs:
            repeated = tuple(duplicates(waiting[0]))
            if not self._build(waiting[0], repeated):
                return None
        # 3. The plan of the batch, and its effects.
        clock = Stopwatch()

        def all_duplicates(end: AlignedBarrier) -> tuple[RecordId, ...]:
            return (*repeated, *duplicates(end))

        if step is None:
            plan = self._planner.ordinary(waiting, all_duplicates)
        else:
            plan = self._planner.forward_step(step, waiting, all_duplicates)
        return self._execute(self.effects_of(plan), clock)

    def _build(self, barrier: AlignedBarrier, repeated: tuple[RecordId, ...]) -> bool:
        """Append the interval before a barrier to the log, up to a last part that an ordinary batch can take.

        Each part of a long interval (of a topic that is older than the service) is recorded in the journal, so a crash
        or a lost worker costs one part at most. False: it was asked to end before.
        """
        plan = self._planner.first_part(barrier, repeated)
        if self._tasks.moves_from(plan) is not None:  # parts would not keep the order of a key's partitions
            return True
        for until in part_ends(plan.first_offsets, plan.end_offsets, self._setup.limits.interval_records):
            if self.ending:
                return False
            # A part begins at the end of the parts before it, and sees their rows.
            part = replace(plan, first_offsets=self.next_offsets(), replica=self.replica.pin(), until=until)
            self._execute_part(self.effects_of(replace(part, seen=self.state.seen)))
        return True

    def _execute_part(self, effects: Sequence[Effect]) -> None:
        done = self.executor.execute(effects, Stopwatch())
        self._batch_sizer.learn_change_bytes(done.sums.changes, done.sums.held_bytes)

    def _execute(self, effects: Sequence[Effect], clock: Stopwatch) -> BatchReport:
        failpoints.expect(last=self._ends_a_job(effects[0].plan))
        done = self.executor.execute(effects, clock)
        self._learn(done, sum(clock.step_ms.values()))
        return self._report(done)

    def _ends_a_job(self, plan: BatchPlan) -> bool:
        for job in plan.jobs:
            after = job.progress_after(self.progress.get(job.state.name, {}))
            if job.slices and is_complete(after, job.state.definition.part_count):
                return True
        return False

    def _learn(self, done: Done, took_ms: float) -> None:
        """Update the estimates for the next plans: size of a change, time of a snapshot row, fixed time of a batch."""
        sums = done.sums
        lane_ms, rows = sums.lane_ms, sums.snapshot_rows
        side_by_side = min(self._setup.lanes.slots, done.plan.lanes)
        read_ms = (lane_ms.get("snapshot", 0.0) + lane_ms.get("commit", 0.0)) / side_by_side if rows else 0.0
        if any(sums.history_rows.values()):
            # They are read, decoded and sent with the changes, so the time above that of other batches is theirs.
            read_ms = max(read_ms, took_ms - self._batch_sizer.rest_ms)
        self._batch_sizer.learn_batch(
            changes=sums.changes, held_bytes=sums.held_bytes, rows=rows, read_ms=read_ms, took_ms=took_ms
        )

    def _report(self, done: Done) -> BatchReport:
        plan, sums = done.plan, done.sums
        return BatchReport(
            plan=plan,
            changes=sums.changes,
            snapshot_rows=sums.snapshot_rows,
            sent_snapshot=sums.sent_snapshot,
            sent_live=sums.sent_live,
            step_ms=done.clock.step_ms,
            lane_ms=sums.lane_ms,
            already_sent=sums.already_sent,
            released_rows=sums.released_rows,
            redelivered=sums.redelivered,
            ignored=sums.ignored,
            retry_reasons=self._attempts.take_retry_reasons(),
            way=done.way,
            outcome=done.outcome,
            progress=dict(self.progress),
            vnode_count=self._setup.table.vnode_count,
            files=self.replica.files(plan.replica),
        )
