"""One run of the service: the order of `streaming.service.service`, on a simulated broker, state folder and Spark.

Simulated Spark runs each lane as a strand of its own. It may run a task twice, one after the other or both at once;
and it may give up on a job while tasks of it go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import pyarrow as pa

from schemas.errors import (
    Code,
    CommitConflict,
    ConfigError,
    EnvironmentProblem,
    Fenced,
    InputError,
    OutcomeUnknown,
)
from schemas.job import JobDefinition
from schemas.kinds.configs import ToKafka
from schemas.records import Add, Resume
from schemas.settings.limits import Limits
from schemas.table import TableSchema
from state.initial.table import SourceTable
from state.journal import PATH as JOURNAL_PATH
from state.journal import Journal
from state.replica import Replica
from state.values.plan import BatchPlan, JobState
from state.values.progress import is_complete
from streaming.compaction.maintenance import BarrierKeeping
from streaming.core.jobs import StartPause
from streaming.lane.task import LaneTask
from streaming.protocol.bad_records import BadRecords
from streaming.protocol.batches import Batches
from streaming.protocol.lanes.attempts import transactional_id
from streaming.protocol.micro_batches import MicroBatches
from streaming.protocol.recovery.forward import Forward, warn_older
from streaming.protocol.report import BatchReport
from streaming.protocol.setup import BatchSetup
from streaming.service.checks.state import refuse_rescale
from streaming.service.initial.copying import Copying
from streaming.sink.kinds import SINKS, SinkSetup
from streaming.sink.protocol import Sink
from streaming.source.barriers.injecting.control_requests import SuspendedAction
from streaming.source.barriers.source import BarrierSource
from tests.kit.barriers import NO_RECORDS
from tests.kit.no_registry import NoRegistry, NoSchemas
from tests.simulation.arrivals import Arrivals
from tests.simulation.beside import oldest
from tests.simulation.broker import Broker, Topics
from tests.simulation.compaction import Compactor
from tests.simulation.initial import SimulatedWorkers
from tests.simulation.jobs import fitting_lanes
from tests.simulation.lanes import Lanes
from tests.simulation.logged import SimulatedLogged
from tests.simulation.rows import Disk, SimulatedStore
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.sink import SimulatedLetters, SimulatedSink
from tests.simulation.storage import Files, MemoryStorage
from tests.simulation.table_reader import TableReader

ROWS_PER_PART = 2
"""Of a table that a history starts from."""


class AskedToEndError(Exception):
    """The end of a process by a request."""


class Instance:
    """The service as one process. `start` lets it live. The types are for those who break one (`canaries`)."""

    broker_type: type[Broker] = Broker
    storage_type: type[MemoryStorage] = MemoryStorage
    journal_type: type[Journal] = Journal
    batches_type: type[Batches] = Batches
    forward_type: type[Forward] = Forward
    store_type: type[SimulatedStore] = SimulatedStore
    reader_type: type[TableReader] = TableReader
    keeping_type: type[BarrierKeeping] = BarrierKeeping
    dropped: frozenset[str] = frozenset()

    def __init__(
        self,
        name: str,
        *,
        scheduler: Scheduler,
        topics: Topics,
        files: Files,
        disk: Disk,
        arrivals: Arrivals,
        table: TableSchema,
        jobs: Sequence[JobDefinition],
        lanes: int,
        compactions: bool,
        limits: Limits,
        takes: Callable[[int], int | None] = lambda barriers: None,
    ) -> None:
        self.process = Process(name)
        self.scheduler = scheduler
        self.broker = self.broker_type(topics, scheduler)
        self.broker.takes = lambda: takes(arrivals.counts[0])
        self.storage = self.storage_type(files, scheduler)
        self.arrivals, self.table, self.jobs, self.lane_count = arrivals, table, jobs, lanes
        self.disk = disk
        self.compactions, self.limits = compactions, limits
        self.found_older = False  # the state, while that was its own, was older than its outputs
        self.rebuilds = False
        self.paused = False  # as by `run --paused`
        self.read_though_paused = False
        self._start_pause: StartPause | None = None
        self._stays = frozenset[str]()
        self._earliest: tuple[int, ...] = arrivals.changelog.begins
        self._partitions = arrivals.partitions
        self._reader: TableReader | None = None
        self._keeping: BarrierKeeping | None = None
        self._worked = False
        self.requests: list[SuspendedAction] = []
        self.ended_as_owner = False  # as superseded, although no other instance had taken the state over

    def start(self) -> None:
        self.scheduler.spawn(self.process, "driver", self._live)

    def _live(self) -> None:
        try:
            while not self._run_once():
                pass
        except (Fenced, CommitConflict):
            self.ended_as_owner = self._is_owner()
            raise

    def _run_once(self) -> bool:
        """False after an error that passes: a service that has worked goes on in the same process."""
        self.storage.set_torn_aside()
        journal = self.journal_type(self.storage, self.table)
        try:
            self.run(journal)
        except InputError as fault:
            if fault.code is Code.PARTITIONS_CHANGED and self.arrivals.partitions > self._partitions:
                self.scheduler.step("go on with the partitions that were added")
                return False
            return self.ends_by(fault, journal)
        except ConfigError as error:
            if error.code is not Code.RESCALE_REFUSED:
                raise
            return False
        except (EnvironmentProblem, OutcomeUnknown) as problem:
            if not self._worked:
                raise
            self.scheduler.step("go on")
            if journal.is_superseded:
                raise journal.fenced() from problem
            return False
        return True

    def ends_by(self, fault: InputError, journal: Journal) -> bool:
        """Raises the fault, unless the instance is one that suspends its table."""
        raise fault

    def run(self, journal: Journal) -> None:
        batches = self.take_over(journal)
        self.copy(journal, batches.replica)
        self.lose_what_is_done(journal, batches)
        compactor = Compactor(self, batches.replica)
        if batches.recover() is not None:
            self._worked = True
        self.refuse_rescale(batches)
        source = self.source()
        self._keeping = self.keeping_type(0, self.sink_of, source, lambda: not journal.is_superseded)
        known = source.begin(batches.position, batches.next_offsets())
        micro_batches = MicroBatches(source, batches, compactor, self.batch_done)  # type: ignore[arg-type]  # narrower
        micro_batches.run_batches(known)
        while True:
            micro_batches.run_batches(source.aligned(NO_RECORDS))

    def lose_what_is_done(self, journal: Journal, batches: Batches) -> None:
        """Retention takes all records of batches that are done, at every start; a log that lost some needs them."""
        plan, is_mixed = (
            None if journal.current is None else journal.current.plan,
            self.storage.memory.is_mixed,
        )
        if plan is not None and not (is_mixed and batches.replica.log_epoch < batches.finished_epoch):
            is_part = plan.until is not None and plan.reading is None
            is_done = batches.finished_epoch >= plan.epoch
            is_done = batches.replica.holds(plan) if is_part else is_done
            self._earliest = plan.end_offsets if is_done else plan.first_offsets

    def refuse_lost(self, plan: BatchPlan) -> None:
        """Refuse a plan whose records are lost, as a reader of the topic does. Raises: InputError(DATA_LOST)."""
        for number, (first, earliest) in enumerate(zip(plan.first_offsets, self._earliest, strict=False)):
            if first < min(earliest, plan.end_offsets[number]):
                found = f"records from offset {earliest} on"
                raise InputError(Code.DATA_LOST, where=f"up-{number}@{first}", found=found, expected="all")

    def copy(self, journal: Journal, replica: Replica) -> None:
        """The table that the history starts from, if it does."""
        initial = self.arrivals.changelog.initial
        if initial is not None and self.arrivals.changelog.timeline is None:
            Copying(
                workers=SimulatedWorkers(self.scheduler),
                journal=journal,
                replica=replica,
                source=lambda: cast("SourceTable", initial),
                most_rows=ROWS_PER_PART,
                on_copied=lambda progress: None,
                stopping=lambda: False,
            ).copy()

    def source(self) -> BarrierSource:
        """Of the barriers that arrive."""
        wait = partial(self.scheduler.step, "wait for the upstream")
        return self.arrivals.changelog.source(self.arrivals, wait, self._partitions)

    def refuse_rescale(self, batches: Batches) -> None:
        definitions = [job.definition for job in batches.jobs]
        known = [
            (job, is_complete(batches.progress.get(job.name, {}), job.part_count)) for job in definitions
        ]
        configured = [job.with_partitions(self._partitions) for job in self.jobs]
        new = () if batches.state.lanes_set else configured
        try:
            refuse_rescale(known, new, batches.state.lanes, self.table, self._partitions)
        except ConfigError:
            self.lane_count = fitting_lanes(known, new, self.table, self._partitions)
            raise

    def take_over(self, journal: Journal) -> Batches:
        self._partitions = self.arrivals.partitions
        former = journal.take_over(
            self.process.name, self.bound(), lambda plan: plan.with_states(self.with_new_columns)
        )
        setup = BatchSetup(
            storage=self.storage,
            table=self.table,
            sink_of=self.sink_of,
            lanes=self.lanes(),
            declared_lanes=self.lane_count,
            journal=journal,
            first_offsets=self.arrivals.changelog.begins[: self._partitions],
            read_letters=self.arrivals.changelog.letters,
            early_letters=SimulatedLetters(self.broker, self.arrivals.changelog.letters).write,
            bad_records=self.bad_records(),
            forward=self._forward(),
            limits=self.limits,
            upstream_format=self.arrivals.changelog.format,
            reads=self._reads_table(),
            schemas=NoSchemas(),
            registers=NoRegistry(),
            logged=SimulatedLogged(self.arrivals.changelog),
            dropped=self.dropped,
            start_pause=self.start_pause,
            now_ms=lambda: self.scheduler.now_ms,
        )
        batches = self.batches_type(setup)
        if former is not None:
            self.fence(transactional_id(batches.replica), former.lanes)
        batches.adopt_schema()
        batches.configure(self.start_pause.configured(self.jobs))
        return batches

    def with_new_columns(self, job: JobState) -> JobState:
        """A job of an earlier version of the table."""
        return job.grown(self.table)

    def bound(self) -> str:
        """The table, for the journal."""
        return json.dumps(self.table.to_dict())

    @property
    def start_pause(self) -> StartPause:
        """The one of the process, which outlives the trouble that passes."""
        if self._start_pause is None:
            self._start_pause = StartPause(self.paused)
        return self._start_pause

    def bad_records(self) -> BadRecords:
        return BadRecords("up", self.arrivals.changelog.faulty, parks=True)

    def _reads_table(self) -> TableReader | None:
        """Of the database that the history starts from, if it does; the one of a run before reads no further."""
        if self.arrivals.changelog.timeline is None:
            return None
        if self._reader is not None:
            self._reader.closed = True
        self._reader = self.reader_type(self.process, self.scheduler, self.storage, self.table, self.arrivals)
        return self._reader

    def _forward(self) -> Forward:
        return self.forward_type(
            self.sink_of,
            self.arrivals.newest,
            self.table,
            rebuild=self.rebuilds,
            oldest=partial(oldest, self.arrivals),
            on_older=self._find_older,
        )

    def _find_older(self, position: int) -> None:
        warn_older(position)
        # One that was superseded without knowing it sees what its successor has sent.
        self.found_older |= self._is_owner()

    def _is_owner(self) -> bool:
        return bool(self.storage.newest_row(JOURNAL_PATH)["owner"] == self.process.name)

    def sink_of(self, job: JobDefinition) -> Sink:
        """The sink by the table of sinks, with a simulated Kafka."""
        if isinstance(job.sink, ToKafka):
            return SimulatedSink(self.broker)
        return SINKS[type(job.sink)](job.sink, cast("SinkSetup", None))

    def fence(self, prefix: str, lanes: int) -> None:
        SimulatedSink(self.broker).fence([f"{prefix}-{lane}" for lane in range(lanes)])

    def open_store(self, name: str, table: TableSchema, rows_folder: str | None) -> SimulatedStore:
        return self.store_type(self.disk, name, table, self.scheduler)

    def lane_rows(self, task: LaneTask, lane: int) -> pa.RecordBatch:
        return self.arrivals.changelog.lane_rows(task, lane)

    def lanes(self) -> Lanes:
        return Lanes(self)

    def batch_done(self, report: BatchReport) -> None:
        self._worked = True
        self._look_for_reads(report.plan)
        if self.arrivals.deletes and self._keeping is not None:
            self._keeping.delete(report.plan)

    def _look_for_reads(self, plan: BatchPlan) -> None:
        """Of jobs that were there when all were paused, until one is resumed."""
        if not self.paused or plan.silent:
            return
        if self.start_pause.epoch in (None, plan.epoch):
            self._stays = frozenset(job.state.name for job in plan.jobs)
        self.read_though_paused |= any(job.slices for job in plan.jobs if job.state.name in self._stays)
        mutations = [aligned.barrier.mutation for aligned in plan.barriers]
        if any(isinstance(mutation, (Resume, Add)) for mutation in mutations):
            self._stays = frozenset()  # an added one may have the name of one that was dropped
