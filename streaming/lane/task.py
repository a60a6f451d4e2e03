"""The input and output of a lane: its task, the jobs in it as the lane sees them, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

import pyarrow as pa

from schemas.errors import BackfillError
from schemas.filter.ast import Filter
from schemas.filter.columnar import evaluate
from schemas.filter.parse import parse_filter
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.registry import DEFAULT
from schemas.job import JobDefinition
from schemas.json.barriers import encode_beside
from schemas.kinds.configs import ScanConfig, SinkConfig
from schemas.kinds.full_barriers import barrier_topic_bytes
from schemas.kinds.lanes import parts_of, share_of
from schemas.position import position_to_text
from schemas.records import Barrier, VnodeProgress
from schemas.settings.limits import HEADROOM_BYTES, Limits
from schemas.table import TableSchema
from state.replica import ReplicaFiles
from state.storage import DataFile, Storage
from state.values.plan import BatchPlan, JobPlan
from state.values.progress import Completed, NotStarted, Progress, of_parts
from state.values.seen import LaneSeen
from streaming.core.redelivery import Judgement
from streaming.kafka.clients import TRANSACTION_TIMEOUT_MS
from streaming.lane.before.store import RowStore, local_store
from streaming.lane.faults import Fault
from streaming.runtime.failpoints import Armed
from streaming.scan.kinds import PinnedScan
from streaming.sink.dead_letters import ReadLetters
from streaming.sink.output import Output, SinkPartition
from streaming.sink.protocol import LaneWriters, Mark, OpenWriter, open_writers


@dataclass(frozen=True)
class LaneTask:
    """Everything that the lanes of a batch need; it is sent to them, so it holds values only.

    `progress[job]` lists the parts that were started as of the plan's start; `scans` has what each job reads, pinned
    for the parts with slices; `sinks` opens the writers of the plan's jobs; `known_ends` where the output partitions
    ended after the last batch; `failpoint` what a test wants to happen in them. `replica` is pinned where changes need
    their rows before, which are kept in what `open_store` opens by a name below `rows_folder`. `waiting` are the files
    of the events that wait for chunks, of the version that the plan's reading names. `in_parts`: the changes come in
    order, more than a lane holds at once; `unhurried`: a lane has sent its part, and another one was too slow for it.
    Transactions may then take as long as `transaction_timeout_ms` says. `judgement`: which records are redelivered,
    where a lane has seen positions fall. `moves_from`: the number of the first interval in which the changes of a key
    may come from several partitions; records have their times then.
    """

    storage: Storage
    table: TableSchema
    plan: BatchPlan
    progress: Mapping[str, Mapping[int, Progress]]
    scans: Mapping[ScanConfig, PinnedScan]
    sinks: Mapping[SinkConfig, OpenWriter]
    read_letters: ReadLetters
    transactional_id: str
    journal_version: int
    limits: Limits
    known_ends: Mapping[SinkPartition, Mark]
    upstream_format: UpstreamFormat = DEFAULT
    replica: ReplicaFiles | None = None
    waiting: tuple[DataFile, ...] = ()
    rows_folder: str | None = None
    open_store: Callable[[str, TableSchema, str | None], RowStore] = local_store
    in_parts: bool = False
    unhurried: bool = False
    judgement: Judgement | None = None
    failpoint: Armed | None = None
    moves_from: int | None = None
    record_bytes: Mapping[str, int] = field(default_factory=dict)
    """The maximum bytes of key and value of a record, by output, where its limit is known."""

    @cached_property
    def read_table(self) -> TableSchema:
        """The table by the names that its columns have in the batch's records."""
        return self.table.as_read(self.plan.epoch)

    @property
    def transaction_timeout_ms(self) -> int:
        """The time, in milliseconds, after which the broker aborts a lane's transaction."""
        is_long = self.in_parts or self.unhurried
        return self.limits.long_transaction_ms if is_long else TRANSACTION_TIMEOUT_MS

    def open_writers(self, lane: int, sinks: Iterable[SinkConfig]) -> AbstractContextManager[LaneWriters]:
        """The lane's writers to these sinks. Raises: as `OpenWriter`."""
        name = f"{self.transactional_id}-{lane}"
        return open_writers(self.sinks, sinks, name, self.transaction_timeout_ms)

    def vnodes(self, lane: int) -> range:
        """The vnodes whose changes come to a lane: those with vnode * lanes // vnode_count = lane.

        Rows without identity have their upstream partition for one.
        """
        if not self.table.has_key:
            return self.upstream_partitions(lane)
        return self._share(self.table.vnode_count, lane)

    def upstream_partitions(self, lane: int) -> range:
        """The upstream partitions whose records come to a lane where jobs read them: a contiguous share, as vnodes."""
        return self._share(len(self.plan.first_offsets), lane)

    def parts(self, job: JobDefinition, lane: int) -> range:
        """The parts of a job that a lane reads: a contiguous share, as vnodes."""
        return self._share(job.part_count, lane)

    def _share(self, count: int, lane: int) -> range:
        return share_of(lane, self.plan.lanes, count)


