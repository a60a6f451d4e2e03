"""The service without Spark, Kafka, Delta and clock.

What is real: aligner, planner, slice cutter, snapshot reader, order of changes, visibility, encoders, lane,
progress. What is replaced: topics are lists of bytes, the exchange is a loop over rows that shuffles them, a
table's commit is a list of Parquet files, and the fold is rewritten the slow and obvious way. The output is
judged by `verify`'s checker, which shares nothing with all that.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.codec import ChangeCodec, barrier_header, decode_barrier
from schemas.filter.parse import parse_filter
from schemas.job import JobDefinition
from schemas.limits import Limits
from schemas.position import Key, order_key
from schemas.records import Barrier, Mutation, Row
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, EPOCH, OFFSET, OP, PARTITION, VNODE
from state.plan import AlignedBarrier, BatchPlan, JobPlan, JobState, ReplicaVersion
from state.progress import Completed, NotStarted, Progress, after_slice
from state.replica import BASE_PATH, LOG_PATH, BaseFile, ReplicaFiles
from state.snapshot import SliceCutter, SnapshotReader
from state.storage import DataFile, Storage
from state.vnode import compute_vnode
from streaming.core.alignment import Aligner
from streaming.core.jobs import Report as MutationReport
from streaming.core.jobs import add_configured, jobs_after
from streaming.core.planning import choose_barriers, choose_slices
from streaming.lane.changes import AFTER, BEFORE, KEY, SIZE, VALUE, order_changes
from streaming.lane.faults import Fault, find_faults
from streaming.lane.output import lane_output
from streaming.lane.run import write_log
from streaming.lane.sending import send_all
from streaming.lane.task import LaneJob, LaneResult, LaneTask
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.stopwatch import Stopwatch
from streaming.verify.checker import Checker
from streaming.verify.findings import Report
from streaming.verify.history import Entry
from streaming.verify.predicate import condition_of
from streaming.verify.rows import View
from tests.kit.histories import ListSource
from tests.kit.upstream import MemoryTopic, Upstream

ALL = 1_000_000_000


class UpstreamFaults(Exception):
    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults


@dataclass
class Recorder:
    """Takes what the lanes send."""

    topics: dict[str, MemoryTopic]

    def send(
        self, topic: str, partitions: npt.NDArray[np.int32] | int, keys: pa.Array, values: pa.Array
    ) -> None:
        numbers = np.broadcast_to(partitions, len(keys)).tolist()
        for number, key, value in zip(numbers, keys.to_pylist(), values.to_pylist(), strict=True):
            self.topics[topic].append(number, key, value)

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        self.topics[topic].append_barrier(partition, barrier)


@dataclass
class PureService:
    """`read` lets upstream records arrive, `run` runs the batches that they allow.

    `jobs` are those of the configuration. `lanes`, `max_records`, `exact_below` may change between batches.
    """

    table: TableSchema
    upstream: MemoryTopic
    folder: Path
    jobs: Sequence[JobDefinition] = ()
    lanes: int = 1
    max_records: int = ALL
    exact_below: int = SliceCutter.exact_below
    outputs: dict[str, MemoryTopic] = field(default_factory=dict)
    progress: dict[str, dict[int, Progress]] = field(default_factory=dict)
    known: tuple[JobState, ...] = ()
    every: dict[str, JobDefinition] = field(default_factory=dict)
    """By output: all jobs that there ever were."""
    plans: list[BatchPlan] = field(default_factory=list)
    reports: list[MutationReport] = field(default_factory=list)
    stopped: bool = False

    def __post_init__(self) -> None:
        self.storage = Storage(str(self.folder))
        for path in (BASE_PATH, LOG_PATH):
            self.storage.filesystem.create_dir(self.storage.path(path), recursive=True)
        self.count = len(self.upstream.partitions)
        self.aligner = Aligner("up", self.count, None)
        self.position: AlignedBarrier | None = None
        self.waiting: list[AlignedBarrier] = []
        self._taken = [0] * self.count
        self._log: list[DataFile] = []
        self._base: dict[int, tuple[BaseFile, ...]] = {}
        self._folded = 0
        self._codec = ChangeCodec(self.table.columns)
        self._cutter = SliceCutter(self._reader())
        self._chance = random.Random(0)

    # upstream --------------------------------------------------------------------------------------------

    def read(self, partition: int | None = None, *, until: Barrier | None = None) -> None:
        """Let a partition's (default: every partition's) records arrive, up to its end or to a barrier."""
        for number in range(self.count) if partition is None else (partition,):
            entries = self.upstream.partitions[number]
            end = len(entries) if until is None else _end(entries, until)
            for entry in entries[self._taken[number] : end]:
                if entry.barrier is not None:
                    barrier = decode_barrier(entry.barrier, entry.value, where="up")
                    self.aligner.feed(number, entry.offset, barrier)
            self._taken[number] = max(self._taken[number], end)
        self.waiting += self.aligner.aligned()

    # batches ---------------------------------------------------------------------------------------------

    def step(self, upstream: Upstream, rows: int = ALL, mutation: Mutation | None = None) -> None:
        """A barrier, and everything that it allows."""
        upstream.barrier(mutation)
        self.read()
        self.run(rows)

    def run(self, rows: int = ALL, *, batches: int = ALL) -> int:
        """Run the batches that aligned barriers allow, with a budget of `rows` a job; how many they were."""
        before = len(self.plans)
        while self.waiting and len(self.plans) < before + batches and not self.stopped:
            plan = self._plan(rows)
            self._carry_out(BatchPlan.from_json(plan.to_json(), self.table))
            self.waiting = self.waiting[len(plan.barriers) :]
        return len(self.plans) - before

    def _files(self) -> ReplicaFiles:
        log = tuple(file for file in self._log if file.bounds[EPOCH][1] > self._folded)
        return ReplicaFiles(self._folded, self._base, log)

    def _reader(self) -> SnapshotReader:
        return SnapshotReader(self.storage, self.table, self._files())

    def _plan(self, rows: int) -> BatchPlan:
        first = (0,) * self.count if self.position is None else _behind(self.position)
        barriers = tuple(choose_barriers(self.waiting, first, self.max_records))
        self._cutter.use(self._reader())
        self._cutter.exact_below = self.exact_below
        jobs = tuple(self._plan_job(job, rows) for job in self.known)
        skipped = self.aligner.take_duplicates(barriers[-1])
        version = ReplicaVersion(0, 0, self._folded)
        return BatchPlan(self.position, barriers, first, version, self.lanes, jobs, skipped)

    def _plan_job(self, job: JobState, rows: int) -> JobPlan:
        definition = job.definition
        if not job.opened:
            assert definition.output not in self.outputs, "an output topic is used once"
            self.outputs[definition.output] = MemoryTopic.empty(definition.output_partitions)
            self.every[definition.output] = definition
        budget = 0 if job.paused or job.rate_limit == 0 else rows
        progress = self.progress.setdefault(job.name, {})
        chosen = choose_slices(definition, self.table.vnode_count, progress, budget, self._cutter.cut)
        return JobPlan(job, chosen.slices)

    def _carry_out(self, plan: BatchPlan) -> None:
        results = self.send(plan, self.outputs)
        self._log += [file for result in results for file in result.log]
        for job in plan.jobs:
            states, name = self.progress[job.state.name], job.state.name
            rows_read = {v: n for result in results for v, n in result.rows_read[name].items()}
            for item in job.slices:
                before = states.get(item.vnode, NotStarted())
                states[item.vnode] = after_slice(before, item.upto, rows_read[item.vnode])
        outcome = jobs_after(plan, self.table)
        self.stopped = outcome.stop
        self.reports += outcome.reports
        self.known = add_configured(outcome.jobs, self.jobs, plan.epoch)
        self.jobs = ()  # a job that was dropped must not come back
        started = {job.name: job.start for job in self.known}
        self.progress = {
            name: {} if start == plan.epoch else self.progress[name] for name, start in started.items()
        }
        self.position = plan.end
        self.plans.append(plan)

    def send(self, plan: BatchPlan, outputs: dict[str, MemoryTopic]) -> list[LaneResult]:
        """The lanes of a plan. What they do must depend on nothing but the plan and the upstream."""
        read = frozenset(item.vnode for job in plan.jobs for item in job.slices)
        files = self._files().of_vnodes(read)
        nowhere = partial(lane_output, KafkaSettings("none"))
        task = LaneTask(
            self.storage,
            self.table,
            plan,
            self.progress,
            files,
            nowhere,
            lambda parked: (),
            "none",
            0,
            Limits(),
            {},
        )
        results = []
        for lane in self._chance.sample(range(plan.lanes), plan.lanes):
            batch = self._exchange(plan, lane, task.vnodes(lane))
            changes = order_changes([batch], batch.schema, plan, self.table)
            if faults := find_faults(changes, self.table):
                raise UpstreamFaults(faults)
            result = LaneResult(lane)
            jobs = [LaneJob(task, job, lane) for job in plan.jobs]
            send_all(task, jobs, changes, Recorder(outputs), result, Stopwatch())  # type: ignore[arg-type]
            result.log = write_log(task, lane, changes)
            results.append(result)
        return results

    def _exchange(self, plan: BatchPlan, lane: int, vnodes: range) -> pa.RecordBatch:
        """The rows of a lane in any order, barriers (which have no vnode) in lane 0, as Spark brings them."""
        rows = [
            row
            for number, entries in enumerate(self.upstream.partitions)
            for entry in _between(entries, plan.first_offsets[number], plan.end_offsets[number])
            if (row := self._decoded(number, entry))[VNODE] in vnodes or (row[VNODE] is None and lane == 0)
        ]
        self._chance.shuffle(rows)
        return pa.RecordBatch.from_pylist(rows, schema=decoded_schema(self.table))

    def _decoded(self, number: int, entry: Entry) -> dict[str, Any]:
        place = {PARTITION: number, OFFSET: entry.offset, KEY: entry.key, VALUE: None, BEFORE_HASH: None}
        place[SIZE] = len(entry.key or b"") + len(entry.value or b"")
        if entry.barrier is not None:
            return {**place, OP: None, VNODE: None, BEFORE: None, AFTER: None}
        change = self._codec.decode(entry.value or b"")
        halves = {BEFORE: self._named(change.before), AFTER: self._named(change.after)}
        return {**place, OP: int(change.op), VNODE: self.vnode(self.table.key_of(change.row)), **halves}

    def _named(self, row: Row | None) -> dict[str, Any] | None:
        return None if row is None else dict(zip(self.table.column_names, row, strict=True))

    def vnode(self, key: Key) -> int:
        return vnode_of(self.table, key)

    # upkeep ----------------------------------------------------------------------------------------------

    def fold(self, epoch: int | None = None, *, rows_per_file: int = 3) -> None:
        """Make the base the table at a barrier (default: the one where the service stands), slowly.

        Raises: ValueError for a barrier that the service has not come to, or that the base has passed.
        """
        here = 0 if self.position is None else self.position.epoch
        self._folded = here if epoch is None else max(epoch, self._folded)
        by_vnode: dict[int, list[Row]] = {}
        for row in sorted(self._table_at(self._folded), key=lambda row: order_key(self.table.key_of(row))):
            by_vnode.setdefault(self.vnode(self.table.key_of(row)), []).append(row)
        self._base = {
            vnode: tuple(
                self._write_base(vnode, rows[start : start + rows_per_file])
                for start in range(0, len(rows), rows_per_file)
            )
            for vnode, rows in by_vnode.items()
        }

    def _write_base(self, vnode: int, rows: list[Row]) -> BaseFile:
        schema = pa.schema([(column.name, column.type.arrow) for column in self.table.columns])
        table = pa.Table.from_pylist([self._named(row) for row in rows], schema=schema)
        file = self.storage.write_parquet(BASE_PATH, table, stem=f"v{vnode}")
        return BaseFile(file.path, vnode, file.rows, file.size)

    def _table_at(self, epoch: int) -> list[Row]:
        rows: dict[Key, Row] = {}
        for entries in self.upstream.partitions:
            for entry in entries:
                if entry.barrier is not None and int(entry.barrier) >= epoch:
                    break
                if entry.barrier is None:
                    change = self._codec.decode(entry.value or b"")
                    key = self.table.key_of(change.row)
                    if change.after is None:
                        del rows[key]
                    else:
                        rows[key] = change.after
        return list(rows.values())

    # verdict ---------------------------------------------------------------------------------------------

    def is_complete(self) -> bool:
        return all(
            len(states) == self.table.vnode_count and all(isinstance(s, Completed) for s in states.values())
            for states in (self.progress[job.name] for job in self.known)
        )

    def judged(self, output: str, *, complete: bool = False) -> Report:
        """What `verify` says of an output, at each of its barriers."""
        job = self.every[output]
        condition = None if job.filter is None else parse_filter(job.filter, self.table)
        view = View(
            self.table, job.columns, None if condition is None else condition_of(condition, self.table)
        )
        sources = [
            [ListSource(entries) for entries in topic.partitions]
            for topic in (self.upstream, self.outputs[output])
        ]
        return Checker(self.table, view, ("up", sources[0]), (output, sources[1])).run(
            require_complete=complete
        )


def vnode_of(table: TableSchema, key: Key) -> int:
    values = dict(zip(table.primary_key, key, strict=True))
    columns = table.select(table.distribution_key)
    return compute_vnode([values[column.name] for column in columns], columns, table.vnode_count)


def _end(entries: Sequence[Entry], barrier: Barrier) -> int:
    header = barrier_header(barrier)
    return 1 + next(i for i, entry in enumerate(entries) if entry.barrier == header)


def _behind(aligned: AlignedBarrier) -> tuple[int, ...]:
    return tuple(offset + 1 for offset in aligned.offsets)


def _between(entries: list[Entry], first: int, end: int) -> list[Entry]:
    low, high = (bisect_left(entries, offset, key=lambda entry: entry.offset) for offset in (first, end))
    return entries[low:high]


def decoded_schema(table: TableSchema) -> pa.Schema:
    row = pa.struct([(column.name, column.type.arrow) for column in table.columns])
    return pa.schema(
        {
            PARTITION: pa.int32(),
            OFFSET: pa.int64(),
            KEY: pa.binary(),
            VALUE: pa.binary(),
            SIZE: pa.int32(),
            OP: pa.int8(),
            VNODE: pa.int32(),
            BEFORE: row,
            AFTER: row,
            BEFORE_HASH: pa.int64(),
        }
    )
