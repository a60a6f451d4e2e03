"""Conditions at the end of every history, whatever happened in it.

law           each output, read committed, is what `verify` asks for (docs/contract.md#the-law), and complete
barriers      no partition holds one twice
progress      the progress table says what the outputs say, and each thing once
plans         each plan goes on where the one before it ended, with the jobs that it leaves
reading       likewise what came from a database (`tests.simulation.judge_reading`)
suspensions   likewise the ends and decisions of a suspended table (`tests.simulation.judge_suspended`)
log           base and log together hold every change of the upstream once, and fold to its table
ends          an instance that ended by itself was fenced, or came second in taking over
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from schemas.avro.codec import decode_barrier
from schemas.errors import Code, CommitConflict, EnvironmentProblem, Fenced, OutcomeUnknown
from schemas.filter.parse import parse_filter
from schemas.job import JobDefinition
from schemas.position import Key, position_to_text
from schemas.records import Barrier, Row, VnodeProgress
from schemas.settings.security import hash_key_of
from schemas.table import TableSchema
from state.columns import EPOCH, OFFSET, PARTITION
from state.journal import Journal
from state.ledger import Ledger
from state.progress_table import PATH as PROGRESS_PATH
from state.progress_table import SCHEMA, ProgressTable
from state.replica import BASE_PATH, LOG_PATH, Replica
from state.values.plan import JobPlan, JobState
from state.values.progress import Completed, Progress
from streaming.core.jobs import jobs_after
from streaming.reading.barriers import MergedSource
from streaming.reading.records.forms import RecordForm
from streaming.verify.checker import Checker
from streaming.verify.dead_letters import DeadLetters, ListedLetter
from streaming.verify.findings import Findings, Rule
from streaming.verify.fold import InitialTable
from streaming.verify.history import TopicEntry
from streaming.verify.records.canonical import canonical
from streaming.verify.records.rows import OutputView, condition_of
from tests.kit.encoded_histories import ListSource, of_changes
from tests.simulation.broker import Topics
from tests.simulation.changelog import Changelog
from tests.simulation.compaction import changes_of, rows_of
from tests.simulation.initial import rows_as
from tests.simulation.instance import AskedToEndError
from tests.simulation.judge_reading import places_of_released, plans_of, violations_of_reading
from tests.simulation.judge_suspended import violations_of_suspensions
from tests.simulation.sink import EARLY_LETTERS
from tests.simulation.world import World

ENDS = Fenced, CommitConflict, EnvironmentProblem, OutcomeUnknown
"""What may end an instance of itself: a rival, or a broker that gave no answer, which the next start repairs."""


def violations(world: World) -> list[str]:
    """All that is wrong with a world that has settled."""
    return list(_violations(world))


def _violations(world: World) -> Iterator[str]:
    for instance in world.instances:
        error = instance.process.ended_by
        if error is not None and not isinstance(error, (*ENDS, AskedToEndError)):
            yield f"{instance.process.name} ended with {error!r}"
        if instance.found_older and not world.durable.restored:
            yield f"{instance.process.name} found a state that is older than its outputs"
        if instance.read_though_paused:
            yield f"{instance.process.name} read for jobs that it had paused at its start"
        if instance.ended_as_owner:
            yield f"{instance.process.name} ended although the state was its own: {error!r}"
    topics = world.durable.topics
    early = topics.letters(EARLY_LETTERS) if (EARLY_LETTERS, 0) in topics.logs else []
    counts = Counter(letter.place for letter in early)
    yield from (f"{place} has {count} letters of the table" for place, count in counts.items() if count > 1)
    last = world.setting.changelog.last.curr
    entry = Journal(world.storage, world.setting.table).current
    plan = None if entry is None else entry.plan
    if plan is None or plan.epoch != last:
        yield f"the journal's plan ends with {plan and plan.epoch}, the upstream with {last}"
        return
    alive = {job.definition.output: job for job in jobs_after(plan, world.setting.table).jobs}
    for output, job in world.setting.every_job.items():
        if topics.partitions(output):
            yield from _output(world, job, alive.get(output))
    yield from _progress(world, last)
    yield from _replica(world, last)
    yield from _plans(world)
    yield from violations_of_reading(world)
    yield from violations_of_suspensions(world)


def _output(world: World, job: JobDefinition, state: JobState | None) -> Iterator[str]:
    topics, changelog = world.durable.topics, world.setting.changelog
    partitions = [committed(topics, job, number) for _, number in topics.partitions(job.output)]
    if not any(partitions) and state is None:
        return
    table = changelog.table
    condition = None if job.filter is None else condition_of(parse_filter(job.filter, table), table)
    upstream = changelog.entries if world.setting.parks else _without_faulty(changelog)
    sources = [[ListSource(each) for each in topic] for topic in (upstream, partitions)]
    began_with = 0 if state is None else state.definition.first_width
    form, findings = RecordForm.of_output(replace(job, first_width=began_with), table), Findings()
    view = OutputView(table, job.columns, condition, form.rows_before, hash_key_of(job), job.key)
    letters = None
    if world.setting.parks:
        letters = DeadLetters(
            table, findings, partial(_letters, world, job), _faulty(world), are_empty=job.is_masked
        )
    output = canonical(sources[1], form, view.columns, view.key_columns)
    checker = Checker(
        table,
        view,
        ("up", of_changes(table, *sources[0])),
        (job.output, output),
        findings,
        letters,
        output_form=form,
        has_epochs=job.barrier_topic is not None,
        reads_upstream=job.scan.reads_upstream,
        from_now=job.from_now,
        initial=_initial(changelog),
    )
    report = checker.run(require_complete=state is not None)
    # A job that is dropped while its table is suspended may end within an interval.
    ends_early = state is None and not world.setting.parks
    left = [each for each in report.findings if not (ends_early and each.rule is Rule.BARRIER_MISSING)]
    yield from (str(finding) for finding in left[:3])
    if job.until_complete and state is not None:
        yield from _end_of(world, job, partitions)
    elif report.behind and state is not None:
        yield f"{job.output} is {report.behind} barriers behind"
    for number, entries in enumerate(partitions):
        epochs = Counter(entry.barrier for entry in entries if entry.barrier is not None)
        yield from (f"{job.output}-{number} has barrier {e!r} {n} times" for e, n in epochs.items() if n > 1)
    if state is not None:
        published = dict(_published(partitions))
        known = dict(_known(world, state))
        if published != known:
            yield f"{job.output}: progress table {known}, output {published}"


def _end_of(world: World, job: JobDefinition, partitions: list[list[TopicEntry]]) -> Iterator[str]:
    """The output of a job until it is complete ends with the batch of the barrier that has completed it."""
    barriers = [list(_barriers_of(entries)) for entries in partitions]
    lasts = {topic[-1].curr for topic in barriers}
    finishing = (each.curr for topic in barriers for each in topic if any(p.finished for p in each.progress))
    completed = max(finishing, default=0)
    plans = [plan for plan in plans_of(world) if any(each.epoch == completed for each in plan.barriers)]
    # What a restored state replays may be cut into other batches.
    wanted = {plans[-1].epoch} if plans and not world.durable.restored else lasts
    if len(lasts) > 1 or lasts != wanted:
        yield f"{job.output} ends with {sorted(lasts)}, and was completed by {completed} in a batch up to {wanted}"


def _initial(changelog: Changelog) -> InitialTable | None:
    source = changelog.initial
    return (
        None if source is None else InitialTable(source.offsets, [rows_as(source.content, changelog.table)])
    )


def committed(topics: Topics, job: JobDefinition, number: int) -> list[TopicEntry]:
    """Changes and barriers of an output's partition, wherever these stand, deleted since or not."""
    data = topics.committed((job.output, number))
    if job.barrier_topic is None:
        return data
    barriers = topics.committed((job.barrier_topic, number), deleted_too=True)
    return list(MergedSource(ListSource(data), ListSource(barriers), job.barrier_topic, number).entries())