@dataclass(frozen=True)
class Sent:
    """Counts of a lane's work, by job. `rows_read[job][part]` counts snapshot rows, filtered ones included.

    `history` are those in `snapshot` that came with the changes.
    """

    rows_read: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    snapshot: Mapping[str, int] = field(default_factory=dict)
    live: Mapping[str, int] = field(default_factory=dict)
    history: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LaneResult:
    """Result of a lane that has done its part: visible in the outputs, and its files are for the driver to commit.

    `seen` is how far the upstream's partitions have come, where records may be redelivered, and `redelivered` counts
    those that were; `ignored` counts records that say nothing of the table. `waiting` are events that wait for chunks,
    and `released_rows` counts rows of chunks that are in the log from now on.
    """

    lane: int
    log: tuple[DataFile, ...] = ()
    waiting: tuple[DataFile, ...] = ()
    released_rows: int = 0
    sent: Sent = Sent()
    ends: Mapping[SinkPartition, Mark] = field(default_factory=dict)
    changes: int = 0
    held_bytes: int = 0
    already_sent: bool = False
    seen: Mapping[int, LaneSeen] = field(default_factory=dict)
    redelivered: int = 0
    ignored: int = 0
    step_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Faulty:
    """Invalid upstream records: the plan goes on without them, or the service ends."""

    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Awaits:
    """Records wait for the schemas with these ids. Which records are invalid is decided once all can be read."""

    ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class LongRow:
    """A row of a job's snapshot that its output does not take, by its key as positions write it: RECORD_TOO_LARGE."""

    job: str
    key: str
    found: str
    expected: str


class Lack(Enum):
    """The lane can do its part with another task."""

    PARTS = "more changes than it may hold at once"
    ROWS_BEFORE = "changes that leave values out, whose rows before the task has not"
    JUDGEMENT = "positions in a log that fall or are repeated, and no judgement of all lanes' records"


class Superseded:
    """Another instance owns the state."""


@dataclass(frozen=True)
class Failed:
    """An error that was foreseen. The lane may have sent its part, where that is unknown (OutcomeUnknown)."""

    error: BackfillError


@dataclass(frozen=True)
class Crashed:
    """An error that was not; its stack, for a log file."""

    trace: str


@dataclass(frozen=True)
class Undone:
    """The reason why a lane has not done its part. Except for `Failed` and `Crashed`, nothing of it became visible."""

    lane: int
    why: Faulty | LongRow | Awaits | Lack | Superseded | Failed | Crashed


LaneOutcome = LaneResult | Undone
"""The result that a lane reports to the driver."""


class UndoneError(Exception):
    """Ends a lane's part, and its transaction before anything of it is visible: the reason is that of `Undone`."""

    def __init__(self, why: Faulty | LongRow | Awaits | Lack | Superseded) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True)
