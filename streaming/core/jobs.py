"""Jobs and mutations: the effect of each mutation on the jobs, as one pure function.

A mutation takes effect at the end of the batch that holds its barrier (docs/contract.md#mutations-and-control). So the
jobs of the next batch follow from the plan of this one alone: `jobs_after(plan)` is the same before and after a crash.
A mutation that can't be carried out changes nothing; it leaves a report for the log and the status.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.errors import BackfillError, Code, ConfigError, StateError
from schemas.job import JobDefinition
from schemas.kinds.lanes import rescale_incompatibility
from schemas.kinds.table_changes import (
    TableChange,
    altered,
    changes_from_json,
    in_words,
    missing_refusal,
    widening_refusal,
)
from schemas.records import Add, Alter, Drop, Lanes, Mutation, Other, Pause, Resume, Stop, Throttle
from schemas.table import TableSchema
from state.values.plan import BatchPlan, JobState
from state.values.progress import Progress, is_complete

_NAME = re.compile("[A-Za-z]{1,40}")
MOVED = "a key whose records cross the change without an interval between may be left with the older row"


@dataclass(frozen=True, slots=True)
class MutationReport:
    """The result of a mutation. `refused` is the code of the reason, None when it was carried out."""

    epoch: int
    text: str
    refused: Code | None = None


@dataclass(frozen=True, slots=True)
class JobsOutcome:
    """Jobs after some mutations, in order of creation. `stop`: a Stop was among them.

    `lanes` is what the last `Lanes` has set; None without one, where the number is the configuration's.
    """

    jobs: tuple[JobState, ...]
    reports: tuple[MutationReport, ...] = ()
    stop: bool = False
    lanes: int | None = None
    changes: tuple[TableChange, ...] = ()
    """Changes of the table that were asked for, for the next batch."""

    def __or__(self, other: JobsOutcome) -> JobsOutcome:
        lanes = self.lanes if other.lanes is None else other.lanes
        reports, changes = self.reports + other.reports, self.changes + other.changes
        return JobsOutcome(other.jobs, reports, self.stop or other.stop, lanes, changes)


MayAlter = Callable[[BatchPlan, Sequence[TableChange]], object]
"""Raises ConfigError or StateError for changes, together, that the state or the upstream's format forbids."""


def jobs_after(
    plan: BatchPlan, table: TableSchema, may_alter: MayAlter = lambda plan, changes: None
) -> JobsOutcome:
    """The jobs after a batch is done: those of the plan are open now, then its barriers' mutations in order.

    A silent batch opens none: those that are not open start later.
    """
    outcome = JobsOutcome(tuple(_behind(job.state, plan) for job in plan.jobs), lanes=plan.lanes_set)
    read = frozenset((job.state.name, job.state.start) for job in plan.jobs if job.is_read)
    for aligned in plan.barriers:
        mutation = aligned.barrier.mutation
        if mutation is not None:
            found = apply_mutation(
                mutation,
                aligned.epoch,
                outcome.jobs,
                lanes=outcome.lanes or plan.lanes,
                start=plan.epoch,
                table=altered(table, outcome.changes),
                partitions=len(plan.first_offsets),
                read=read,
            )
            outcome |= _judged(found, plan, outcome.changes, may_alter)
    rises = tuple(
        MutationReport(at.epoch, f"partitions of the upstream rise to {at.barrier.partitions}: {MOVED}")
        for at in (plan.barriers[number] for number in plan.rises)
    )
    return replace(outcome, reports=outcome.reports + rises)


def _judged(
    found: JobsOutcome, plan: BatchPlan, before: Sequence[TableChange], may_alter: MayAlter
) -> JobsOutcome:
    """The outcome of one mutation; one with changes that the state forbids, behind those `before`, changes nothing."""
    if not found.changes:
        return found
    try:
        may_alter(plan, (*before, *found.changes))
    except (ConfigError, StateError) as error:
        [report] = found.reports
        refused = replace(report, text=f"alter: {error.found}", refused=error.code)
        return replace(found, reports=(refused,), changes=())
    return found


