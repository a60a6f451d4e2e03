"""Assembles a start, up to the point where the state is this instance's: check the topics, take over, fence.

Steps 1 to 3 of `streaming.service.service`. All checks come before the first write, which is the journal's new owner.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import SparkSession

from schemas.formats.protocol import UpstreamFormat
from schemas.settings.config import ServiceConfig
from state.initial.start import AnyStart, DatabaseStart, Start, TopicStart
from state.journal import Journal
from state.small_files import EmptyRanges, SchemaFiles
from state.values.aligned import padded
from state.values.bound_table import BoundTable
from state.values.plan import BatchPlan
from streaming.compaction.maintenance import BarrierKeeping
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import watermarks
from streaming.protocol.bad_records import BadRecords
from streaming.protocol.batches import Batches
from streaming.protocol.lanes.attempts import transactional_id
from streaming.protocol.lanes.runner import LaneRunner
from streaming.protocol.recovery.forward import Forward
from streaming.protocol.setup import BatchSetup
from streaming.registry.client import Registry, SchemaBook
from streaming.registry.outputs import OutputSchemas, Registering
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.service.checks.listed import Part, require
from streaming.service.checks.surroundings import Surroundings
from streaming.service.columns import LostColumns, NewColumns
from streaming.service.suspension import Decisions
from streaming.sink.dead_letters import read_letters
from streaming.sink.kafka import TableLetters
from streaming.sink.kafka_reader import begins as first_barriers
from streaming.source.barriers.injecting.target import newest_barrier
from streaming.source.barriers.kinds import barrier_source
from streaming.source.barriers.source import BarrierSetup, BarrierSource
from streaming.source.direct_read import DirectReader, LoggedRecords, QuietIntervals
from streaming.source.kafka import UpstreamSource
from streaming.source.retention import Gaps
from streaming.source.upstream_checks import binding

if TYPE_CHECKING:
    from streaming.service.initial.reading import DatabaseReading

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Owned:
    """The components of an instance that owns the state."""

    journal: Journal
    source: UpstreamSource
    lanes: LaneRunner
    batches: Batches
    start: AnyStart | None
    reads: DatabaseReading | None
    widths: tuple[int, ...]
    """The numbers of columns that the table has had."""

    def chunks_since_ms(self) -> int | None:
        """Begin of the oldest chunk of the table's reading that is in no plan yet, or None."""
        return None if self.reads is None else self.reads.since_ms()


