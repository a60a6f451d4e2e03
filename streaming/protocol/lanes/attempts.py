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
from schemas.formats.protocol import Images, UpstreamFormat
from state.replica import Replica
from state.values.plan import BatchPlan
from state.values.progress import Progress, for_lanes
from streaming.core.batch_size import BatchSizer
from streaming.core.jobs import MutationReport
from streaming.core.offset_ranges import history_ranges, history_records
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
from streaming.protocol.lanes.overrun import Overruns, is_overrun, report_of
from streaming.protocol.lanes.redelivery import RedeliveryJudge
from streaming.protocol.lanes.runner import Way
from streaming.protocol.setup import BatchSetup
from streaming.protocol.table_read import TableReading
from streaming.runtime import failpoints
from streaming.scan.kinds import Scans
from streaming.sink.output import SinkPartition
from streaming.sink.protocol import Mark

ATTEMPTS = 5
_LASTING = frozenset({Code.ROWS_FOLDER_FOREIGN, Code.ROWS_FOLDER_UNUSABLE, Code.ROWS_DISK_FULL})
"""Errors of a disk: rows without room are not written a second time."""
_DIRECT_BYTES = 4 << 20
"""Most decoded changes of a batch that lanes read directly: every lane reads the bytes of all of it."""
_TIMES_COLD = 8
"""Factor of the limits before the first query, which takes Spark three seconds more."""
_TIMES_COLUMNAR = 10
"""Factor of the limits where the format has a columnar reader, which takes a fifth of the time for a record."""


@dataclass
class LaneTasks:
    """Makes the tasks of plans. `known_ends` are the ends of the output partitions after the last batch."""

    setup: BatchSetup
    replica: Replica
    scans: Scans
    batch_sizer: BatchSizer
    reading: TableReading
    known_ends: Mapping[SinkPartition, Mark] = field(default_factory=dict)
    record_bytes: dict[str, int | None] = field(default_factory=dict)
    """By output: the size limit of a record, as of the last time that the output was asked."""
    values_are_left_out: bool = False
    """True once changes left values out, which come from the rows before; more such changes are likely."""
    upstream_format: UpstreamFormat = field(init=False)
    """With all schemas that are known by now."""

    def __post_init__(self) -> None:
        self.upstream_format = self.setup.upstream_format

    def task(self, plan: BatchPlan, progress: Mapping[str, Mapping[int, Progress]]) -> LaneTask:
        """The task of a plan, for the journal's newest version. `progress` is that at the plan's start."""
        setup, has_full = self.setup, plan.has_full
        definitions = [job.state.definition for job in plan.open_jobs]
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
            moves_from=self.moves_from(plan),
            in_parts=(bool(plan.sent_jobs) or self.moves_from(plan) is not None) and self._is_long(plan),
            record_bytes=self.limits_of(plan),
        )

    def moves_from(self, plan: BatchPlan) -> int | None:
        """`BatchPlan.moves_from`, of a table whose keys tell rows apart in all partitions."""
        table = self.setup.table
        return plan.moves_from if table.has_key and not table.by_partition else None

    def limits_of(self, plan: BatchPlan, *, anew: bool = False) -> dict[str, int]:
        """By output that is sent to: the size limit of key and value of a record, where it is known.

        `anew`: each output is asked again, for a limit may have been raised. An output that does not answer is asked
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

    def learn(self, ids: frozenset[int], refused: frozenset[int]) -> UpstreamFormat:
        """The upstream's format with the schemas of these ids, as far as the registry has them.

        `refused` are those that it did not have before; all of them are asked for again in the next batch. Raises:
        EnvironmentProblem when the registry does not answer.
        """
        known = self.setup.schemas.learn(ids)
        self.upstream_format = self.upstream_format.with_schemas(replace(known, refused=frozenset()))
        return self.upstream_format.with_schemas(replace(known, refused=known.refused | refused))

    def _needs_rows_before(self, plan: BatchPlan) -> bool:
        """Outputs with both images or another key, filters, and changes that leave values out need the rows before."""
        jobs = (job.state.definition for job in plan.sent_jobs)
        asking = (bool(job.filter or job.key) or job.format.images is Images.FULL for job in jobs)
        is_asked = self.values_are_left_out or any(asking)
        return self.upstream_format.images is Images.AFTER_ONLY and is_asked

    def way(self, task: LaneTask) -> Way:
        """The way to run a task's lanes. Raises: as `LaneRunner.is_empty`."""
        if self.setup.lanes.is_empty(task):
            return Way.EMPTY
        return Way.DIRECT if not task.in_parts and self._is_short(task.plan) else Way.SHUFFLED

    def _is_short(self, plan: BatchPlan) -> bool:
        records, times = plan.max_records, self._limit_factor()
        is_few = records <= times * self.setup.limits.short_records and not history_ranges(plan)
        most_bytes = min(times * _DIRECT_BYTES, self.setup.limits.lane_bytes)
        return is_few and self.batch_sizer.likely_bytes(records) <= most_bytes

    def _limit_factor(self) -> int:
        return (_TIMES_COLD if self.setup.lanes.is_cold else 1) * _TIMES_COLUMNAR

    def _is_long(self, plan: BatchPlan) -> bool:
        """True if the batch's changes are likely to be more than lanes should hold at once."""
        limits, records = self.setup.limits, plan.max_records + history_records(plan)
        likely_bytes = self.batch_sizer.likely_bytes(records)
        return records > limits.interval_records or likely_bytes > limits.lane_bytes * plan.lanes


