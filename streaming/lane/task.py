"""What a lane is given and gives back: its task, the jobs in it as the lane sees them, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from schemas.errors import BackfillError
from schemas.filter.ast import Filter
from schemas.filter.columnar import evaluate
from schemas.filter.parse import parse_filter
from schemas.job import JobDefinition, JobSchemas
from schemas.limits import Limits
from schemas.position import position_to_text
from schemas.records import Barrier, VnodeProgress
from schemas.table import Column, TableSchema
from state.plan import BatchPlan, JobPlan, Slice
from state.progress import Completed, NotStarted, Progress, after_slice
from state.replica import ReplicaFiles
from state.storage import DataFile, Storage
from streaming.lane.dead_letters import ReadLetters
from streaming.lane.faults import Fault
from streaming.lane.output import OpenOutput
from streaming.runtime.failpoints import Armed
from streaming.runtime.topics import Partition


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
