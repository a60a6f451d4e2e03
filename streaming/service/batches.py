"""Batches: from aligned barrier a to aligned barrier b, in this order of effects (DESIGN 3.1).

    1  Plan        pin the replica, choose slices, write the plan to the journal
    2  Lanes       each sends its part in one Kafka transaction, and writes its changes to a log file
    3  Replicate   the log files become part of the log
    4  Progress    per-vnode progress at b
    5  Mutations   of the batch's barriers take effect for the next batch

Every effect carries the epoch of b and is conditional on nobody else having gone on, so a crash anywhere ends in
the same plan being carried out again, each effect that is there already being found. The next batch's first effect
comes after this one's last: a plan in the journal whose progress is missing is the one batch that may be half done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from schemas.errors import (
    BackfillError,
    Code,
    CommitConflict,
    Fenced,
    InputError,
    OutcomeUnknown,
    StateError,
    TopicError,
)
from schemas.job import JobDefinition
from schemas.limits import Limits
from schemas.table import TableSchema
from state.journal import Journal
from state.plan import AlignedBarrier, BatchPlan, JobState
from state.progress import Completed, NotStarted, Progress, after_slice
from state.progress_table import ProgressRow, ProgressTable
from state.replica import Replica
from state.snapshot import SliceCutter, SnapshotReader
from state.storage import Storage
from streaming.core.jobs import Outcome, Report, add_configured, jobs_after
from streaming.core.pace import Pace
from streaming.core.planning import choose_barriers
from streaming.lane.dead_letters import ReadLetters
from streaming.lane.output import OpenOutput
from streaming.lane.task import LaneResult, LaneTask
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.stopwatch import Stopwatch
from streaming.runtime.topics import Partition
from streaming.service.bad_records import BadRecords
from streaming.service.report import BatchReport, Sums

_ATTEMPTS = 5

DuplicatesBefore = Callable[[AlignedBarrier], Sequence[tuple[int, int]]]
"""Places (partition, offset) before a barrier where a barrier stands a second time."""


class LaneRunner(Protocol):
    """Whatever carries a task to its lanes and waits for all of them. `slots` of them run at once."""

    @property
    def slots(self) -> int: ...  # noqa: D102

    def carry_out(self, task: LaneTask) -> list[LaneResult]:
        """The result of every lane. Some may hold an error while others have sent their part.

        Raises: EnvironmentProblem when lanes did not come to their end; which of them have sent is unknown then,
        and some may still be at it.
        """


def monotonic_ms() -> int:
    """The clock that rate limits and lateness go by."""
    return time.monotonic_ns() // 1_000_000


class Batches:
    """The one writer of the state. All calls come from one thread at a time."""

    def __init__(
        self,
        *,
        storage: Storage,
        table: TableSchema,
        topic: str,
        open_output: OpenOutput,
        lanes: LaneRunner,
        lane_count: int,
        journal: Journal,
        first_offsets: Sequence[int],
        ensure_output: Callable[[JobDefinition], None],
        read_letters: ReadLetters,
        bad_records: BadRecords,
        limits: Limits = Limits(),  # noqa: B008 (a value)
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._storage, self._table, self._topic = storage, table, topic
        self._read_letters, self._bad_records, self._limits = read_letters, bad_records, limits
        self._open_output, self._now_ms = open_output, now_ms
        self._lanes, self._lane_count = lanes, lane_count
        self._journal = journal
        self._beginning = tuple(first_offsets)
        self._ensure_output = ensure_output
        # Against the order of effects: whom we took over from may still make his last ones. If his progress is seen
        # here, so is his log.
        self._progress_table = ProgressTable(storage, table)
        self.replica = Replica(storage, table)
        self.position: AlignedBarrier | None = None
        self.jobs: tuple[JobState, ...] = ()
        self.progress: dict[str, dict[int, Progress]] = {}
        self._configured: tuple[JobDefinition, ...] = ()
        self._in_file: frozenset[str] = frozenset()
        self._refused: list[Report] = []
        self._hindrances: list[Code] = []
        self._pace = Pace(table.vnode_count, limits.lane_bytes * lane_count)
        self._known_ends: dict[Partition, int] = {}
        self._cutter: SliceCutter | None = None
        self.give_up = False
        """Set to have no lane tried a second time."""

    @property
    def transactional_id(self) -> str:
        """Prefix of the lanes' ids: bound to this state, so that another state's service is never fenced."""
        return transactional_id(self.replica)

    def configure(self, jobs: Sequence[JobDefinition]) -> None:
        """Jobs of the configuration; those not known yet start at the end of the next batch."""
        self._configured = tuple(jobs)
        self._in_file = frozenset(job.name for job in jobs)

    def recover(self) -> BatchReport | None:
        """Go on from what the journal says: finish the batch that may be half done. Returns its report, if any."""
        entry = self._journal.current
        plan = None if entry is None else entry.plan
        if plan is None:
            return None
        done = self._progress_table.epoch >= plan.epoch
        self.jobs = tuple(job.state for job in plan.jobs)
        self.progress = {job.name: self._progress_table.load(job.name, job.start) for job in self.jobs}
        self.position = plan.start
        if not done:
            failpoints.expect(last=self._ends_a_job(plan))
            return self._carry_out(plan, Stopwatch())
        self._settle(plan, ())
        return None

    def run(self, waiting: Sequence[AlignedBarrier], duplicates: DuplicatesBefore) -> BatchReport:
        """One batch over the first of the waiting barriers; `report.plan.barriers` says which it took."""
        clock = Stopwatch()
        plan = self._plan(waiting, duplicates)
        failpoints.expect(last=self._ends_a_job(plan))
        failpoints.reach(Failpoint.PLANNED)
        self._journal.write_plan(plan)
        failpoints.reach(Failpoint.JOURNALED)
        clock.lap("plan")
        return self._carry_out(plan, clock)

    def next_offsets(self) -> tuple[int, ...]:
        """First offset of each upstream partition that no batch has handled."""
        if self.position is None:
            return self._beginning
        return tuple(offset + 1 for offset in self.position.offsets)

    # 1 Plan ------------------------------------------------------------------------------------------------

    def _plan(self, waiting: Sequence[AlignedBarrier], duplicates: DuplicatesBefore) -> BatchPlan:
        first = self.next_offsets()
        barriers = tuple(choose_barriers(waiting, first, self._pace.most_records()))
        version = self.replica.pin()
        reader = SnapshotReader(self._storage, self._table, self.replica.files(version))
        if self._cutter is None:
            self._cutter = SliceCutter(reader)
        self._cutter.use(reader)
        self.jobs = tuple(job for job in self.jobs if job.opened or self._can_open(job))
        jobs = self._pace.plan_jobs(self.jobs, self.progress, barriers[-1], self._cutter.cut, self._now_ms())
        plan = BatchPlan(
            self.position,
            barriers,
            first,
            version,
            self._lane_count,
            jobs,
            tuple(sorted(duplicates(barriers[-1]))),
        )
        if jobs and len(barriers) == 1 and plan.max_records > self._limits.interval_records:
            raise self._too_large(plan)
        return plan

    def _too_large(self, plan: BatchPlan) -> InputError:
        lengths = [end - first for first, end in zip(plan.first_offsets, plan.end_offsets, strict=True)]
        longest = lengths.index(max(lengths))
        return InputError(
            Code.EPOCH_TOO_LARGE,
            where=f"{self._topic}-{longest}@{plan.first_offsets[longest]}",
            found=f"{plan.max_records} records up to barrier {plan.epoch}",
            expected=f"at most {self._limits.interval_records}, as limits.interval_records says",
            next_step="raise limits.interval_records if the memory is there; let barriers come more often",
        )

    def _can_open(self, job: JobState) -> bool:
        """Whether a new job's output topic is fit for it. A wish for one that is not changes nothing.

        Raises: TopicError for a job of the configuration, whose author is there to read it.
        """
        try:
            self._ensure_output(job.definition)
        except TopicError as error:
            if self._journal.is_superseded:  # the records are the successor's
                raise self._journal.fenced() from error
            if job.name in self._in_file:
                raise
            self._refused.append(Report(job.start, f"add {job.name}: {error}", error.code))
            self.progress.pop(job.name, None)
            return False
        return True

    def _ends_a_job(self, plan: BatchPlan) -> bool:
        for job in plan.jobs:
            known = self.progress.get(job.state.name, {})
            done = {vnode for vnode, state in known.items() if isinstance(state, Completed)}
            done |= {item.vnode for item in job.slices if item.upto is None}
            if job.slices and len(done) == self._table.vnode_count:
                return True
        return False

    # 2 to 5 ------------------------------------------------------------------------------------------------

    def _carry_out(self, plan: BatchPlan, clock: Stopwatch) -> BatchReport:
        plan, results = self._run_lanes(plan)
        clock.lap("lanes")
        failpoints.reach(Failpoint.SENT)
        sums, files = Sums(results), [file for result in results for file in result.log]
        self._commit(lambda: self.replica.append(files, plan.epoch), self.replica.reload)
        clock.lap("replicate")
        failpoints.reach(Failpoint.REPLICATED)
        changed = self._raise_progress(plan, sums.rows_read)
        self._commit(lambda: self._progress_table.commit(changed, plan.epoch), self._progress_table.reload)
        clock.lap("progress")
        failpoints.reach(Failpoint.PROGRESSED)
        refused, self._refused = tuple(self._refused), []
        outcome = Outcome((), refused) | self._settle(plan, self._configured)
        self._configured = ()  # one that is dropped later must not come back
        clock.lap("mutations")
        failpoints.reach(Failpoint.SETTLED)
        self._learn(sums, sum(clock.step_ms.values()))
        return self._report(plan, sums, outcome, clock)

    def _commit(self, effect: Callable[[], None], reload: Callable[[], None]) -> None:
        """Steps 3 and 4. `effect` does nothing if its epoch is there.

        A conflict without a successor is a commit of ours whose answer was lost, or the last one of whom we took
        over from. Both are of the open batch, or change no rows: seen, they count, or ours goes on top.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                effect()
            except CommitConflict as conflict:
                if self._journal.is_superseded:
                    raise self._journal.fenced() from conflict
                if attempt == _ATTEMPTS:
                    raise
                reload()
            else:
                return

    def _run_lanes(self, plan: BatchPlan) -> tuple[BatchPlan, list[LaneResult]]:
        """Every lane's result, and the plan that gave them: without the records at fault, if they may go."""
        while True:
            results = self._attempt(plan)
            found = [(fault, result.lane) for result in results for fault in result.faults]
            if not found:
                return plan, results
            plan = self._bad_records.leave_out(plan, found)
            self._journal.write_plan(plan)

    def _attempt(self, plan: BatchPlan) -> list[LaneResult]:
        """As many attempts as it takes to know what became of each lane's transaction."""
        task = self._task(plan)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                results = self._lanes.carry_out(replace(task, failpoint=failpoints.for_lanes()))
                self._refuse(results)
            except BackfillError as problem:
                if self._journal.is_superseded:
                    raise self._journal.fenced() from problem
                self._hindrances.append(problem.code)
                # Fenced without a successor: by one that we took over from, which has yet to notice it. Strange
                # records at the tails: a lane that runs twice, looked at while the other one's become visible.
                lasting = isinstance(problem, (InputError, StateError))
                if lasting or attempt == _ATTEMPTS or self.give_up:
                    raise _passing(problem) from problem
                continue
            return results
        raise AssertionError("unreachable")

    def _task(self, plan: BatchPlan) -> LaneTask:
        vnodes = frozenset(item.vnode for job in plan.jobs for item in job.slices)
        return LaneTask(
            self._storage,
            self._table,
            plan,
            self.progress,
            self.replica.files(plan.replica).of_vnodes(vnodes),
            self._open_output,
            self._read_letters,
            self.transactional_id,
            self._journal.version,
            self._limits,
            dict(self._known_ends),
        )

    def _refuse(self, results: Sequence[LaneResult]) -> None:
        """Raise what went wrong in a lane; being superseded counts more than all else, faults upstream come next."""
        self._known_ends = {}
        errors: list[BackfillError] = [result.error for result in results if result.error is not None]
        if any(result.superseded for result in results):
            raise self._journal.fenced()
        if any(result.faults for result in results):
            return
        if errors:
            raise errors[0]
        self._known_ends = {place: end for result in results for place, end in result.ends.items()}

    def _raise_progress(
        self, plan: BatchPlan, rows_read: Mapping[str, Mapping[int, int]]
    ) -> list[ProgressRow]:
        changed = []
        for job in plan.jobs:
            progress = self.progress.setdefault(job.state.name, {})
            for item in job.slices:
                rows = rows_read[job.state.name][item.vnode]
                raised = after_slice(progress.get(item.vnode, NotStarted()), item.upto, rows)
                progress[item.vnode] = raised
                changed.append(ProgressRow(job.state.name, item.vnode, raised))
        return changed

    def _settle(self, plan: BatchPlan, configured: Sequence[JobDefinition]) -> Outcome:
        """Step 5: what the next batch starts from. `configured` jobs that are new start with the plan's end."""
        outcome = jobs_after(plan, self._table)
        before = {job.name for job in outcome.jobs}
        self.jobs = add_configured(outcome.jobs, configured, plan.epoch)
        dropped = self.progress.keys() - {job.name for job in self.jobs}
        for name in dropped:
            self.progress.pop(name)
            self._pace.forget(name)
        for job in self.jobs:
            if job.name not in before or job.start == plan.epoch:
                self.progress[job.name] = {}
                self._pace.forget(job.name)
        self.position = plan.end
        return outcome

    def _learn(self, sums: Sums, took_ms: float) -> None:
        """What the next plans go by: how large changes are, and how long snapshot rows take, and all the rest."""
        lane_ms, rows = sums.lane_ms, sums.snapshot_rows
        side_by_side = min(self._lanes.slots, self._lane_count)
        read_ms = (lane_ms.get("snapshot", 0.0) + lane_ms.get("commit", 0.0)) / side_by_side if rows else 0.0
        self._pace.took(
            changes=sums.changes, held_bytes=sums.held_bytes, rows=rows, read_ms=read_ms, took_ms=took_ms
        )

    def _report(self, plan: BatchPlan, sums: Sums, outcome: Outcome, clock: Stopwatch) -> BatchReport:
        hindrances, self._hindrances = tuple(self._hindrances), []
        return BatchReport(
            plan,
            sums.changes,
            sums.snapshot_rows,
            sums.sent_snapshot,
            sums.sent_live,
            clock.step_ms,
            sums.lane_ms,
            sums.already_sent,
            hindrances,
            outcome,
            self.progress,
            self._table.vnode_count,
            self.replica.files(plan.replica),
        )


def _passing(problem: BackfillError) -> BackfillError:
    """Being fenced by no successor is trouble that passes; what it left is unknown."""
    if not isinstance(problem, Fenced):
        return problem
    return OutcomeUnknown(
        Code.OUTCOME_UNKNOWN,
        where=problem.where,
        found="lanes that were fenced again and again",
        expected="a rival only if it has taken the state over",
        next_step="nothing: the service goes on from its journal; see which other process uses this state",
    )


def transactional_id(replica: Replica) -> str:
    """Prefix of the transactional ids of all lanes that ever work on this state."""
    return f"backfill-{replica.id}"