@dataclass(frozen=True)
class LanesRun:
    """Results of the lanes of a plan that have done their part.

    That is all of them, unless there are `faults`: invalid records, each with the lane that found it.
    """

    plan: BatchPlan
    way: Way
    results: Sequence[LaneResult]
    faults: Sequence[tuple[Fault, int]] = ()
    paused: Sequence[MutationReport] = ()
    """Reports of jobs that the plan pauses before a row that their output does not take."""


class LaneAttempts:
    """Runs the lanes of plans. `give_up`: set to have no lane tried a second time."""

    def __init__(self, setup: BatchSetup, tasks: LaneTasks, overruns: Overruns) -> None:
        self._lanes, self._journal, self._now_ms = setup.lanes, setup.journal, setup.now_ms
        self._tasks, self._overruns, self._batch_sizer = tasks, overruns, tasks.batch_sizer
        self._judge = RedeliveryJudge(setup.bad_records.topic, setup.logged, setup.log_resets)
        self._way = Way.SHUFFLED
        self._retry_reasons: list[Code] = []
        self.give_up = False

    def take_retry_reasons(self) -> tuple[Code, ...]:
        """The codes for which lanes were tried again since the last call."""
        reasons, self._retry_reasons = tuple(self._retry_reasons), []
        return reasons

    def run_lanes(self, plan: BatchPlan, progress: Mapping[str, Mapping[int, Progress]]) -> LanesRun:
        """Run all lanes with the plan, or with one without slices if those were too much; the journal then holds it.

        Raises: Fenced when another instance has taken over; the error of a lane if it is not retryable.
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
                outcomes = self._run(task)
                while (able := self._with_missing_inputs(task, outcomes, task_of, paused)) is not None:
                    task = able
                    outcomes = self._run(task)
                run = replace(self._checked(task.plan, outcomes), paused=tuple(paused))
            except BackfillError as problem:
                if self._journal.is_superseded:
                    raise self._journal.fenced() from problem
                self._retry_reasons.append(problem.code)
                # The broker refused a record that was within its limits when it was asked: they may have changed.
                if problem.code is Code.RECORD_TOO_LARGE:
                    limits = self._tasks.limits_of(task.plan, anew=True)
                    if limits != task.record_bytes and attempt < ATTEMPTS:
                        task = replace(task, record_bytes=limits)
                        continue
                # Others are tried again. Fenced without a successor: by the instance that we took over from, which has
                # yet to notice it. Foreign records at the tails: a lane runs twice, and the other run's are becoming
                # visible.
                lasting = isinstance(problem, (InputError, StateError)) or problem.code in _LASTING
                if lasting or attempt == ATTEMPTS or self.give_up:
                    raise _as_transient(problem) from problem
                took_ms = self._now_ms() - began_ms
                if is_overrun(task, problem, took_ms, attempt):
                    self._batch_sizer.learn_overrun(took_ms)
                    overrun = True
            else:
                return run
        raise AssertionError("unreachable")

    def _with_missing_inputs(
        self,
        task: LaneTask,
        outcomes: Sequence[LaneOutcome],
        task_of: Callable[[BatchPlan], LaneTask],
        paused: list[MutationReport],
    ) -> LaneTask | None:
        """The task with the inputs that its lanes reported missing, or without a row that can't be sent; else None.

        While the schema of a key is missing no lane has sent, as any may get the record. Where it is that of a value
        other lanes may have; they report `already_sent` from then on. Raises: BackfillError.
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
            return replace(task, in_parts=True)
        rows = [why for why in reasons if isinstance(why, LongRow)]
        if rows or any(_is_too_long(why) for why in reasons):
            limits = self._tasks.limits_of(task.plan, anew=True)
            if limits != task.record_bytes:
                return replace(task, record_bytes=limits)
        if rows:
            paused.append(report_of(rows[0], task.plan))
            return self._overruns.without_reads(task, rows[0], task_of)
        return None

    def _run(self, task: LaneTask) -> list[LaneOutcome]:
        task = replace(task, failpoint=failpoints.for_lanes())
        self._way = self._tasks.way(task)
        outcomes = self._lanes.run(task, self._way)
        if outcomes is None:  # some record can't be read directly
            self._way = Way.SHUFFLED
            outcomes = self._lanes.run(task, self._way)
            assert outcomes is not None
        return outcomes

    def _checked(self, plan: BatchPlan, outcomes: Sequence[LaneOutcome]) -> LanesRun:
        """The results. Raises: Fenced first of all; the error of a lane, unless there are invalid records."""
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
            return LanesRun(plan, self._way, results, faults)
        for why in reasons:
            if isinstance(why, Failed):
                raise why.error
        self._tasks.known_ends = {place: end for result in results for place, end in result.ends.items()}
        return LanesRun(plan, self._way, results)


def _is_too_long(why: object) -> bool:
    return isinstance(why, Faulty) and any(fault.output is not None for fault in why.faults)


def _reasons(outcomes: Iterable[LaneOutcome]) -> list[object]:
    return [outcome.why for outcome in outcomes if isinstance(outcome, Undone)]


def _as_transient(problem: BackfillError) -> BackfillError:
    """The error itself; for a fencing without a successor OUTCOME_UNKNOWN, which is transient."""
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
    """Prefix of the transactional ids of all lanes that ever work on this state, and of no other state's."""
    return f"backfill-{replica.id}"
