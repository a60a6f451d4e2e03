"""The service from start to end: check, take over, recover, stream, stop.

Start-up is a fixed order, for each step protects the next:

    1  topics      the upstream is there, outputs are as the jobs declare; nothing was written so far
    2  take over   write the journal's owner, by which a former instance learns of this one
    3  fence       its transactional ids, so that none of its transactions can still commit; likewise its injector's
       copy        the table that the state starts from, if it is not in the state yet
    4  recover     the batch that may be half done
    5  catch up    run the batches of barriers behind the last batch that are there already
    6  stream      from there on

A fault of the table suspends it (`suspended`): the process stays, and a request leads on to step 1; so do a new field
that becomes a column, and added partitions. Any other lasting error ends it. Either way the journal has how it ended.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial

import structlog
from pyspark.sql import SparkSession

from schemas.errors import BackfillError, EnvironmentProblem, Fenced
from schemas.formats.debezium import DebeziumFormat
from schemas.settings.config import ServiceConfig
from state.initial.start import CopyProgress, Start, TopicStart
from state.initial.table import checked_table
from state.journal import Journal, is_superseded
from state.values.plan import BatchPlan
from streaming.compaction.compactor import COMPACTION_LEAST_ROWS, Compactor, log_compaction
from streaming.compaction.maintenance import BarrierKeeping
from streaming.core.health import late_after_s
from streaming.core.jobs import StartPause
from streaming.kafka.clients import KafkaSettings
from streaming.lane.before.folder import rows_name, rows_root
from streaming.protocol.batches import Batches
from streaming.protocol.lanes.attempts import transactional_id
from streaming.protocol.lanes.redelivery import LogResets
from streaming.protocol.micro_batches import MicroBatches, Stream, stream_ended
from streaming.protocol.report import BatchReport, Observer, Observers
from streaming.registry.client import AskedSchemas, Registry
from streaming.runtime import failpoints
from streaming.runtime.paths import sweep_rows
from streaming.runtime.session import JVM_GONE, compact_on, is_alive, merge_on
from streaming.service.bootstrap import ServiceOptions
from streaming.service.checks.listed import Part, require
from streaming.service.checks.state import are_complete, check_jobs, refuse_nothing_to_do, set_torn_aside
from streaming.service.checks.surroundings import Surroundings
from streaming.service.initial.copying import Copying, SparkWorkers
from streaming.service.presence import Presence, instance_name, noting_fenced
from streaming.service.startup import Owned, Startup, owner
from streaming.service.suspension import Decisions, Suspension, TableFaults
from streaming.service.trouble import LIMIT_S, RestartPolicy, SparkWatch, UpstreamWatch, broker_answers
from streaming.service.vitals import Vitals
from streaming.source.barriers.injecting.control_topic import KafkaRequests
from streaming.source.barriers.source import BarrierSource
from streaming.source.direct_read import NewestRows
from streaming.source.upstream_checks import UpstreamGuard

log = structlog.get_logger()


@dataclass
class Service(ServiceOptions):
    """One run of the service. `run` returns when it was stopped, or when every job is complete (`exit_when_complete`).

    `on_trouble` gets what interrupted it or suspended the table; `observers` get all before `on_trouble` and
    `on_batch`. `spark` waits for the session.
    """

    config: ServiceConfig
    kafka: KafkaSettings
    spark: Callable[[], SparkSession]
    on_trouble: Callable[[BackfillError], None] = lambda problem: None
    observers: tuple[Observer, ...] = field(default=(), kw_only=True)
    owner: str = field(default_factory=owner)
    compaction_least_rows: int = COMPACTION_LEAST_ROWS
    late_s: float | None = None
    """Seconds without a batch until the service is late; None: as the barriers' interval determines."""
    trouble_limit_s: float = LIMIT_S
    """Seconds for which transient trouble is waited for."""
    barriers: BarrierSource | None = None
    """The source of the run under way, or of the last one."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _journal: Journal | None = None
    _signs_of_life: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def vitals(self) -> Vitals:
        """The service's health; may be used before `run`."""
        config, every_ms = self.config, self.config.barrier_interval_ms
        late_s = late_after_s(every_ms) if self.late_s is None else self.late_s
        return Vitals(config.upstream, every_ms, late_s=late_s, injects=config.barriers.injects)

    @cached_property
    def decisions(self) -> Decisions:
        upstream = self.config.upstream_format
        accepts = isinstance(upstream, DebeziumFormat) and upstream.on_log_reset == "accept"
        log_resets = LogResets(accepts, int(self.accept_log_reset))
        return Decisions(self.skip_records, log_resets, StartPause(self.paused))

    @cached_property
    def _faults(self) -> TableFaults:
        suspends = self.config.on_table_fault == "suspend" and not self.exit_when_complete
        suspension = Suspension(KafkaRequests(self.kafka, self.config.topics.control), self.owner)
        vitals, stop = self.vitals, self._stop
        return TableFaults(
            suspends, suspension, self.decisions, vitals, self.owner, stop, lambda: self.config
        )

    def stop(self) -> None:
        """End the running service after the open batch. Safe from signal handlers and other threads."""
        self.vitals.stops()
        self._stop.set()

    def run(self) -> None:
        """Run until stopped, through transient trouble (`streaming.service.trouble`).

        Raises: the BackfillError that ended it; the next start continues from the state.
        """
        failpoints.arm(os.environ.get(failpoints.VARIABLE))
        answers, registry = partial(broker_answers, self.kafka), Registry(self.config.registry)
        restart_policy = RestartPolicy(
            answers, self._stop, registry_answers=registry.is_reachable, limit_s=self.trouble_limit_s
        )
        watch = SparkWatch(self.spark, self.vitals, self.config.batch_timeout_ms / 1_000)
        with self._faults.end_written(), self._signs_of_life, watch.running():
            while self._goes_on(restart_policy):
                pass

    def _goes_on(self, restart_policy: RestartPolicy) -> bool:
        """Run once. True if it is to run again: after trouble that passed, and by a request to a suspended table."""
        try:
            return self._run_once(restart_policy)
        except BackfillError as problem:
            if not (restart_policy.may_pass(problem) and is_alive(self.spark())):
                raise
            self.vitals.interrupted(problem)
            self._report_trouble(problem)
            return restart_policy.wait(problem)
        except JVM_GONE as error:
            if is_alive(self.spark()):
                raise
            raise stream_ended("Spark's JVM is gone") from error

    def _show_serving(self) -> None:
        self.vitals.streams()
        self.on_serving()

    def _report_trouble(self, problem: BackfillError) -> None:
        Observers(self.observers).trouble(problem)
        self.on_trouble(problem)

    def _run_once(self, restart_policy: RestartPolicy) -> bool:
        self.vitals.begins("checking the topics")
        config = self.decisions.applied_to(self.config)
        records, changes = self.decisions.skip_records, self.decisions.changes
        found = Surroundings(config, self.kafka, records, rebuild=self.rebuild, changes=changes)
        startup = Startup(found, self.spark, self.decisions, self.owner)
        require(found, Part.TOPICS)
        self.config = found.config
        self.vitals.begins("reading the state")
        storage = found.storage
        storage.prepare()
        if self._journal is not None and is_superseded(storage, self._journal.version):
            raise self._journal.fenced()  # the instance that took over meanwhile is the one to go on
        set_torn_aside(storage)
        presence = Presence(storage)
        journal = Journal(storage, self.config.table)
        if (current := journal.current) is not None and current.owner != self.owner and not self.take_over:
            if self.refuses_living:
                presence.refuse_living(current.owner, self._stop.is_set)
            if not presence.await_turn(instance_name(), current.owner, self._stop.is_set):
                return False
            journal = Journal(storage, self.config.table)
        # Steps 2 and 3: take over and fence.
        former = None if journal.current is None else journal.current.owner
        if self._journal is None:  # once, for all restarts
            self._signs_of_life.enter_context(presence.shown(self.owner))
        self._journal = journal
        with noting_fenced(presence, journal):
            owned = startup.take_over(journal)
            self.config = found.config
            self._faults.owns(journal, owned.batches)
            self._faults.note_silence(former, storage)
            self.vitals.start = str(owned.start) if isinstance(owned.start, TopicStart) else None
            restart_policy.begins()
            guard = UpstreamGuard(self.kafka, found.upstream, storage.root, owned.source.gaps)
            try:
                self._run_watched(startup, owned, restart_policy, guard)
            except BackfillError as fault:
                if restart_policy.may_pass(fault):
                    raise
                if found.upstream.gains(self.kafka, fault) or self._faults.is_altered_by(fault, self.kafka):
                    return not self._stop.is_set()
                if not self._faults.suspends(fault):
                    raise
                Observers(self.observers).starts_from(owned.batches.state_at_barrier)
                self._report_trouble(fault)
                return self._faults.await_decision(fault, guard)
        return False

    def _run_watched(
        self, startup: Startup, owned: Owned, restart_policy: RestartPolicy, guard: UpstreamGuard
    ) -> None:
        known = self.config.upstream_format.with_schemas(AskedSchemas(Registry(self.config.registry)))
        newest = NewestRows(self.kafka, self.config.upstream, known, self.config.table)
        with UpstreamWatch(guard, self.vitals, newest).running() as watch:
            try:
                if self._copy(owned, restart_policy):
                    barriers = startup.barrier_source(owned)
                    keeping = startup.keeping(owned, barriers)
                    self._recover_and_stream(owned, barriers, keeping, restart_policy, watch)
            except EnvironmentProblem as problem:
                reason = guard.reason(problem, owned.batches.next_offsets())
                if reason is problem:
                    raise
                raise reason from problem
            finally:
                self.vitals.detach()
                if owned.reads is not None:
                    owned.reads.close()

    def _copy(self, owned: Owned, restart_policy: RestartPolicy) -> bool:
        """Copy the table that the state starts from, if any. False if the service was stopped before the end."""
        if not isinstance(owned.start, Start):
            return True

        def on_copied(progress: CopyProgress | None) -> None:
            restart_policy.worked()
            self.vitals.copy = progress
            self.on_copied(progress)

        return Copying(
            workers=SparkWorkers(self.spark),
            journal=owned.journal,
            replica=owned.batches.replica,
            source=partial(checked_table, owned.start.declared, self.config.table),
            most_rows=self.config.limits.interval_records,
            on_copied=on_copied,
            stopping=self._stop.is_set,
        ).copy()

    def _recover_and_stream(
        self,
        owned: Owned,
        barriers: BarrierSource,
        keeping: BarrierKeeping,
        restart_policy: RestartPolicy,
        watch: UpstreamWatch,
    ) -> None:
        batches, lanes = owned.batches, owned.lanes
        batches.on_each_part(partial(self._part_done, batches, restart_policy))
        on_batch = partial(self._batch_done, batches, restart_policy, keeping)
        compactor = Compactor(
            partial(compact_on, self.spark),
            partial(merge_on, self.spark),
            batches.replica,
            partial(log_compaction, self.config.upstream, self.config.upstream_format.images),
            compaction_least_rows=self.compaction_least_rows,
            slots=lambda: lanes.slots,
            chunks_since_ms=owned.chunks_since_ms,
        )
        self.vitals.begins("finding the last barrier")
        barriers.start()  # fences an earlier injector, before anything is read
        try:
            # Step 4: recover.
            self.vitals.begins("looking for an unfinished batch")
            if (recovered := batches.recover()) is not None:
                on_batch(recovered)
            else:
                Observers(self.observers).starts_from(batches.state_at_barrier)
            check_jobs(batches, self.config, owned.widths)
            if self.exit_when_complete:
                refuse_nothing_to_do([job.definition for job in batches.jobs], self.config.jobs)
            # Step 5: catch up.
            known = barriers.begin(batches.position, batches.next_offsets())
            watch.next_offsets = batches.next_offsets
            self.barriers = barriers
            micro_batches = MicroBatches(barriers, batches, compactor, on_batch)
            sweep_rows(root := rows_root(self.config.rows_folder))
            self.vitals.rows_folder = root / rows_name(transactional_id(batches.replica))
            self.vitals.attach(barriers, micro_batches, compactor, owned.reads, keeping)
            self.vitals.catches_up(known, batches.next_offsets())
            micro_batches.run_batches(known)
            # Step 6: stream.
            self.vitals.begins("waiting for Spark")
            threading.Thread(target=lanes.warm_up).start()
            stream = Stream(self.spark(), barriers, micro_batches, self._stop)
            stream.serve(self._show_serving, partial(self._check, owned, barriers, watch))
        finally:
            barriers.close()
            compactor.close()
            keeping.close()

    def _check(self, owned: Owned, barriers: BarrierSource, watch: UpstreamWatch) -> None:
        try:
            barriers.check()
        except Fenced as fenced:
            if owned.journal.is_superseded:
                raise owned.journal.fenced() from fenced
            raise
        watch.check()

    def _part_done(self, batches: Batches, restart_policy: RestartPolicy, plan: BatchPlan) -> None:
        restart_policy.worked()
        self.on_part(plan)
        batches.ending = batches.ending or self._stop.is_set()

    def _batch_done(
        self, batches: Batches, restart_policy: RestartPolicy, keeping: BarrierKeeping, report: BatchReport
    ) -> None:
        restart_policy.worked()
        self.decisions.batch_done(batches.jobs)
        keeping.after_batch(report.plan)
        self.vitals.batch_done()
        for each in report.outcome.reports:
            log.info("mutation", epoch=each.epoch, what=each.text, refused=each.refused)
        Observers(self.observers).batch(report)
        self.on_batch(report)
        if report.outcome.stop or (self.exit_when_complete and are_complete(batches)):
            self._stop.set()
        self._faults.raise_altered(report.outcome.changes)