def _letters(world: World, job: JobDefinition) -> list[ListedLetter]:
    topics = world.durable.topics
    return topics.letters(job.dead_letters) if topics.partitions(job.dead_letters) else []


def _published(partitions: list[list[TopicEntry]]) -> Iterator[tuple[int, VnodeProgress]]:
    for entries in partitions:
        for barrier in _barriers_of(entries):
            for progress in barrier.progress:
                yield progress.vnode, progress


def _barriers_of(entries: list[TopicEntry]) -> Iterator[Barrier]:
    for entry in entries:
        if entry.barrier is not None:
            yield entry.closes or decode_barrier(entry.barrier, entry.value, where="output")


def _known(world: World, state: JobState) -> Iterator[tuple[int, VnodeProgress]]:
    for vnode, progress in progress_of(world, state).items():
        position = None if progress.position is None else position_to_text(progress.position)
        finished = isinstance(progress, Completed)
        yield vnode, VnodeProgress(vnode, position, finished, progress.row_count)


def progress_of(world: World, state: JobState) -> dict[int, Progress]:
    """Of a job, as the progress table has it."""
    table = world.setting.table
    return dict(ProgressTable(world.storage, table).load([state])[state.name])


def _progress(world: World, last: int) -> Iterator[str]:
    storage, table = world.storage, world.setting.table
    entry = Journal(storage, table).current
    epochs = ProgressTable(storage, table).epoch, Replica(storage, table).log_epoch
    plan = None if entry is None else entry.plan
    epoch = 0 if plan is None else plan.finished_epoch(is_done=plan.is_done(*epochs))
    if epoch != last or epochs[0] > last:
        yield f"the last finished batch ends with {epoch}, the upstream with {last}"
    rows = Ledger(world.storage, PROGRESS_PATH, SCHEMA).read().to_pylist()
    counts = Counter((row["job"], row["vnode"], row["barrier"]) for row in rows)
    yield from (f"the progress table has {what} {count} times" for what, count in counts.items() if count > 1)