def reads_on(
    jobs: Iterable[JobState],
    progress: Mapping[str, Mapping[int, Progress]],
    plan: BatchPlan,
    rows_read: Mapping[str, int],
    *,
    is_table_read: bool,
    interval_records: int,
) -> bool:
    """True if one of the jobs after a batch would read on at once, were there another barrier.

    `rows_read` are those of the batch, by job. A job that read none in it waits for something else, unless it is new
    since; one with a rate limit waits for time to pass. While the table is read from its database (`is_table_read`)
    jobs follow chunks, which come at their own pace; but an interval of more than `interval_records` releases none, and
    if barriers are far apart each of them may be one: the interval of a barrier that comes at once is short.
    """
    if is_table_read:
        return plan.max_records > interval_records
    begun = {job.state.name for job in plan.jobs}
    return any(
        job.may_read
        and job.rate_limit is None
        and (job.name not in begun or rows_read.get(job.name, 0) > 0)
        and not is_complete(progress.get(job.name, {}), job.definition.part_count)
        for job in jobs
    )


def _behind(job: JobState, plan: BatchPlan) -> JobState:
    if not plan.silent:
        return job.behind_batch()
    return job if job.opened else replace(job, start=max(job.start, plan.epoch))


def add_configured(
    jobs: Sequence[JobState], configured: Iterable[JobDefinition], start_epoch: int
) -> tuple[JobState, ...]:
    """The jobs with new ones of the configuration, which start at `start_epoch`, the end of a batch."""
    known = {job.name for job in jobs}
    return (
        *jobs,
        *(created(each, start_epoch) for each in configured if each.name not in known),
    )


def ended_where_complete(
    jobs: Sequence[JobState], progress: Mapping[str, Mapping[int, Progress]]
) -> tuple[JobState, ...]:
    """The jobs; those `until: complete` have ended with the batch that has completed them.

    It follows from the progress alone, so a restart finds it again.
    """

    def has_ended(job: JobState) -> bool:
        definition = job.definition
        return definition.until_complete and is_complete(progress.get(job.name, {}), definition.part_count)

    return tuple(replace(job, ended=True) if has_ended(job) else job for job in jobs)


def created(definition: JobDefinition, start: int) -> JobState:
    """A new job, as its definition says, which starts at this barrier."""
    return JobState(definition, start, paused=definition.paused, rate_limit=definition.rate_limit)


PAUSED_AT_START = "pause all jobs, by run --paused"


@dataclass
class StartPause:
    """The pause of all jobs at the start of one process (`run --paused`), as if a `Pause` of all came before it reads.

    The jobs of the configuration are created paused. Those that the state has are paused in the first plan that reads
    slices; once that is in the journal the pause is state, and what follows may resume it. `is_due`: it is not there
    yet.
    """

    is_due: bool = False
    epoch: int | None = None
    """The end of the plan that has it."""

    def __post_init__(self) -> None:
        self._creates_paused = self.is_due

    def configured(self, jobs: Iterable[JobDefinition]) -> tuple[JobDefinition, ...]:
        """Jobs of the configuration as this process creates them."""
        return tuple(replace(job, paused=True) if self._creates_paused else job for job in jobs)

    def planned(self, jobs: tuple[JobState, ...], epoch: int) -> tuple[JobState, ...]:
        """The jobs of a plan up to this epoch."""
        if not self.is_due:
            return jobs
        self.epoch = epoch
        return tuple(replace(job, paused=True) for job in jobs)

    def written(self, plan: BatchPlan) -> None:
        """The journal has a plan, which may be one of another process."""
        self.is_due = self.is_due and plan.epoch != self.epoch


