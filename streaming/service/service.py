"""The service from start to end: check, take over, recover, stream, stop.

Start-up is a fixed order, for each step protects the next:

    1  topics      the upstream is there, outputs are what the jobs say; nothing was touched so far
    2  take over   write the journal's owner: from here on a former instance sees that it is not alone
    3  fence       its transactional ids, so that none of its transactions can still commit; likewise its injector's
    4  recover     the batch that may be half done
    5  look        for barriers behind the last batch, and run the batches that they allow
    6  stream      from there on

The journal is the only position. Spark's own checkpoint lives as long as a run: a former instance that has yet to
notice that it is fenced would go on writing to one that is shared, and have this one skip what it has not handled.

Spark comes up beside all this; the first that needs it waits (a batch to recover, or the first new one).
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.config import ServiceConfig
from schemas.errors import (
    BackfillError,
    EnvironmentProblem,
    Fenced,
    OutcomeUnknown,
)
from schemas.job import JobDefinition
from state.journal import Journal, is_superseded
from state.progress import is_complete
from state.storage import Storage
from streaming.core.alignment import Aligner
from streaming.lane.dead_letters import read_letters
from streaming.lane.output import lane_output
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.session import JVM_GONE, is_alive
from streaming.runtime.topics import admin, stable_offsets
from streaming.runtime.transactions import TransactionalProducer
from streaming.service.bad_records import BadRecords
from streaming.service.barriers import look_ahead
from streaming.service.batches import Batches, transactional_id
from streaming.service.folding import fold_on
from streaming.service.guard import (
    Bound,
    UpstreamGuard,
    binding,
    refuse_compacted,
    refuse_foreign,
    refuse_lost,
    refuse_partial,
)
from streaming.service.job_checks import refuse_changed_jobs, refuse_misfit_lanes, refuse_nothing_to_do
from streaming.service.lanes import Lanes
from streaming.service.maintenance import FOLD_LEAST_ROWS, FoldReport, Upkeep
from streaming.service.micro_batches import Finder, MicroBatches, spark_failure, stream_ended
from streaming.service.outputs import Outputs
from streaming.service.own_barriers import Announcements, Offsets, OwnBarriers
from streaming.service.patience import Patience
from streaming.service.report import BatchReport
from streaming.service.source import UpstreamSource
from streaming.service.watch import STALL_S, Watch
from streaming.upstream.injector import BarrierInjector

TRIGGER_INTERVAL = "100 milliseconds"
_DRAIN_TIMEOUT_S = 20.0
_POLL_S = 0.2

OnBatch = Callable[[BatchReport], None]

log = structlog.get_logger()


@dataclass
class Service:
    """One run of the service. `run` returns when it was stopped, or, if asked, when every job is complete.

    `on_batch` is called after each batch from the stream's thread, and must be quick. `on_serving` is called by the
    thread of `run` when start-up is over, again after trouble that passed: from then on an exception in that thread
    would leave a batch half done, and `stop` is the way to end. `on_trouble` is told what interrupted it, if that may
    pass. `spark` waits for the session; what comes before a start needs it is done meanwhile.
    """

    config: ServiceConfig
    kafka: KafkaSettings
    spark: Callable[[], SparkSession]
    on_batch: OnBatch = lambda report: None
    on_serving: Callable[[], None] = lambda: None
    on_trouble: Callable[[BackfillError], None] = lambda problem: None
    exit_when_complete: bool = False
    skip_records: frozenset[tuple[int, int]] = frozenset()
    fold_least_rows: int = FOLD_LEAST_ROWS
    stall_s: float = STALL_S
    aligner: Aligner | None = None
    """Of the run under way: what every partition of the upstream has delivered."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _journal: Journal | None = None

    def stop(self) -> None:
        """Ask the running service to end after the open batch. Safe from signal handlers and other threads."""
        self._stop.set()

    def run(self) -> None:
        """Run until stopped, through trouble that passes (`streaming.service.patience`).

        Raises: BackfillError of whatever ended it; the state then allows to go on where it was.
        """
        failpoints.arm(os.environ.get(failpoints.VARIABLE))
        patience = Patience(self.kafka, self._stop)
        while True:
            try:
                self._run_once(patience)
                return
            except (EnvironmentProblem, OutcomeUnknown) as problem:
                if not is_alive(self.spark()):
                    raise
                self.on_trouble(problem)
                if not patience.wait(problem):
                    return
            except JVM_GONE as error:
                if is_alive(self.spark()):
                    raise
                raise stream_ended("Spark's JVM is gone") from error

    def _run_once(self, patience: Patience) -> None:
        upstream = self._check_topics()
        storage = Storage(str(self.config.state))
        storage.prepare()
        if self._journal is not None and is_superseded(storage, self._journal.version):
            raise self._journal.fenced()  # whoever took over while we were in trouble is the one to go on
        self._journal = journal = Journal(storage, self.config.table)
        refuse_partial(storage, journal)
        batches = self._take_over(journal, storage, upstream)
        guard = UpstreamGuard(self.kafka, upstream, storage.root)
        upkeep = Upkeep(
            partial(fold_on, self.spark),
            batches.replica,
            self._log_fold,
            fold_least_rows=self.fold_least_rows,
            slots=lambda: self._lanes.slots,
        )
        # Before anything is read: it ends the transaction that a killed injector left open, behind which
        # committed readers, Spark among them, would see nothing until it times out.
        announcements = Announcements()
        injector = self._start_injector(journal, announcements)
        warm_up = threading.Thread(target=self._lanes.warm_up)
        warm_up.start()
        try:
            recovered = batches.recover()
            if recovered is not None:
                self._told(recovered, batches, patience)
            self._check_jobs([job.definition for job in batches.jobs])
            refuse_lost(self.kafka, upstream.topic, batches.next_offsets())
            self.aligner = aligner = Aligner(upstream.topic, upstream.partitions, batches.position)
            look = look_ahead(self.kafka, upstream.topic, batches.next_offsets(), self.skip_records)
            micro_batches = MicroBatches(
                self._finder(injector, announcements, aligner, look.next_offsets),
                aligner,
                batches,
                upkeep,
                lambda report: self._told(report, batches, patience),
            )
            watch = Watch(guard, aligner, batches, self.stall_s)
            micro_batches.take(look.found)
            micro_batches.drain()
            self._stream(self._source.stream(look.next_offsets), micro_batches, injector, watch)
        except EnvironmentProblem as problem:
            reason = guard.reason(problem, batches.next_offsets())
            if reason is problem:
                raise
            raise reason from problem
        finally:
            if injector is not None:
                injector.stop()
            upkeep.close()

    # 1 -----------------------------------------------------------------------------------------------------

    def _check_topics(self) -> Bound:
        upstream = Bound.of(self.kafka, self.config.upstream)
        refuse_compacted(self.kafka, upstream.topic)
        self._outputs.check(self.config.jobs)
        return upstream

    @cached_property
    def _outputs(self) -> Outputs:
        return Outputs(self.kafka, self.config.limits, parks=self.config.on_bad_record == "park")

    # 2, 3 --------------------------------------------------------------------------------------------------

    def _take_over(self, journal: Journal, storage: Storage, upstream: Bound) -> Batches:
        config = self.config
        beginning = [0] * upstream.partitions
        if journal.current is not None:
            refuse_foreign(journal.current.table, config.table, upstream, state=storage.root)
        if journal.current is None or journal.current.plan is None:
            refuse_lost(self.kafka, upstream.topic, beginning)
        open_lanes = journal.current.plan.lanes if journal.current and journal.current.plan else 0
        lanes = max(config.lanes, open_lanes)  # a batch that is half done is finished by as many as began it
        former = journal.take_over(owner(), lanes, binding(config.table, upstream))
        self._source = UpstreamSource(
            self.spark, self.kafka, config.upstream, config.table, self.skip_records
        )
        self._lanes = Lanes(self._source)
        batches = Batches(
            storage=storage,
            table=config.table,
            topic=config.upstream,
            open_output=partial(lane_output, self.kafka),
            lanes=self._lanes,
            lane_count=config.lanes,
            journal=journal,
            first_offsets=beginning,
            ensure_output=self._outputs.ensure,
            read_letters=partial(read_letters, self.kafka, config.upstream),
            bad_records=BadRecords(
                config.upstream,
                self.skip_records,
                self._outputs.ensure_letters if self._outputs.parks else None,
            ),
            limits=config.limits,
        )
        failpoints.reach(Failpoint.TAKEN_OVER)
        if former is not None:
            self._fence(transactional_id(batches.replica), max(former.lanes, lanes))
        failpoints.reach(Failpoint.FENCED)
        batches.configure(config.jobs)
        return batches

    def _fence(self, prefix: str, lanes: int) -> None:
        """Take every transactional id that a former instance may hold, and let it go again."""

        def fence(lane: int) -> None:
            TransactionalProducer(self.kafka, f"{prefix}-{lane}").close()

        with ThreadPoolExecutor(min(lanes, 16)) as pool:
            list(pool.map(fence, range(lanes)))

    # 4 -----------------------------------------------------------------------------------------------------

    def _check_jobs(self, known: Sequence[JobDefinition]) -> None:
        refuse_changed_jobs(known, self.config.jobs)
        refuse_misfit_lanes(known, self.config.lanes)
        if self.exit_when_complete:
            refuse_nothing_to_do(known, self.config.jobs)

    # 5, 6 --------------------------------------------------------------------------------------------------

    def _start_injector(self, journal: Journal, announcements: Announcements) -> BarrierInjector | None:
        if self.config.barriers != "inject":
            return None
        injector = BarrierInjector(
            self.kafka,
            self.config.upstream,
            self.config.barrier_interval_ms,
            left_out=self.skip_records,
            is_ours=lambda: not journal.is_superseded,
            on_barrier=announcements.put,
        )
        injector.start()
        return injector

    def _finder(
        self, injector: BarrierInjector | None, announcements: Announcements, aligner: Aligner, first: Offsets
    ) -> Finder:
        """Our own barriers are announced; those of others are found by looking."""
        if injector is None:
            return self._source
        stable = partial(
            stable_offsets, self.kafka, self.config.upstream, len(first), client=admin(self.kafka)
        )
        return OwnBarriers(announcements, self._source, aligner, first, stable)

    def _stream(
        self, records: DataFrame, micro_batches: MicroBatches, injector: BarrierInjector | None, watch: Watch
    ) -> None:
        scratch = self.spark().conf.get("spark.local.dir")
        with tempfile.TemporaryDirectory(
            dir=scratch, prefix="stream-", ignore_cleanup_errors=True
        ) as checkpoint:
            stream = records.writeStream.foreachBatch(micro_batches)
            stream = stream.option("checkpointLocation", Path(checkpoint).as_uri())
            query = stream.trigger(processingTime=TRIGGER_INTERVAL).start()
            self.on_serving()
            dropped, drain_s = False, _DRAIN_TIMEOUT_S
            try:
                self._serve(query, injector, watch)
            except Fenced:
                drain_s = 0.0  # the open batch is the successor's
                raise
            finally:
                dropped = self._end(query, micro_batches, drain_s)
        failure = micro_batches.failure
        if not self._stop.is_set():
            raise failure or spark_failure(query)
        # A group of processes is often ended together: Spark may have gone before the batch came to its end.
        if failure is not None and not dropped and not isinstance(failure, (EnvironmentProblem, *JVM_GONE)):
            raise failure
        log.info("stopped", open_batch="dropped" if dropped or failure else "none")

    def _serve(self, query: StreamingQuery, injector: BarrierInjector | None, watch: Watch) -> None:
        """Until somebody says stop, or the stream ends, or Spark with it."""
        with suppress(*JVM_GONE):
            while query.isActive and not self._stop.wait(_POLL_S):
                if injector is not None:
                    self._check(injector)
                watch.look()

    def _check(self, injector: BarrierInjector) -> None:
        try:
            injector.check()
        except Fenced as fenced:
            if self._journal is not None and self._journal.is_superseded:
                raise self._journal.fenced() from fenced
            raise

    def _end(self, query: StreamingQuery, micro_batches: MicroBatches, drain_s: float) -> bool:
        """Between two batches if possible. True if the open batch was dropped: the next start does it again."""
        in_time = micro_batches.close(drain_s)
        with suppress(*JVM_GONE):
            if not in_time:
                micro_batches.drop()
                self.spark().sparkContext.cancelAllJobs()
            query.stop()
        return not in_time

    def _log_fold(self, report: FoldReport) -> None:
        result = report.result
        log.info(
            "fold",
            epoch=report.epoch,
            vnodes=result.vnodes,
            rows=result.rows_read,
            took_ms=round(report.took_ms),
        )
        for code, illegal in result.illegal.items():
            partition, offset = illegal.first
            first = f"{self.config.upstream}-{partition}@{offset}"
            log.warning("illegal_changes", code=code, count=illegal.count, first=first)

    def _told(self, report: BatchReport, batches: Batches, patience: Patience) -> None:
        patience.worked()
        for mutation in report.outcome.reports:
            log.info("mutation", epoch=mutation.epoch, what=mutation.text, refused=mutation.refused)
        self.on_batch(report)
        if report.outcome.stop or (self.exit_when_complete and self._all_complete(batches)):
            self._stop.set()

    def _all_complete(self, batches: Batches) -> bool:
        count = self.config.table.vnode_count
        return bool(batches.jobs) and all(
            job.opened and is_complete(batches.progress.get(job.name, {}), count) for job in batches.jobs
        )


@cache
def owner() -> str:
    """This process, in words for whoever is fenced by it."""
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"process {os.getpid()} on {socket.gethostname()}, started {started}"