def _plans(world: World) -> Iterator[str]:
    table = world.setting.table
    paused_at = {each.start_pause.epoch for each in world.instances if each.paused}
    for before, plan in pairwise(plans_of(world)):
        same = replace(before, skipped=plan.skipped, parked=plan.parked)
        others = same.jobs if world.setting.parks else _without_dropped(same.jobs, plan.jobs)
        if replace(plan, jobs=same.jobs) == same and _is_less(plan.jobs, others, table):
            continue  # the same without invalid records, or without slices that were too much
        if before.until is not None:
            begins = plan.first_offsets[: len(before.until)]
            if (plan.start, begins) != (before.start, before.until):
                yield f"a plan begins at {plan.first_offsets}, the part before it ended at {before.until}"
            continue
        if plan.start == before.start and plan.silent:
            continue  # the one before is not what was sent
        if plan.start != before.end:
            yield f"a plan begins with {plan.start}, the one before ended with {before.end}"
        outcome = jobs_after(before, table)
        # A state that is brought forward is sent by as many lanes as its outputs allow.
        is_followed = outcome.lanes in (None, plan.lanes) or world.durable.restored
        if plan.lanes_set != outcome.lanes or not is_followed:
            yield f"the plan of {plan.epoch} has {plan.lanes} lanes, {plan.lanes_set} as set; {outcome.lanes} were set"
        count, jobs = len(plan.first_offsets), [job.state for job in plan.jobs]
        grown = (job.with_partitions(count, job.definition.output_partitions) for job in outcome.jobs)
        left = tuple(job if job in jobs else other for job, other in zip(grown, outcome.jobs, strict=True))
        # The instance that was to pause them may have died before its plan was written.
        opened = [job for job in jobs if job.opened]
        if plan.epoch in paused_at and opened and all(job.paused for job in opened):
            left = tuple(replace(job, paused=True) for job in left)
        # Which jobs have ended with the batch before is what its progress says.
        ended = (replace(job, ended=job.ended or job.definition.until_complete) for job in left)
        left = tuple(other if other in jobs else job for job, other in zip(left, ended, strict=True))
        lost = [job.name for job in left if job.opened and job not in jobs]
        new = [job.name for job in jobs if job not in left and job.start < before.epoch]
        if lost or new:
            yield f"the plan of {plan.epoch} has lost {lost} and invented {new}"