@dataclass(frozen=True)
class Startup:
    """Opens a configuration's state and takes it over. `spark` waits for the session; only batches need it."""

    found: Surroundings
    spark: Callable[[], SparkSession]
    decisions: Decisions
    owner: str

    @property
    def config(self) -> ServiceConfig:
        """The configuration, with what follows from the upstream's partitions."""
        return self.found.config

    @property
    def kafka(self) -> KafkaSettings:
        return self.found.broker

    def take_over(self, journal: Journal) -> Owned:
        """Own the state that `journal` was opened in, and fence the instance that had it.

        Raises: StateError for a state of another topic, table or start; InputError(DATA_LOST); TopicError for outputs
        that are used while the state is new, or not as the jobs declare; ConfigError for an incompatible table to
        start from, and for columns that no record has.
        """
        # 1. What can be refused, before the first write.
        current, self.found.journal = journal.current, journal
        require(self.found, Part.STATE)
        config, version, storage = self.config, self.found.version, self.found.storage
        assert version is not None
        start = self._start(is_new=current is None)
        if current is None and isinstance(start, Start):
            version = self.found.version = replace(version, unread=frozenset(start.unread))
        beginning = padded(() if start is None else start.offsets, self.found.beginning)
        # 2. The journal's new owner. A half done batch is finished by as many lanes as began it, and with columns and
        # types that are new in this version: its lanes sent none of them.
        schemas = OutputSchemas(config.registry, config.table)
        before = version.table if current is None else BoundTable.from_binding(current.table).table
        former = journal.take_over(
            self.owner,
            binding(version, self.found.upstream, start),
            lambda plan: plan.with_states(lambda job: schemas.grown(schemas.wider(job, before))),
        )
        # 3. The components, which read state and topics as of the take-over.
        upstream_format: UpstreamFormat = config.upstream_format
        reads: DatabaseReading | None = None
        if isinstance(start, DatabaseStart):
            upstream_format, reads = self._from_database(start)
        source = UpstreamSource(
            self.spark,
            self.kafka,
            config.upstream,
            self.decisions.skip_records,
            holds_barriers=config.topics.barriers is None,
            begins=() if start is None else start.offsets,
            gaps=Gaps(EmptyRanges(storage), self.decisions.skip_records),
        )
        lanes = LaneRunner(
            source,
            QuietIntervals(self.kafka, config.upstream, source.begins),
            DirectReader(self.kafka, config.upstream, config.table, config.topics.barriers is None),
        )
        batches = self._batches(journal, lanes, beginning, upstream_format, reads)
        failpoints.reach(Failpoint.TAKEN_OVER)
        # 4. The fences: behind them no transaction of the former instance can commit.
        if former is not None and former.lanes:  # without a plan there is no transaction yet
            self._fence(transactional_id(batches.replica), former.lanes, former.plan)
        failpoints.reach(Failpoint.FENCED)
        # 5. Columns that are new in this version: the open batch may hold their first values.
        batches.adopt_schema()
        batches.configure(config.jobs)
        return Owned(journal, source, lanes, batches, start, reads, version.widths)

    def _start(self, *, is_new: bool) -> AnyStart | None:
        """The start of the table; a new one from its database begins here."""
        declared = self.config.initial_postgres
        if is_new and declared is not None:
            # psycopg takes a fifth of a second to import, which other starts should not pay.
            from streaming.service.initial.database import database_start

            return database_start(self.config, declared, self.kafka)
        start = self.found.start
        if is_new and start is not None:
            is_late = isinstance(start, TopicStart)
            reason = "older records are gone from the topic" if is_late else "initial.delta says it"
            log.info("starts_at", upstream=self.config.upstream, offsets=list(start.offsets), reason=reason)
        return start

    def _from_database(self, start: DatabaseStart) -> tuple[UpstreamFormat, DatabaseReading]:
        """The upstream's format and the table's reading, of a state that starts from a database."""
        from streaming.service.initial.database import debezium_of, reading_of

        config, declared = self.config, self.config.initial_postgres
        assert declared is not None
        reads = reading_of(start, config, declared, self.found.storage, self.kafka)
        return debezium_of(config).with_transactions(), reads

    def _batches(
        self,
        journal: Journal,
        lanes: LaneRunner,
        beginning: Sequence[int],
        upstream_format: UpstreamFormat,
        reads: DatabaseReading | None,
    ) -> Batches:
        config, kafka, storage = self.config, self.kafka, self.found.storage
        refuse = LostColumns(config).refuse
        schemas = SchemaBook(Registry(config.registry), SchemaFiles(storage), refuse=refuse)
        schemas.learn_newest(config.upstream, config.upstream_format.framed)
        newest = partial(newest_barrier, kafka, config.topics)
        reads_letters = partial(read_letters, kafka, config.upstream)
        setup = BatchSetup(
            storage=storage,
            table=config.table,
            sink_of=self.found.sinks,
            lanes=lanes,
            declared_lanes=config.lanes,
            journal=journal,
            first_offsets=beginning,
            read_letters=reads_letters,
            early_letters=TableLetters(kafka, config.upstream, config.limits, reads_letters).write,
            bad_records=BadRecords(
                config.upstream,
                self.decisions.skip_records,
                parks=self.found.sinks.setup.parks,
                is_wider=NewColumns(config, kafka).is_wider,
            ),
            forward=Forward(
                self.found.sinks,
                newest,
                config.table,
                rebuild=self.found.rebuild,
                oldest=partial(_oldest, kafka, config.topics.barriers),
            ),
            rows_folder=config.rows_folder,
            limits=config.limits,
            upstream_format=upstream_format.with_schemas(schemas.known),
            schemas=schemas,
            upstream_begins=partial(_begins, kafka, config.upstream, beginning),
            registers=Registering(OutputSchemas(config.registry, config.table).register),
            reads=reads,
            logged=LoggedRecords(kafka, config.upstream, config.table, config.topics.barriers is None),
            log_resets=self.decisions.log_resets,
            dropped=self.decisions.dropped,
            may_alter=self.found.may_alter,
            start_pause=self.decisions.start_pause,
        )
        return Batches(setup)

    def _fence(self, prefix: str, lanes: int, plan: BatchPlan | None) -> None:
        jobs = [job.state.definition for job in plan.jobs] if plan else []
        for sink in self.found.sinks.all_of([*jobs, *self.config.jobs]):
            sink.fence([f"{prefix}-{lane}" for lane in range(lanes)])

    def keeping(self, owned: Owned, barriers: BarrierSource) -> BarrierKeeping:
        return BarrierKeeping(
            self.config.barriers_keep_ms, self.found.sinks, barriers, lambda: not owned.journal.is_superseded
        )

    def barrier_source(self, owned: Owned) -> BarrierSource:
        """The source of the batches' barriers. Call its `start` before anything is read."""
        entry = owned.journal.current
        plan = None if entry is None else entry.plan
        setup = BarrierSetup(
            kafka=self.kafka,
            topics=self.config.topics,
            partitions=self.found.upstream.partitions,
            interval_ms=self.config.barrier_interval_ms,
            spark=self.spark,
            records=owned.source,
            left_out=self.decisions.skip_records,
            owner=owned.batches.replica.id,
            is_ours=lambda: not owned.journal.is_superseded,
            begins=() if owned.start is None else owned.start.offsets,
            gaps=owned.source.gaps,
            read_limit=self.config.source.read_limit,
            least=None if plan is None else plan.barriers[0].barrier.partitions,
        )
        return barrier_source(self.config.barriers, setup)


def _oldest(kafka: KafkaSettings, barriers: str | None) -> int:
    """The newest of the first barriers of a barrier topic's partitions; 0 without such a topic.

    Partitions that were added behind the oldest of them do not count.
    """
    found = () if barriers is None else first_barriers(kafka, barriers, beside=True)
    known = [barrier for barrier in found if barrier is not None]
    count = min(known, key=lambda barrier: barrier.curr).partitions if known else 0
    return max((barrier.curr for barrier in found[:count] if barrier is not None), default=0)


def _begins(kafka: KafkaSettings, topic: str, beginning: Sequence[int]) -> list[int]:
    """The first offset of each partition that is there and is to be read."""
    found = watermarks(kafka, topic)
    return [max(marks.earliest, first) for marks, first in zip(found, beginning, strict=False)]


@cache
def owner() -> str:
    """This process, for the error of an instance that it fences."""
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"process {os.getpid()} on {socket.gethostname()}, started {started}"