def apply_mutation(
    mutation: Mutation,
    epoch: int,
    jobs: tuple[JobState, ...],
    *,
    lanes: int,
    start: int,
    table: TableSchema,
    partitions: int | None,
    read: Collection[tuple[str, int]] = (),
) -> JobsOutcome:
    """Apply the mutation of barrier `epoch` to the jobs. A new job starts at `start`, the end of the batch.

    `partitions` are the upstream's, None where they are not known; `read` names no-shuffle backfills, by name and
    start, that are read to their end.
    """

    def refuse(code: Code, text: str) -> JobsOutcome:
        return JobsOutcome(jobs, (MutationReport(epoch, text, code),))

    def edit(name: str | None, text: str, **fields: object) -> JobsOutcome:
        if name is not None and all(job.name != name for job in jobs):
            return refuse(Code.JOB_UNKNOWN, f"{text}: no such job")
        edited = tuple(replace(job, **fields) if name in (None, job.name) else job for job in jobs)  # type: ignore[arg-type]
        return JobsOutcome(edited, (MutationReport(epoch, text),))

    match mutation:
        case Add(text):
            added = _added(text, jobs, lanes, start, table, partitions)
            if not isinstance(added, JobState):
                return refuse(*added)
            return JobsOutcome((*jobs, added), (MutationReport(epoch, f"add {added.name}"),))
        case Drop(name):
            if all(job.name != name for job in jobs):
                return refuse(Code.JOB_UNKNOWN, f"drop {name}: no such job")
            left = tuple(job for job in jobs if job.name != name)
            return JobsOutcome(left, (MutationReport(epoch, f"drop {name}"),))
        case Pause(name):
            return edit(name, f"pause {name or 'all jobs'}", paused=True)
        case Resume(name):
            return edit(name, f"resume {name or 'all jobs'}", paused=False, paused_by=None)
        case Throttle(name, limit):
            return edit(
                name, f"throttle {name} to {'unlimited' if limit is None else limit}", rate_limit=limit
            )
        case Stop():
            return JobsOutcome(jobs, (MutationReport(epoch, "stop"),), stop=True)
        case Lanes(count):
            known = [(job.definition, (job.name, job.start) in read) for job in jobs]
            if reason := rescale_incompatibility(count, known, table, partitions):
                return refuse(Code.RESCALE_REFUSED, f"lanes {count}: {reason}")
            return JobsOutcome(jobs, (MutationReport(epoch, f"lanes {count}"),), lanes=count)
        case Alter(text):
            changes = changes_from_json(json.loads(text))
            refused = _refusal(table, changes, jobs)
            report = MutationReport(epoch, f"alter: {in_words(changes)}")
            return refuse(*refused) if refused else JobsOutcome(jobs, (report,), changes=changes)
        case Other(name):
            shown = name if _NAME.fullmatch(name) else "?"
            return refuse(Code.MUTATION_UNKNOWN, f"{shown}: a mutation that this version does not know")


def _refusal(
    table: TableSchema, changes: Sequence[TableChange], jobs: Sequence[JobState]
) -> tuple[Code, str] | None:
    """The code and the reason of a refusal; None for changes that the table and its outputs can have."""
    try:
        wanted = altered(table, changes)
    except ConfigError as error:
        return error.code, f"alter: {error.found}"
    definitions = [job.definition for job in jobs]
    reason = missing_refusal(changes, definitions) or widening_refusal(table, wanted, definitions)
    return None if reason is None else (Code.TABLE_INVALID, f"alter: {reason}")


def _added(
    text: str,
    jobs: tuple[JobState, ...],
    lanes: int,
    start: int,
    table: TableSchema,
    partitions: int | None,
) -> JobState | tuple[Code, str]:
    """The job of an `Add`, or the code and the reason of its refusal."""
    try:
        definition = JobDefinition.from_json(text, table).with_partitions(partitions or 0)
    except BackfillError as error:
        return error.code, f"add: {error}"
    name = definition.name
    for job in jobs:
        if name == job.name or set(definition.topics) & set(job.definition.topics):
            there = f"job {job.name} with output {job.definition.output}"
            return Code.JOB_EXISTS, f"add {name}: there is {there}"
    if partitions and definition.parts_are_partitions and definition.output_partitions != partitions:
        wrong = f"{definition.output_partitions} output_partitions for the upstream's {partitions} partitions"
        return Code.JOB_INVALID, f"add {name}: {wrong}"
    if reason := rescale_incompatibility(lanes, [(definition, False)], table, partitions):
        return Code.RESCALE_REFUSED if definition.is_coupled else Code.JOB_INVALID, f"add {name}: {reason}"
    return created(definition, start)