def _without_dropped(jobs: Sequence[JobPlan], left: Sequence[JobPlan]) -> list[JobPlan]:
    """The jobs that are left in a plan: an operator of a suspended table may drop some."""
    names = {job.state.name for job in left}
    return [job for job in jobs if job.state.name in names]


def _is_less(jobs: Sequence[JobPlan], others: Sequence[JobPlan], table: TableSchema) -> bool:
    """True if jobs are the same ones, which may have got columns, or be paused and read less."""
    return len(jobs) == len(others) and all(
        job.state
        in (
            other.state,
            replace(other.state.grown(table), tells=job.state.tells),
            replace(other.state, paused=True, paused_by=job.state.paused_by),
        )
        and set(job.slices) <= set(other.slices)
        for job, other in zip(jobs, others, strict=True)
    )


def _without_faulty(changelog: Changelog) -> list[list[TopicEntry]]:
    """The upstream's records as if those that an operator leaves out had never been there."""
    return [
        [each for each in entries if (number, each.offset) not in changelog.faulty]
        for number, entries in enumerate(changelog.entries)
    ]


def _faulty(world: World) -> frozenset[tuple[int, int]]:
    """Invalid records, and those of which a change was too long for an output."""
    parked = (item for plan in plans_of(world) for item in plan.parked)
    too_long = ((item.partition, item.offset) for item in parked if item.code is Code.RECORD_TOO_LARGE)
    return world.setting.changelog.faulty.union(too_long)


def _replica(world: World, last: int) -> Iterator[str]:
    table, changelog = world.setting.table, world.setting.changelog
    replica = Replica(world.storage, table)
    if replica.log_epoch != last:
        yield f"the log ends with {replica.log_epoch}, the upstream with {last}"
    for path in (BASE_PATH, LOG_PATH):
        stored = {(each.name, each.type) for each in world.durable.files.tables[path][-1].schema}
        if lacking := {(each.name, each.type.arrow) for each in table.columns} - stored:
            yield f"{path} lacks {lacking}"
    files = replica.files(replica.pin())
    if not table.has_key:
        if files.base or files.log:
            yield f"rows without identity are kept: {files}"
        return
    memory = world.durable.files
    changes = changes_of(files, memory, table)
    # From the first barrier on that tells of added partitions rows of the log have no place, and are counted.
    rise = changelog.rise or last + 2
    of_topic = [each for each in _places(world) if each[0] > files.compacted_epoch]
    count, wanted_count = (
        sum(epoch >= rise for epoch in epochs)
        for epochs in ([change[EPOCH] for change in changes], [epoch for epoch, *_ in of_topic])
    )
    if count != wanted_count:
        yield f"the log holds {count} changes since {rise}, the upstream {wanted_count}"
    places = sorted((change[PARTITION], change[OFFSET]) for change in changes if change[EPOCH] < rise)
    wanted = [(number, offset) for epoch, number, offset in of_topic if epoch < rise]
    if changelog.timeline is not None:
        wanted = sorted(places_of_released(world, files.compacted_epoch))
    if [place for place in places if place not in changelog.extra] != wanted:
        yield f"the log holds {places}, the upstream {wanted}"
    rows = rows_of(files, memory, table, upto=last)
    if not _are_equal(rows, changelog.rows_at(last + 1, _faulty(world))):
        yield "base and log do not fold to the upstream's table"


def _are_equal(rows: dict[Key, Row], others: dict[Key, Row]) -> bool:
    """A NaN is equal to itself here."""
    return rows.keys() == others.keys() and all(
        value == other or (value != value and other != other)
        for key, row in rows.items()
        for value, other in zip(row, others[key], strict=True)
    )


def _places(world: World) -> Iterator[tuple[int, int, int]]:
    """The changes that are not left out, each with the barrier that closes its interval before its place."""
    faulty, changelog = _faulty(world), world.setting.changelog
    for number, entries in enumerate(changelog.entries):
        closing = [int(entry.barrier) for entry in entries if entry.barrier is not None]
        for entry in entries:
            if entry.barrier is not None:
                closing.pop(0)
            elif (number, entry.offset) not in faulty:
                yield closing[0] if closing else world.setting.changelog.last.curr + 1, number, entry.offset
