"""Runs the lanes of a plan until the outcome of every lane's transaction is known, in `ATTEMPTS` attempts at most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from schemas.errors import (
    BackfillError,
    Code,
    EnvironmentProblem,
    Fenced,
    InputError,
    OutcomeUnknown,
    StateError,
)
from schemas.formats.protocol import Format, Images
from state.replica import Replica
from state.values.plan import BatchPlan
from state.values.progress import Progress, for_lanes
from streaming.core.batch_sizer import BatchSizer
from streaming.core.history import history_ranges, history_records
from streaming.core.jobs import MutationReport
from streaming.lane.faults import Fault
from streaming.lane.task import (
    Awaits,
    Failed,
    Faulty,
    Lack,
    LaneOutcome,
    LaneResult,
    LaneTask,
    LongRow,
    Superseded,
    Undone,
)
from streaming.protocol.lanes.redelivery import RedeliveryJudge
from streaming.protocol.overrun import Overruns, is_overrun, report_of
from streaming.protocol.setup import BatchSetup
from streaming.protocol.table_read import TableReading
from streaming.runtime import failpoints
from streaming.scan.kinds import Scans
from streaming.sink.columns import OutputPartition
from streaming.sink.protocol import Mark

ATTEMPTS = 5
_LASTING = frozenset({Code.ROWS_FOLDER_FOREIGN, Code.ROWS_FOLDER_UNUSABLE, Code.ROWS_DISK_FULL})
"""Of a disk: rows that have no room are not written a second time in vain."""
_SHORT_BYTES = 4 << 20
"""Decoded changes of a batch that is short, at most: every lane reads the bytes of all of it."""
_COLD = 8
"""So many times as large a batch counts as short before the first query: that one takes Spark three seconds more."""
_BY_COLUMNS = 10
"""And so many times where the format has a columnar reader, too: a fifth of the time for a record."""


@dataclass
class LaneTasks:
    """Makes the task of a plan. `known_ends`: where the output partitions ended after the last batch."""

    setup: BatchSetup
    replica: Replica
    scans: Scans
    batch_sizer: BatchSizer
    reading: TableReading
    known_ends: Mapping[OutputPartition, Mark] = field(default_factory=dict)
    record_bytes: dict[str, int | None] = field(default_factory=dict)
    """By output: what a record of it may have, as it was when the output was last asked."""
    values_are_left_out: bool = False
    """Whether changes did so, which take these values from the rows before; it is likely to go on."""
    upstream_format: Format = field(init=False)
    """With all schemas that are known by now."""

    def __post_init__(self) -> None:
        self.upstream_format = self.setup.upstream_format

    def task(self, plan: BatchPlan, progress: Mapping[str, Mapping[int, Progress]]) -> LaneTask:
        """The task of a plan, for the journal's newest version. `progress` is that at the plan's start."""
        setup, definitions, has_full = self.setup, [job.state.definition for job in plan.jobs], plan.has_full
        return LaneTask(
            storage=setup.storage,
            table=setup.table,
            plan=plan,
            progress={
                # A full barrier has the positions and counts also of a job that is complete.
                job.name: known if has_full and job.barrier_topic else for_lanes(known, job.part_count)
                for job in definitions
                for known in [progress.get(job.name, {})]
            },
            scans=self.scans.pinned(plan),
            sinks={job.sink: setup.sink_of(job).open_writer for job in definitions},
            read_letters=setup.read_letters,
            transactional_id=transactional_id(self.replica),
            journal_version=setup.journal.version,
            limits=setup.limits,
            known_ends=dict(self.known_ends),
            upstream_format=self.upstream_format,
            replica=self.replica.files(plan.replica) if self._needs_rows_before(plan) else None,
            rows_folder=setup.rows_folder,
            waiting=self.reading.files(plan),
            is_short=self._is_short(plan),
            in_parts=bool(plan.sent_jobs) and self._is_long(plan),
            record_bytes=self.limits_of(plan),
        )

    def limits_of(self, plan: BatchPlan, *, anew: bool = False) -> dict[str, int]:
        """By output that is sent to: key and value that a record of it may have, where that is known.

        `anew`: each output is asked again, for a limit may have been raised. One that gives no answer now is asked
        with the next plan.
        """
        if anew:
            self.record_bytes.clear()
        jobs = [job.state.definition for job in plan.sent_jobs]
        for job in jobs:
            if job.output not in self.record_bytes:
                with suppress(EnvironmentProblem):
                    self.record_bytes[job.output] = self.setup.sink_of(job).record_bytes(job)
        known = ((job.output, self.record_bytes.get(job.output)) for job in jobs)
        return {output: limit for output, limit in known if limit is not None}

    def learn(self, ids: frozenset[int], refused: frozenset[int]) -> Format:
        """The upstream's format with the schemas of these ids, as far as the registry knows them.

        `refused` are those that it did not know before; all of them are asked for again in the next batch. Raises:
        EnvironmentProblem when it can't be asked.
        """
        known = self.setup.schemas.learn(ids)
        self.upstream_format = self.upstream_format.with_schemas(replace(known, refused=frozenset()))
        return self.upstream_format.with_schemas(replace(known, refused=known.refused | refused))

    def _needs_rows_before(self, plan: BatchPlan) -> bool:
        """Outputs with both images, filters, and changes that leave values out need the rows before the changes."""
        jobs = (job.state.definition for job in plan.sent_jobs)
        asking = (job.filter is not None or job.format.images is Images.FULL for job in jobs)
        is_asked = self.values_are_left_out or any(asking)
        return self.upstream_format.images is Images.AFTER_ONLY and is_asked

    def _is_short(self, plan: BatchPlan) -> bool:
        records, times = plan.max_records, self._times_as_long()
        is_few = records <= times * self.setup.limits.short_records and not history_ranges(plan)
        most_bytes = min(times * _SHORT_BYTES, self.setup.limits.lane_bytes)
        return is_few and self.batch_sizer.likely_bytes(records) <= most_bytes

    def _times_as_long(self) -> int:
        return (_COLD if self.setup.lanes.is_cold else 1) * _BY_COLUMNS

    def _is_long(self, plan: BatchPlan) -> bool:
        """Whether lanes should not try to hold the batch's changes whole, as far as can be known before."""
        limits, records = self.setup.limits, plan.max_records + history_records(plan)
        likely_bytes = self.batch_sizer.likely_bytes(records)
        return records > limits.interval_records or likely_bytes > limits.lane_bytes * plan.lanes


