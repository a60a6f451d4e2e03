"""One lane task: the part of a batch that falls to one contiguous range of vnodes.

What the lane sends, in one transaction (the order is the contract of DESIGN 2.3 and 2.4):

    for each job: the upstream records at fault that the lane found, if they are parked, to the job's dead letters
    for each job: the start barrier, if the job opens with this batch
    for each job: the rows of its slices, as INSERTs, as of the barrier that the batch starts from
    for each interval of the batch, for each job:
        the changes that the *new* positions make visible
        the interval's barrier, with the progress of the vnodes that changed (the first interval only)

All changes, hidden ones too, go into a log file that the driver commits afterwards. The task decides nothing: the
plan is given, and the same plan on the same upstream range sends the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from schemas.columnar import encode_changes, encode_inserts, encode_keys
from schemas.errors import BackfillError, Code, InputError
from schemas.filter.ast import Filter
from schemas.filter.columnar import evaluate
from schemas.filter.parse import parse_filter
from schemas.job import JobDefinition, JobSchemas
from schemas.limits import Limits
from schemas.position import position_to_text
from schemas.records import Barrier, VnodeProgress
from schemas.table import Column, TableSchema
from state.columns import log_schema
from state.journal import is_superseded
from state.plan import BatchPlan, JobPlan, Slice
from state.progress import Completed, NotStarted, Progress, after_slice
from state.replica import LOG_BOUNDS, LOG_PATH, ReplicaFiles
from state.snapshot import SnapshotReader
from state.storage import DataFile, Storage
from streaming.core.visibility import HIDDEN, covered, visible_ops
from streaming.lane.changes import Changes, log_rows, order_changes
from streaming.lane.dead_letters import Letter, ReadLetters
from streaming.lane.faults import Fault, find_faults
from streaming.lane.output import LaneOutput, OpenOutput
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Armed, Failpoint
from streaming.runtime.stopwatch import Stopwatch
from streaming.runtime.topics import Partition

_CHUNK_ROWS = 65_536
_LOG_PART_ROWS = 250_000
_LOG_PART_BYTES = 64 << 20
_LOG_ROW_GROUP_ROWS = 16_384


@dataclass(frozen=True)
class LaneTask:
    """Everything that the lanes of a batch need; it is sent to them, so it holds values only.

    `progress[job]` lists the vnodes that were started as of the plan's start; `files` the pinned files of the
    vnodes with slices; `known_ends` where the output partitions ended after the last batch; `failpoint` what a test
    wants to happen in them.
    """

    storage: Storage
    table: TableSchema
    plan: BatchPlan
    progress: Mapping[str, Mapping[int, Progress]]
    files: ReplicaFiles
    open_output: OpenOutput
    read_letters: ReadLetters
    transactional_id: str
    journal_version: int
    limits: Limits
    known_ends: Mapping[Partition, int]
    failpoint: Armed | None = None

    def vnodes(self, lane: int) -> range:
        """The lane's vnodes: those with vnode * lanes // vnode_count = lane."""
        count, lanes = self.table.vnode_count, self.plan.lanes
        return range(-(-lane * count // lanes), -(-(lane + 1) * count // lanes))


@dataclass
class LaneResult:
    """What the driver needs to know. `rows_read[job][vnode]` counts snapshot rows, filtered ones included.

    `error` is one that was foreseen; `trace` the stack of one that was not, for a log file.
    """

    lane: int
    log: list[DataFile] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    rows_read: dict[str, dict[int, int]] = field(default_factory=dict)
    sent_snapshot: dict[str, int] = field(default_factory=dict)
    sent_live: dict[str, int] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)
    changes: int = 0
    held_bytes: int = 0
    already_sent: bool = False
    superseded: bool = False
    error: BackfillError | None = None
    trace: str | None = None
    step_ms: dict[str, float] = field(default_factory=dict)


class LaneJob:
    """A job as one lane sees it."""

    def __init__(self, task: LaneTask, plan: JobPlan, lane: int) -> None:
        self.definition: JobDefinition = plan.state.definition
        self.opens = plan.opens
        self.table = task.table
        self.columns: tuple[Column, ...] = task.table.select(self.definition.columns)
        self.filter: Filter | None = (
            None if self.definition.filter is None else parse_filter(self.definition.filter, task.table)
        )
        vnodes = task.vnodes(lane)
        self.slices = tuple(item for item in plan.slices if item.vnode in vnodes)
        known = task.progress.get(self.definition.name, {})
        self.progress: dict[int, Progress] = {vnode: known[vnode] for vnode in vnodes if vnode in known}
        self.partitions = sorted({self.definition.partition_of(vnode) for vnode in vnodes})

    @property
    def topic(self) -> str:
        """The job's output."""
        return self.definition.output

    def places(self) -> list[Partition]:
        """The lane's partitions of the output."""
        return [(self.topic, partition) for partition in self.partitions]

    def read_columns(self) -> list[str]:
        """The columns that a slice is read with."""
        return [column.name for column in JobSchemas.of(self.definition, self.table).read]

    def passes(self, arrays: Mapping[str, pa.Array]) -> pa.Array | None:
        """Where the filter is TRUE (NULL counts as no); None without a filter."""
        return None if self.filter is None else evaluate(self.filter, arrays).fill_null(False)

    def read_slice(self, item: Slice, rows_read: int) -> None:
        """Raise the progress of a vnode whose slice was read."""
        before = self.progress.get(item.vnode, NotStarted())
        self.progress[item.vnode] = after_slice(before, item.upto, rows_read)

    def barrier(self, upstream: Barrier, partition: int, *, with_progress: bool) -> Barrier:
        """The upstream's barrier as this output's partition tells it."""
        changed = [item.vnode for item in self.slices] if with_progress else []
        told = tuple(
            _told(vnode, self.progress[vnode])
            for vnode in sorted(set(changed))
            if self.definition.partition_of(vnode) == partition
        )
        return replace(upstream, partitions=self.definition.output_partitions, mutation=None, progress=told)


def _told(vnode: int, progress: Progress) -> VnodeProgress:
    position = None if progress.position is None else position_to_text(progress.position)
    return VnodeProgress(vnode, position, isinstance(progress, Completed), progress.row_count)


def run_lane(task: LaneTask, lane: int, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> LaneResult:
    """Carry out the lane's part of the plan.

    Raises: Fenced and OutcomeUnknown (see `LaneOutput`), InputError(EPOCH_TOO_LARGE), StateError when pinned files
    are gone. With upstream records at fault nothing is sent and the result lists them.
    """
    failpoints.obey(task.failpoint)
    watch, result = Stopwatch(), LaneResult(lane)
    jobs = [LaneJob(task, plan, lane) for plan in task.plan.jobs]
    for part in _whole(batches, task) if jobs else _parts(batches):
        result.held_bytes += sum(batch.nbytes for batch in part)
        changes = order_changes(part, schema, task.plan, task.table)
        result.changes += len(changes)
        result.faults += find_faults(changes, task.table, task.limits.record_bytes)
        watch.lap("order")
        failpoints.reach(Failpoint.LANE_READ)
        if not result.faults:
            _send(task, lane, jobs, changes, result, watch)
            result.log += write_log(task, lane, changes)
            watch.lap("log")
            failpoints.reach(Failpoint.LANE_LOGGED)
    result.step_ms = watch.step_ms
    return result


def _whole(batches: Iterable[pa.RecordBatch], task: LaneTask) -> Iterator[list[pa.RecordBatch]]:
    """All changes at once: a job wants them in order."""
    part: list[pa.RecordBatch] = []
    held, limit = 0, task.limits.lane_bytes
    for batch in batches:
        part.append(batch)
        held += batch.nbytes
        if held > limit:
            raise InputError(
                Code.EPOCH_TOO_LARGE,
                where=f"barrier {task.plan.epoch}",
                found=f"more than {limit} bytes of changes for one lane since the barrier before",
                expected="an interval that a lane can hold, as limits.lane_bytes says",
                next_step="raise limits.lane_bytes if the memory is there; let barriers come more often",
            )
    yield part


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """To build the log alone, as many at a time as fit in memory."""
    part: list[pa.RecordBatch] = []
    rows = held = 0
    for batch in batches:
        part.append(batch)
        rows += len(batch)
        held += batch.nbytes
        if rows >= _LOG_PART_ROWS or held >= _LOG_PART_BYTES:
            yield part
            part, rows, held = [], 0, 0
    yield part


def write_log(task: LaneTask, lane: int, changes: Changes) -> list[DataFile]:
    """All changes of a lane, hidden ones too, in a file (none without changes) that the driver is to commit."""
    if not len(changes):
        return []
    rows = log_rows(changes, task.plan, log_schema(task.table))
    stem = f"{task.plan.epoch:020d}-{lane}"
    return [
        task.storage.write_parquet(
            LOG_PATH, rows, stem=stem, bound_columns=LOG_BOUNDS, row_group_rows=_LOG_ROW_GROUP_ROWS
        )
    ]


def _send(
    task: LaneTask, lane: int, jobs: list[LaneJob], changes: Changes, result: LaneResult, watch: Stopwatch
) -> None:
    start = None if task.plan.start is None else task.plan.start.epoch
    before = {place: None if job.opens else start for job in jobs for place in job.places()}
    if not before:
        return
    with task.open_output(f"{task.transactional_id}-{lane}") as output:
        watch.lap("init")
        failpoints.reach(Failpoint.LANE_OPENED)
        result.superseded = is_superseded(task.storage, task.journal_version)
        if result.superseded:
            return
        result.already_sent = output.already_sent(before, task.plan.epoch, task.known_ends)
        watch.lap("look")
        if result.already_sent:
            send_all(task, jobs, changes, _Silent(), result, watch)
        else:
            failpoints.reach(Failpoint.LANE_LOOKED)
            with output.transaction():
                send_letters(task, lane, jobs, output)
                send_all(task, jobs, changes, output, result, watch)
                failpoints.reach(Failpoint.LANE_SENT)
            failpoints.reach(Failpoint.LANE_COMMITTED)
        watch.lap("commit")
        result.ends = output.ends()


class LetterBox(Protocol):
    """Whatever takes dead letters."""

    def send_letter(self, topic: str, letter: Letter) -> None:
        """Queue one for the topic of these."""


def send_letters(task: LaneTask, lane: int, jobs: Iterable[LaneJob], box: LetterBox) -> None:
    """The records that the plan parks and this lane has found, to every job's dead letters."""
    parked = [item for item in task.plan.parked if item.lane == lane]
    topics = [job.definition.dead_letters for job in jobs]
    for letter in task.read_letters(parked) if parked else ():
        for topic in topics:
            box.send_letter(topic, letter)


def send_all(
    task: LaneTask,
    jobs: list[LaneJob],
    changes: Changes,
    sender: Sender,
    result: LaneResult,
    watch: Stopwatch,
) -> None:
    """Everything that the lane sends for a batch, in the order that the module describes."""
    _open_jobs(task, jobs, sender)
    _send_snapshot(task, jobs, sender, result, watch)
    watch.lap("snapshot")
    failpoints.reach(Failpoint.LANE_SENT_SNAPSHOT)
    _send_live(task, jobs, changes, sender, result)
    watch.lap("live")


class _Silent:
    """Takes what was sent before and sends nothing: a batch that is run again still has to count its rows."""

    def send(self, topic: str, partitions: object, keys: pa.Array, values: pa.Array) -> None:
        """Nothing."""

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        """Nothing."""


Sender = LaneOutput | _Silent


def _open_jobs(task: LaneTask, jobs: Iterable[LaneJob], sender: Sender) -> None:
    for job in jobs:
        if job.opens:
            assert task.plan.start is not None, "a job starts at a barrier"
            for partition in job.partitions:
                barrier = job.barrier(task.plan.start.barrier, partition, with_progress=False)
                sender.send_barrier(job.topic, partition, barrier)


def _send_snapshot(
    task: LaneTask, jobs: Iterable[LaneJob], sender: Sender, result: LaneResult, watch: Stopwatch
) -> None:
    for job in jobs:
        read: dict[int, int] = {}
        sent = 0
        if job.slices:
            reader = SnapshotReader(task.storage, task.table, task.files)
            columns = job.read_columns()
            watch.lap("snapshot")
            overlay = reader.overlay(frozenset(item.vnode for item in job.slices), columns)
            watch.lap("overlay")  # follows from the log's files, whatever is read beneath it
            for item in job.slices:
                partition, count = job.definition.partition_of(item.vnode), 0
                for rows in reader.read(item, columns, overlay):
                    count += rows.num_rows
                    sent += _send_rows(job, partition, rows, sender)
                read[item.vnode] = read.get(item.vnode, 0) + count
                job.read_slice(item, count)
        result.rows_read[job.definition.name] = read
        result.sent_snapshot[job.definition.name] = sent


def _send_rows(job: LaneJob, partition: int, rows: pa.Table, sender: Sender) -> int:
    sent = 0
    for chunk in _chunks(rows):
        arrays = {name: chunk.column(i) for i, name in enumerate(chunk.schema.names)}
        passes = job.passes(arrays)
        if passes is not None:
            arrays = {name: array.filter(passes) for name, array in arrays.items()}
        keys = encode_keys(job.table.key_columns, [arrays[name] for name in job.table.primary_key])
        if len(keys):
            values = encode_inserts(job.columns, [arrays[column.name] for column in job.columns])
            sender.send(job.topic, partition, keys, values)
        sent += len(keys)
    return sent


def _chunks(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(rows.combine_chunks().to_batches(max_chunksize=_CHUNK_ROWS))


def _send_live(
    task: LaneTask, jobs: Iterable[LaneJob], changes: Changes, sender: Sender, result: LaneResult
) -> None:
    visible = [(job, _visible(task, job, changes)) for job in jobs]
    for number, aligned in enumerate(task.plan.barriers):
        for job, runs in visible:
            run = runs[number]
            if len(run.keys):
                sender.send(job.topic, run.partitions, run.keys, run.values)
                result.sent_live[job.definition.name] = result.sent_live.get(job.definition.name, 0) + len(
                    run.keys
                )
            for partition in job.partitions:
                barrier = job.barrier(aligned.barrier, partition, with_progress=number == 0)
                sender.send_barrier(job.topic, partition, barrier)


@dataclass(frozen=True)
class _Run:
    """What one interval sends for one job."""

    partitions: np.ndarray[tuple[int], np.dtype[np.int32]]
    keys: pa.Array
    values: pa.Array


def _visible(task: LaneTask, job: LaneJob, changes: Changes) -> list[_Run]:
    """The job's records of every interval, encoded in one go."""
    vnode_count = task.table.vnode_count
    shown = covered(changes.vnodes, changes.keys, job.progress, vnode_count)
    names = task.table.column_names
    before_passes = job.passes(dict(zip(names, changes.before, strict=True)))
    after_passes = job.passes(dict(zip(names, changes.after, strict=True)))
    ops = changes.ops
    if before_passes is not None and after_passes is not None:
        halves = (mask.to_numpy(zero_copy_only=False) for mask in (before_passes, after_passes))
        ops = visible_ops(ops, *halves)
    rows = np.flatnonzero(shown & (ops != HIDDEN))
    taken = pa.array(rows)
    wanted = [task.table.column_names.index(column.name) for column in job.columns]
    values = encode_changes(
        job.columns,
        pa.array(ops[rows], pa.int8()),
        [changes.before[i].take(taken) for i in wanted],
        [changes.after[i].take(taken) for i in wanted],
    )
    keys = changes.key_bytes.take(taken)
    routes = np.array([job.definition.partition_of(v) for v in range(vnode_count)], dtype=np.int32)
    partitions = routes[changes.vnodes[rows]]
    bounds = np.searchsorted(rows, changes.bounds(len(task.plan.barriers)))
    return [
        _Run(partitions[low:high], keys.slice(low, high - low), values.slice(low, high - low))
        for low, high in pairwise(bounds.tolist())
    ]
