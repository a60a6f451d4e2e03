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
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.errors import (
    BackfillError,
    EnvironmentProblem,
    Fenced,
    OutcomeUnknown,
    TopicError,
)
from schemas.job import JobDefinition
from schemas.settings.config import ServiceConfig
from state.journal import Journal, is_superseded
from state.storage import Storage
from state.values.plan import BatchPlan
from state.values.progress import is_complete
from streaming.compaction.compactor import COMPACTION_LEAST_ROWS, CompactionReport, Compactor
from streaming.compaction.spark_tasks import compact_on, merge_on
from streaming.core.health import late_after_s
from streaming.kafka.clients import KafkaSettings
from streaming.protocol.bad_records import BadRecords
from streaming.protocol.batches import Batches, OnPart
from streaming.protocol.lane_attempts import transactional_id
from streaming.protocol.lanes import Lanes
from streaming.protocol.micro_batches import MicroBatches, spark_failure, stream_ended
from streaming.protocol.recovery.forward import Forward
from streaming.protocol.report import BatchReport
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.session import JVM_GONE, is_alive
from streaming.service.health import Watch
from streaming.service.job_checks import refuse_changed_jobs, refuse_misfit_lanes, refuse_nothing_to_do
from streaming.service.presence import Presence, instance_name, noting_fenced
from streaming.service.restart_policy import LIMIT_S, RestartPolicy, broker_answers
from streaming.service.spark_watch import SparkWatch
from streaming.service.vitals import Vitals
from streaming.sink.dead_letters import read_letters
from streaming.sink.kinds import Sinks, SinkSetup
from streaming.source.barriers.kinds import barrier_source
from streaming.source.barriers.last import newest_barrier
from streaming.source.barriers.source import BarrierSetup, BarrierSource
from streaming.source.kafka import UpstreamSource
from streaming.source.upstream_checks import (
    UpstreamGuard,
    UpstreamIdentity,
    binding,
    refuse_compacted,
    refuse_foreign,
    refuse_lost,
    refuse_partial,
)

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
    would leave a batch half done, and `stop` is the way to end. `on_part` is called after each part of a long interval.
    `on_trouble` is told what interrupted it, if that may pass. `take_over`: from a successor that lives, too
    (`streaming.service.presence`). `spark` waits for the session; what comes before a start needs it is done meanwhile.
    """

    config: ServiceConfig
    kafka: KafkaSettings
    spark: Callable[[], SparkSession]
    on_batch: OnBatch = lambda report: None
    on_serving: Callable[[], None] = lambda: None
    on_trouble: Callable[[BackfillError], None] = lambda problem: None
    on_part: OnPart = lambda plan: None
    exit_when_complete: bool = False
    rebuild: bool = False
    skip_records: frozenset[tuple[int, int]] = frozenset()
    take_over: bool = False
    compaction_least_rows: int = COMPACTION_LEAST_ROWS
    late_s: float | None = None
    """After how long without a batch it is late, in place of what the barriers' interval makes of it."""
    trouble_limit_s: float = LIMIT_S
    """For how long trouble is waited for that may pass."""
    barriers: BarrierSource | None = None
    """Of the run under way, or the last one."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _journal: Journal | None = None

    @cached_property
    def vitals(self) -> Vitals:
        """Its health; may be asked for before it runs."""
        config = self.config
        late_s = late_after_s(config.barrier_interval_ms) if self.late_s is None else self.late_s
        injects = config.barriers.injects
        return Vitals(config.upstream, config.barrier_interval_ms, late_s=late_s, injects=injects)

    def stop(self) -> None:
        """Ask the running service to end after the open batch. Safe from signal handlers and other threads."""
        self.vitals.stops()
        self._stop.set()

    def run(self) -> None:
        """Run until stopped, through trouble that passes (`streaming.service.restart_policy`).

        Raises: BackfillError of whatever ended it; the state then allows to go on where it was.
        """
        failpoints.arm(os.environ.get(failpoints.VARIABLE))
        restart_policy = RestartPolicy(
            partial(broker_answers, self.kafka), self._stop, limit_s=self.trouble_limit_s
        )
        with SparkWatch(self.spark, self.vitals, self.config.batch_timeout_ms / 1_000):
            while True:
                try:
                    self._run_once(restart_policy)
                    return
                except (EnvironmentProblem, OutcomeUnknown, TopicError) as problem:
                    if not (restart_policy.may_pass(problem) and is_alive(self.spark())):
                        raise
                    self.vitals.interrupted(problem)
                    self.on_trouble(problem)
                    if not restart_policy.wait(problem):
                        return
                except JVM_GONE as error:
                    if is_alive(self.spark()):
                        raise
                    raise stream_ended("Spark's JVM is gone") from error

    def _run_once(self, restart_policy: RestartPolicy) -> None:
        upstream = self._check_topics()
        storage = Storage(str(self.config.state), synced=self.config.sync_state)
        storage.prepare()
        if self._journal is not None and is_superseded(storage, self._journal.version):
            raise self._journal.fenced()  # whoever took over while we were in trouble is the one to go on
        for torn in storage.set_torn_aside():
            log.warning(
                "set_torn_aside", path=torn, reason="not synced before a power failure; nothing relied on it"
            )
        presence = Presence(storage)
        journal = Journal(storage, self.config.table)
        refuse_partial(storage, journal)
        if journal.current is not None and not self.take_over:
            if not presence.await_turn(instance_name(), journal.current.owner, self._stop.is_set):
                return
            journal = Journal(storage, self.config.table)
        self._journal = journal
        with presence.shown(owner()), noting_fenced(presence, journal):
            self._own(journal, storage, upstream, restart_policy)

    def _own(
        self, journal: Journal, storage: Storage, upstream: UpstreamIdentity, restart_policy: RestartPolicy
    ) -> None:
        batches = self._take_over(journal, storage, upstream, restart_policy)
        restart_policy.begins()
        guard = UpstreamGuard(self.kafka, upstream, storage.root)
        with Watch(guard, self.vitals) as watch:
            try:
                self._recover_and_stream(restart_policy, upstream, journal, batches, watch)
            except EnvironmentProblem as problem:
                reason = guard.reason(problem, batches.next_offsets())
                if reason is problem:
                    raise
                raise reason from problem
            finally:
                self.vitals.detach()

    def _recover_and_stream(
        self,
        restart_policy: RestartPolicy,
        upstream: UpstreamIdentity,
        journal: Journal,
        batches: Batches,
        watch: Watch,
    ) -> None:
        compactor = Compactor(
            partial(compact_on, self.spark),
            partial(merge_on, self.spark),
            batches.replica,
            self._log_compaction,
            compaction_least_rows=self.compaction_least_rows,
            slots=lambda: self._lanes.slots,
        )
        barriers = self._barrier_source(journal, upstream, batches.replica.id)
        barriers.start()  # before anything is read
        warm_up = threading.Thread(target=self._lanes.warm_up)
        warm_up.start()
        try:
            recovered = batches.recover()
            if recovered is not None:
                self._told(recovered, batches, restart_policy)
            self._check_jobs([job.definition for job in batches.jobs])
            watch.next_offsets = batches.next_offsets
            known = barriers.begin(batches.position, batches.next_offsets())
            self.barriers = barriers
            micro_batches = MicroBatches(
                barriers, batches, compactor, lambda report: self._told(report, batches, restart_policy)
            )
            self.vitals.attach(barriers, micro_batches)
            micro_batches.run(known)
            self._stream(barriers, micro_batches, watch)
        finally:
            barriers.close()
            compactor.close()

    # 1 -----------------------------------------------------------------------------------------------------

    def _check_topics(self) -> UpstreamIdentity:
        upstream = UpstreamIdentity.of(self.kafka, self.config.upstream)
        refuse_compacted(self.kafka, upstream.topic)
        for job in self.config.jobs:
            self._sinks(job).check(job)
        return upstream

    @cached_property
    def _sinks(self) -> Sinks:
        return Sinks(
            SinkSetup(
                kafka=self.kafka,
                upstream=self.config.upstream,
                limits=self.config.limits,
                parks=self.config.on_bad_record == "park",
            )
        )

    # 2, 3 --------------------------------------------------------------------------------------------------

    def _take_over(
        self, journal: Journal, storage: Storage, upstream: UpstreamIdentity, restart_policy: RestartPolicy
    ) -> Batches:
        config = self.config
        beginning = [0] * upstream.partitions
        if journal.current is not None:
            refuse_foreign(journal.current.table, config.table, upstream, state=storage.root)
        if journal.current is None or journal.current.plan is None:
            refuse_lost(self.kafka, upstream.topic, beginning)
            # Nothing was sent by this state, so what an output holds is not of it, unless it is made anew.
            for job in () if self.rebuild else config.jobs:
                self._sinks(job).refuse_used(job)
        open_lanes = journal.current.plan.lanes if journal.current and journal.current.plan else 0
        lanes = max(config.lanes, open_lanes)  # a batch that is half done is finished by as many as began it
        former = journal.take_over(owner(), lanes, binding(config.table, upstream))
        self._source = UpstreamSource(
            self.spark,
            self.kafka,
            config.upstream,
            config.table,
            self.skip_records,
            config.upstream_format,
        )
        self._lanes = Lanes(self._source)
        batches = Batches(
            storage=storage,
            table=config.table,
            sink_of=self._sinks,
            lanes=self._lanes,
            lane_count=config.lanes,
            journal=journal,
            first_offsets=beginning,
            read_letters=partial(read_letters, self.kafka, config.upstream),
            bad_records=BadRecords(config.upstream, self.skip_records, parks=self._sinks.setup.parks),
            forward=Forward(
                self._sinks,
                partial(newest_barrier, self.kafka, config.upstream),
                config.table,
                config.lanes,
                rebuild=self.rebuild,
            ),
            limits=config.limits,
            upstream_format=config.upstream_format,
        )
        batches.on_each_part(partial(self._part_done, batches, restart_policy))
        failpoints.reach(Failpoint.TAKEN_OVER)
        if former is not None:
            self._fence(transactional_id(batches.replica), max(former.lanes, lanes), former.plan)
        failpoints.reach(Failpoint.FENCED)
        batches.configure(config.jobs)
        return batches

    def _fence(self, prefix: str, lanes: int, plan: BatchPlan | None) -> None:
        """Take every writer's id that a former instance may hold, and let it go again."""
        jobs = [job.state.definition for job in plan.jobs] if plan else []
        for sink in self._sinks.all_of([*jobs, *self.config.jobs]):
            sink.fence([f"{prefix}-{lane}" for lane in range(lanes)])

    # 4 -----------------------------------------------------------------------------------------------------

    def _check_jobs(self, known: Sequence[JobDefinition]) -> None:
        refuse_changed_jobs(known, self.config.jobs)
        refuse_misfit_lanes(known, self.config.lanes)
        if self.exit_when_complete:
            refuse_nothing_to_do(known, self.config.jobs)

    # 5, 6 --------------------------------------------------------------------------------------------------

    def _barrier_source(self, journal: Journal, upstream: UpstreamIdentity, state_id: str) -> BarrierSource:
        setup = BarrierSetup(
            kafka=self.kafka,
            upstream=upstream.topic,
            partitions=upstream.partitions,
            interval_ms=self.config.barrier_interval_ms,
            records=self._source,
            left_out=self.skip_records,
            owner=state_id,
            is_ours=lambda: not journal.is_superseded,
        )
        return barrier_source(self.config.barriers, setup)

    def _stream(self, barriers: BarrierSource, micro_batches: MicroBatches, watch: Watch) -> None:
        scratch = self.spark().conf.get("spark.local.dir")
        with tempfile.TemporaryDirectory(
            dir=scratch, prefix="stream-", ignore_cleanup_errors=True
        ) as checkpoint:
            stream = barriers.stream().writeStream.foreachBatch(micro_batches)
            stream = stream.option("checkpointLocation", Path(checkpoint).as_uri())
            query = stream.trigger(processingTime=TRIGGER_INTERVAL).start()
            self.vitals.streams()
            self.on_serving()
            dropped, drain_s = False, _DRAIN_TIMEOUT_S
            try:
                self._serve(query, barriers, watch)
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

    def _serve(self, query: StreamingQuery, barriers: BarrierSource, watch: Watch) -> None:
        """Until somebody says stop, or the stream ends, or Spark with it."""
        with suppress(*JVM_GONE):
            while query.isActive and not self._stop.wait(_POLL_S):
                self._check(barriers)
                watch.check()

    def _check(self, barriers: BarrierSource) -> None:
        try:
            barriers.check()
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

    def _part_done(self, batches: Batches, restart_policy: RestartPolicy, plan: BatchPlan) -> None:
        restart_policy.worked()
        self.on_part(plan)
        batches.ending = batches.ending or self._stop.is_set()

    def _log_compaction(self, report: CompactionReport) -> None:
        result = report.result
        log.info(
            "compaction",
            epoch=report.epoch,
            vnodes=result.vnodes,
            rows=result.rows_read,
            took_ms=round(report.took_ms),
        )
        for code, illegal in result.illegal.items():
            partition, offset = illegal.first
            first = f"{self.config.upstream}-{partition}@{offset}"
            log.warning("illegal_changes", code=code, count=illegal.count, first=first)

    def _told(self, report: BatchReport, batches: Batches, restart_policy: RestartPolicy) -> None:
        restart_policy.worked()
        self.vitals.batch_done()
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