@dataclass(frozen=True)
class LanesRun:
    """What came of a plan's lanes: the results of those that have done their part.

    That is all of them, unless `faults` names records at fault, each with the lane that found it.
    """

    plan: BatchPlan
    results: Sequence[LaneResult]
    faults: Sequence[tuple[Fault, int]] = ()
    paused: Sequence[MutationReport] = ()
    """Of jobs that the plan pauses before a row that their output does not take."""


class LaneAttempts:
    """Runs the lanes of plans. `give_up`: set to have no lane tried a second time."""

    def __init__(self, setup: BatchSetup, tasks: LaneTasks, overruns: Overruns) -> None:
        self._lanes, self._journal, self._now_ms = setup.lanes, setup.journal, setup.now_ms
        self._tasks, self._overruns, self._batch_sizer = tasks, overruns, tasks.batch_sizer
        self._judge = RedeliveryJudge(setup.bad_records.topic, setup.logged, setup.log_resets)
        self._hindrances: list[Code] = []
        self.give_up = False

    def take_hindrances(self) -> tuple[Code, ...]:
        """Why lanes were tried again since the last call."""
        hindrances, self._hindrances = tuple(self._hindrances), []
        return hindrances

    def run(self, plan: BatchPlan, progress: Mapping[str, Mapping[int, Progress]]) -> LanesRun:
        """All lanes with the plan, or with one without slices, if they were too much: the journal holds it by then.

        Raises: Fenced when another instance has taken over; the error of a lane that is no use to try again.
        """

        def task_of(plan: BatchPlan) -> LaneTask:
            return self._tasks.task(plan, progress)

        task, overrun, paused = task_of(plan), False, list[MutationReport]()
        for attempt in range(1, ATTEMPTS + 1):
            began_ms = self._now_ms()
            try:
                if overrun:
                    task = self._overruns.relieved(task, task_of)
                    overrun = False
                outcomes = self._carry_out(task)
                while (able := self._made_able(task, outcomes, task_of, paused)) is not None:
                    task = able
                    outcomes = self._carry_out(task)
                run = replace(self._sound(task.plan, outcomes), paused=tuple(paused))
            except BackfillError as problem:
                if self._journal.is_superseded:
                    raise self._journal.fenced() from problem
                self._hindrances.append(problem.code)
                # The broker refused what the limits allowed that it had when it was asked: they are others by now?
                if problem.code is Code.RECORD_TOO_LARGE:
                    limits = self._tasks.limits_of(task.plan, anew=True)
                    if limits != task.record_bytes and attempt < ATTEMPTS:
                        task = replace(task, record_bytes=limits)
                        continue
                # Fenced without a successor: by the instance that we took over from, which has yet to notice it.
                # Foreign records at the tails: a lane runs twice, and the other run's records are becoming visible.
                lasting = isinstance(problem, (InputError, StateError)) or problem.code in _LASTING
                if lasting or attempt == ATTEMPTS or self.give_up:
                    raise _passing(problem) from problem
                took_ms = self._now_ms() - began_ms
                if is_overrun(task, problem, took_ms, attempt):
                    self._batch_sizer.overran(took_ms)
                    overrun = True
            else:
                return run
        raise AssertionError("unreachable")

    def _made_able(
        self,
        task: LaneTask,
        outcomes: Sequence[LaneOutcome],
        task_of: Callable[[BatchPlan], LaneTask],
        paused: list[MutationReport],
    ) -> LaneTask | None:
        """The task with what its lanes lacked, or of a plan without a row that can't be sent; None for no need of it.

        While the schema of a key is not known no lane has sent, as any may get the record. Other lanes may have where
        it is that of a value; they report `already_sent` from then on. Raises: BackfillError.
        """
        reasons = _reasons(outcomes)
        if any(isinstance(why, Superseded) for why in reasons):
            return None
        awaited = frozenset[int]().union(*(why.ids for why in reasons if isinstance(why, Awaits)))
        if awaited:
            format_ = self._tasks.learn(awaited, task.upstream_format.known.refused)
            return replace(task, upstream_format=format_)
        if Lack.JUDGEMENT in reasons:
            return replace(task, judgement=self._judge.judgement(task.plan, task.upstream_format))
        if Lack.ROWS_BEFORE in reasons:
            self._tasks.values_are_left_out = True
            return replace(task, replica=self._tasks.replica.files(task.plan.replica))
        if Lack.PARTS in reasons and not task.in_parts:
            return replace(task, in_parts=True, is_short=False)
        rows = [why for why in reasons if isinstance(why, LongRow)]
        if rows or any(_is_too_long(why) for why in reasons):
            limits = self._tasks.limits_of(task.plan, anew=True)
            if limits != task.record_bytes:
                return replace(task, record_bytes=limits)
        if rows:
            paused.append(report_of(rows[0], task.plan))
            return self._overruns.without_reads(task, rows[0], task_of)
        return None

    def _carry_out(self, task: LaneTask) -> list[LaneOutcome]:
        return self._lanes.carry_out(replace(task, failpoint=failpoints.for_lanes()))

    def _sound(self, plan: BatchPlan, outcomes: Sequence[LaneOutcome]) -> LanesRun:
        """Raise the error of a lane, unless records are at fault; being superseded comes before all else."""
        self._tasks.known_ends = {}
        reasons = _reasons(outcomes)
        if any(isinstance(why, Superseded) for why in reasons):
            raise self._journal.fenced()
        results = [outcome for outcome in outcomes if isinstance(outcome, LaneResult)]
        faults = [
            (fault, outcome.lane)
            for outcome in outcomes
            if isinstance(outcome, Undone) and isinstance(outcome.why, Faulty)
            for fault in outcome.why.faults
        ]
        if faults:
            return LanesRun(plan, results, faults)
        for why in reasons:
            if isinstance(why, Failed):
                raise why.error
        self._tasks.known_ends = {place: end for result in results for place, end in result.ends.items()}
        return LanesRun(plan, results)


def _is_too_long(why: object) -> bool:
    return isinstance(why, Faulty) and any(fault.output is not None for fault in why.faults)


def _reasons(outcomes: Iterable[LaneOutcome]) -> list[object]:
    return [outcome.why for outcome in outcomes if isinstance(outcome, Undone)]


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
    """Prefix of the transactional ids of all lanes that ever work on this state: of no other state's service."""
    return f"backfill-{replica.id}"
