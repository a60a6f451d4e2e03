"""The service without Spark, Kafka, Delta and clock: core and lanes on lists and Parquet files.

What is real: aligner, planner, slice cutter, snapshot reader, order of changes, visibility, encoders, progress.
What is replaced: the upstream is lists of records, the exchange a loop over vnodes, the output lists of records,
a table's commit a list of files. The output is judged by `verify`'s checker, which shares nothing with all that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.codec import ChangeCodec, KeyCodec, barrier_header, encode_barrier
from schemas.job import JobDefinition
from schemas.records import Barrier, Change, Mutation, Op, Row
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, EPOCH, OFFSET, OP, PARTITION, VNODE, base_schema, log_schema
from state.plan import AlignedBarrier, BatchPlan, JobPlan, JobState, ReplicaVersion
from state.progress import Completed, NotStarted, Progress, after_slice
from state.replica import BASE_PATH, LOG_BOUNDS, LOG_PATH, BaseFile, ReplicaFiles
from state.snapshot import SliceCutter, SnapshotReader
from state.storage import DataFile, Storage
from state.vnode import compute_vnode
from streaming.core.alignment import Aligner
from streaming.core.jobs import add_configured, jobs_after
from streaming.core.planning import choose_barriers, choose_slices
from streaming.lane.changes import AFTER, BEFORE, KEY, log_rows, order_changes
from streaming.lane.task import LaneJob, LaneResult, LaneTask, Stopwatch, send_all
from streaming.runtime.kafka import KafkaSettings
from streaming.verify.history import Entry

UNUSED_KAFKA = KafkaSettings("unused")


@dataclass
class MemoryTopic:
    """Partitions of records as they would lie in Kafka; `extend` and `entries` make each a source for `verify`."""

    partitions: list[list[Entry]]

    @classmethod
    def empty(cls, count: int) -> MemoryTopic:
        return cls([[] for _ in range(count)])

    def append(self, partition: int, key: bytes | None, value: bytes, barrier: bytes | None = None) -> int:
        entries = self.partitions[partition]
        # A marker follows each barrier, as after a transaction, so offsets have holes.
        offset = 0 if not entries else entries[-1].offset + (1 if entries[-1].barrier is None else 2)
        entries.append(Entry(offset, key, value, barrier))
        return offset


class Upstream:
    """A table's changelog, written change by change and barrier by barrier. It refuses an illegal change."""

    def __init__(self, table: TableSchema, partitions: int) -> None:
        self.table, self.topic = table, MemoryTopic.empty(partitions)
        self.rows: dict[tuple[Any, ...], Row] = {}
        self._changes, self._keys = ChangeCodec(table.columns), KeyCodec(table.key_columns)
        self._epoch = 0
        self.barriers: list[Barrier] = []

    def put(self, row: Row, *, partition: int | None = None) -> None:
        """INSERT the row, or UPDATE the one with its key."""
        key = self.table.key_of(row)
        before = self.rows.get(key)
        self.rows[key] = row
        op = Op.INSERT if before is None else Op.UPDATE
        self._append(key, Change(op, before, row), partition)

    def delete(self, *key: Any, partition: int | None = None) -> None:
        self._append(key, Change(Op.DELETE, self.rows.pop(key), None), partition)

    def _append(self, key: tuple[Any, ...], change: Change, partition: int | None) -> None:
        home = self.home(key) if partition is None else partition
        self.topic.append(home, self._keys.encode(key), self._changes.encode(change))

    def home(self, key: tuple[Any, ...]) -> int:
        return sum(self._keys.encode(key)) % len(self.topic.partitions)

    def barrier(self, mutation: Mutation | None = None) -> Barrier:
        """The next barrier, in every partition."""
        from schemas.records import BarrierKind

        prev, self._epoch = self._epoch, self._epoch + (1 << 16)
        kind = BarrierKind.CHECKPOINT if prev else BarrierKind.INITIAL
        count = len(self.topic.partitions)
        barrier = Barrier(self._epoch, prev, kind, count, 1_700_000_000_000, mutation)
        for number in range(count):
            self.topic.append(number, None, encode_barrier(barrier), barrier_header(barrier))
        self.barriers.append(barrier)
        return barrier


@dataclass
class Recorder:
    """Takes what lanes send."""

    topics: dict[str, MemoryTopic]

    def send(self, topic: str, partitions: npt.NDArray[np.int32] | int, keys: pa.Array, values: pa.Array) -> None:
        numbers = [partitions] * len(keys) if isinstance(partitions, int) else partitions.tolist()
        for number, key, value in zip(numbers, keys.to_pylist(), values.to_pylist(), strict=True):
            self.topics[topic].append(number, key, value)

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        self.topics[topic].append(partition, None, encode_barrier(barrier), barrier_header(barrier))