class LaneJob:
    """A job as one lane sees it: `plan` has the lane's slices only, `before` its parts' progress at the start."""

    plan: JobPlan
    table: TableSchema
    filter: Filter | None
    before: Mapping[int, Progress]
    partitions: tuple[int, ...]
    scan: PinnedScan
    record_bytes: int | None = None
    """Key and value that a record of its output may have; None where no limit is known."""
    limits: Limits = Limits()  # noqa: RUF009 (a value)

    @classmethod
    def of(cls, task: LaneTask, plan: JobPlan, lane: int) -> LaneJob:
        """A job of the task's plan. Raises: ConfigError for a filter that no longer fits the table."""
        definition = plan.state.definition
        parts, partition_of = task.parts(definition, lane), definition.partition_of
        known = task.progress.get(definition.name, {})
        return cls(
            plan=plan.of_parts(parts),
            table=task.table,
            filter=None if definition.filter is None else parse_filter(definition.filter, task.table),
            before=of_parts(known, parts),
            partitions=tuple(range(partition_of(parts[0]), partition_of(parts[-1]) + 1)) if parts else (),
            scan=task.scans[definition.scan],
            record_bytes=task.record_bytes.get(definition.output),
            limits=task.limits,
        )

    @property
    def definition(self) -> JobDefinition:
        """The definition with which the job was created."""
        return self.plan.state.definition

    @property
    def reads_upstream(self) -> bool:
        """True if its slices come with the changes."""
        return self.definition.scan.reads_upstream

    @cached_property
    def output(self) -> Output:
        """The output that the job writes."""
        return Output(self.definition, self.table)

    @cached_property
    def new_columns(self) -> tuple[tuple[str, str], ...]:
        """The columns that it has got since it was made, as its barriers tell them."""
        return self.definition.new_columns_of(self.table)

    @cached_property
    def positions(self) -> Mapping[int, Progress]:
        """The positions of its parts after the batch, which decide what is visible. Ignore their row counts."""
        return self.plan.progress_after(self.before)

    def passes(self, arrays: Mapping[str, pa.Array]) -> pa.Array | None:
        """True where the filter is TRUE (False where it is NULL); None without a filter."""
        return None if self.filter is None else evaluate(self.filter, arrays).fill_null(False)

    def reported(self, rows_read: Mapping[int, int]) -> Mapping[int, Progress]:
        """The progress of the parts with slices, once these were read."""
        after = self.plan.progress_after(self.before, rows_read)
        return {item.part: after[item.part] for item in self.plan.slices}

    def barrier(self, upstream: Barrier, partition: int, reported: Mapping[int, Progress]) -> Barrier:
        """The upstream's barrier as this output's partition holds it, with the progress of its parts.

        It tells the job's new columns in the batches in which they are new.
        """
        progress = tuple(
            _published(part, reported[part])
            for part in sorted(reported)
            if self.definition.partition_of(part) == partition
        )
        return replace(
            upstream,
            partitions=self.definition.output_partitions,
            mutation=None,
            progress=progress,
            full=False,
            columns=self.new_columns if self.plan.state.tells else (),
        )

    def full_barrier(
        self, upstream: Barrier, partition: int, progress: Mapping[int, Progress]
    ) -> Barrier | None:
        """The barrier with the progress of all parts and all new columns; None if it is longer than its topic takes.

        Keys of thousands of bytes can make it so. `progress` is that of the lane's parts once slices were read.
        """
        definition = self.definition
        parts = parts_of(definition, partition)
        reported = {part: progress.get(part, NotStarted()) for part in parts}
        full = replace(self.barrier(upstream, partition, reported), full=True, columns=self.new_columns)
        most = barrier_topic_bytes(definition, definition.scan.position_columns(self.table), self.limits)
        return full if len(encode_beside(full, 2**63 - 1)) + HEADROOM_BYTES <= most else None


def places_before(
    task: LaneTask, jobs: Iterable[LaneJob]
) -> dict[SinkConfig, dict[SinkPartition, int | None]]:
    """The partitions that a lane writes to, by sink, each with the epoch that it ends with before (None: empty)."""
    start = None if task.plan.start is None else task.plan.start.epoch
    places: dict[SinkConfig, dict[SinkPartition, int | None]] = {}
    for job in jobs:
        first = 0 if job.plan.opens else job.plan.gains_from
        before = {
            job.output.partition(number): None if first is not None and number >= first else start
            for number in job.partitions
        }
        places.setdefault(job.definition.sink, {}).update(before)
    return places


def _published(part: int, progress: Progress) -> VnodeProgress:
    position = None if progress.position is None else position_to_text(progress.position)
    return VnodeProgress(part, position, isinstance(progress, Completed), progress.row_count)