Budget = Callable[[JobState], int]


@dataclass
class PureService:
    """Call `read` to let upstream records arrive, then `run` for the batches that they allow."""

    upstream: Upstream
    folder: Path
    jobs: Sequence[JobDefinition]
    lanes: int = 1
    max_records: int = 1_000_000
    outputs: dict[str, MemoryTopic] = field(default_factory=dict)
    progress: dict[str, dict[int, Progress]] = field(default_factory=dict)
    known: tuple[JobState, ...] = ()
    plans: list[BatchPlan] = field(default_factory=list)
    stopped: bool = False
    shuffle: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        self.table = self.upstream.table
        self.storage = Storage(str(self.folder))
        self.count = len(self.upstream.topic.partitions)
        for path in (BASE_PATH, LOG_PATH):
            self.storage.filesystem.create_dir(self.storage.path(path), recursive=True)
        self.aligner = Aligner("up", self.count, None)
        self.position: AlignedBarrier | None = None
        self.read_to = [0] * self.count
        self.waiting: list[AlignedBarrier] = []
        self.log: list[DataFile] = []
        self.base: dict[int, tuple[BaseFile, ...]] = {}
        self.folded = 0
        self._codec = ChangeCodec(self.table.columns)

    # upstream ------------------------------------------------------------------------------------------------

    def read(self, partition: int | None = None, records: int | None = None) -> None:
        """Let the next records of a partition arrive (default: all there are, of all partitions)."""
        for number in range(self.count) if partition is None else [partition]:
            entries = self.upstream.topic.partitions[number]
            end = len(entries) if records is None else min(len(entries), self.read_to[number] + records)
            for entry in entries[self.read_to[number] : end]:
                if entry.barrier is not None:
                    barrier = next(b for b in self.upstream.barriers if str(b.curr).encode() == entry.barrier)
                    self.aligner.feed(number, entry.offset, barrier)
            self.read_to[number] = end
        self.waiting += self.aligner.aligned()

    # batches -------------------------------------------------------------------------------------------------

    def run(self, budget: Budget = lambda job: 1_000_000, *, batches: int = 1_000_000) -> int:
        """Run batches while barriers are aligned, `batches` at most; how many it ran."""
        done = 0
        while self.waiting and done < batches and not self.stopped:
            plan = self._plan(budget)
            self._carry_out(BatchPlan.from_json(plan.to_json(), self.table))
            self.waiting = self.waiting[len(plan.barriers) :]
            done += 1
        return done

    def step(self, budget: Budget = lambda job: 1_000_000, mutation: Mutation | None = None) -> None:
        """A barrier, and everything that it allows."""
        self.upstream.barrier(mutation)
        self.read()
        self.run(budget)

    def _files(self) -> ReplicaFiles:
        log = tuple(file for file in self.log if file.bounds[EPOCH][1] > self.folded)
        return ReplicaFiles(self.folded, dict(self.base), log)

    def _plan(self, budget: Budget) -> BatchPlan:
        first = [0] * self.count if self.position is None else [o + 1 for o in self.position.offsets]
        cutter = SliceCutter(SnapshotReader(self.storage, self.table, self._files()))
        jobs = []
        for job in self.known:
            if not job.opened:
                self.outputs[job.definition.output] = MemoryTopic.empty(job.definition.output_partitions)
            rows = 0 if job.paused or job.rate_limit == 0 else budget(job)
            known = self.progress.setdefault(job.name, {})
            chosen = choose_slices(job.definition, self.table.vnode_count, known, rows, cutter.cut)
            jobs.append(JobPlan(job, chosen.slices))
        barriers = tuple(choose_barriers(self.waiting, first, self.max_records))
        return BatchPlan(
            self.position, barriers, tuple(first), ReplicaVersion(0, 0, self.folded), self.lanes, tuple(jobs),
            self.aligner.take_duplicates(),
        )  # fmt: skip

    def _carry_out(self, plan: BatchPlan) -> None:
        task = LaneTask(
            self.storage, self.table, plan, self.progress, self._files(), UNUSED_KAFKA, "unused", 0, {}
        )
        rows_read: dict[str, dict[int, int]] = {}
        new_log: list[DataFile] = []
        for lane in range(self.lanes):
            batches = self._exchange(plan, task.vnodes(lane))
            changes, faults = order_changes(batches, batches[0].schema, plan, self.table)
            if faults:
                raise AssertionError(faults)
            result = LaneResult(lane)
            lane_jobs = [LaneJob(task, job, lane) for job in plan.jobs]
            send_all(task, lane_jobs, changes, Recorder(self.outputs), result, Stopwatch())
            for name, rows in result.rows_read.items():
                rows_read.setdefault(name, {}).update(rows)
            if len(changes):
                rows_to_log = log_rows(changes, plan, log_schema(self.table))
                new_log.append(
                    self.storage.write_parquet(LOG_PATH, rows_to_log, stem="log", bound_columns=LOG_BOUNDS)
                )
        self.log += new_log
        for job in plan.jobs:
            for item in job.slices:
                before = self.progress[job.state.name].get(item.vnode, NotStarted())
                rows = rows_read[job.state.name][item.vnode]
                self.progress[job.state.name][item.vnode] = after_slice(before, item.upto, rows)
        outcome = jobs_after(plan, self.table)
        self.stopped = outcome.stop
        names = {job.name for job in self.known}
        self.known = add_configured(outcome.jobs, self.jobs, plan.epoch)
        self.jobs = ()
        self.progress = {
            job.name: self.progress[job.name] if job.name in names and job.start != plan.epoch else {}
            for job in self.known
        }
        self.position = plan.end
        self.plans.append(plan)

    def _exchange(self, plan: BatchPlan, vnodes: range) -> list[pa.RecordBatch]:
        """The rows of a lane, in random order, barriers included, as Spark would bring them."""
        rows: list[dict[str, Any]] = []
        for number, entries in enumerate(self.upstream.topic.partitions):
            for entry in entries:
                if plan.first_offsets[number] <= entry.offset < plan.end_offsets[number]:
                    row = self._decoded(number, entry)
                    if row[VNODE] in vnodes or (row[VNODE] is None and vnodes.start == 0):
                        rows.append(row)
        self.shuffle.shuffle(rows)
        struct = pa.struct([(c.name, c.type.arrow) for c in self.table.columns])
        schema = pa.schema(
            [
                (PARTITION, pa.int32()), (OFFSET, pa.int64()), (KEY, pa.binary()), (OP, pa.int8()),
                (VNODE, pa.int32()), (BEFORE, struct), (AFTER, struct), (BEFORE_HASH, pa.int64()),
            ]
        )  # fmt: skip
        return [pa.RecordBatch.from_pylist(rows, schema=schema)]

    def _decoded(self, number: int, entry: Entry) -> dict[str, Any]:
        place = {PARTITION: number, OFFSET: entry.offset, KEY: entry.key, BEFORE_HASH: None}
        if entry.barrier is not None:
            return {**place, OP: None, VNODE: None, BEFORE: None, AFTER: None}
        change = self._codec.decode(entry.value or b"")
        names = self.table.column_names
        halves = {
            BEFORE: None if change.before is None else dict(zip(names, change.before, strict=True)),
            AFTER: None if change.after is None else dict(zip(names, change.after, strict=True)),
        }
        return {**place, OP: int(change.op), VNODE: self.vnode(change.row), **halves}

    def vnode(self, row: Row) -> int:
        values = dict(zip(self.table.column_names, row, strict=True))
        columns = self.table.select(self.table.distribution_key)
        return compute_vnode([values[c.name] for c in columns], columns, self.table.vnode_count)

    # upkeep --------------------------------------------------------------------------------------------------

    def fold(self, rows_per_file: int = 3) -> None:
        """What the fold does, slowly: the base becomes the table at the current position."""
        rows = self.table_at(self.position.epoch if self.position else 0)
        by_vnode: dict[int, list[Row]] = {}
        for row in rows:
            by_vnode.setdefault(self.vnode(row), []).append(row)
        names = self.table.column_names
        schema = pa.schema(list(base_schema(self.table))[1:])
        self.base = {}
        for vnode, members in by_vnode.items():
            members.sort(key=lambda row: _ordered(self.table.key_of(row)))
            files = []
            for start in range(0, len(members), rows_per_file):
                chunk = [dict(zip(names, row, strict=True)) for row in members[start : start + rows_per_file]]
                written = self.storage.write_parquet(
                    BASE_PATH, pa.Table.from_pylist(chunk, schema=schema), stem=f"v{vnode}"
                )
                files.append(BaseFile(written.path, vnode, written.rows, written.size))
            self.base[vnode] = tuple(files)
        self.folded = self.position.epoch if self.position else 0

    def table_at(self, epoch: int) -> list[Row]:
        """The upstream table as of a barrier."""
        rows: dict[tuple[Any, ...], Row] = {}
        for entries in self.upstream.topic.partitions:
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

    def is_complete(self, job: str) -> bool:
        states: Mapping[int, Progress] = self.progress[job]
        return len(states) == self.table.vnode_count and all(isinstance(s, Completed) for s in states.values())


def _ordered(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.encode() if isinstance(value, str) else value for value in key)


def rescaled(service: PureService, lanes: int) -> PureService:
    """The same service after a restart with another number of lanes."""
    service.lanes = lanes
    return service


__all__ = ["MemoryTopic", "PureService", "Recorder", "Upstream", "replace", "rescaled"]
