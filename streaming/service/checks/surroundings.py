"""The surroundings of one start that checks look at, each part looked at once, and the findings of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from schemas.errors import BackfillError, Code, ConfigError
from schemas.job import JobDefinition
from schemas.kinds.table_changes import TableChange
from schemas.records import RecordId
from schemas.settings.config import ServiceConfig
from schemas.settings.consistency import default_lanes
from state.initial.start import AnyStart
from state.journal import PATH as JOURNAL_PATH
from state.journal import Entry, Journal
from state.progress_table import ProgressTable
from state.replica import Replica
from state.storage import Storage
from state.values.aligned import padded
from state.values.bound_table import BoundTable
from state.values.plan import BatchPlan
from streaming.control.known_table import may_alter, version_of, with_version
from streaming.core.jobs import JobsOutcome, jobs_after
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import admin
from streaming.registry.outputs import refusal_of_wider
from streaming.service.initial.start import start_of
from streaming.sink.kinds import Sinks, SinkSetup
from streaming.source.upstream_checks import UpstreamIdentity

if TYPE_CHECKING:
    from streaming.service.checks.first_records import FirstRecords


class Grade(StrEnum):
    """`WARNING`: the service runs, and something may come of it; `UNKNOWN`: it could not be checked."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: the subject of a check, its result, and the next step if it is not in order.

    A failed one has the `error` that ends a start.
    """

    subject: str
    verdict: Grade
    found: str
    next_step: str | None = None
    error: BackfillError | None = None

    @classmethod
    def ok(cls, subject: str, found: str) -> Finding:
        """It is in order."""
        return cls(subject, Grade.OK, found)

    @classmethod
    def warning(cls, subject: str, found: str, next_step: str) -> Finding:
        """The service runs all the same."""
        return cls(subject, Grade.WARNING, found, next_step)

    @classmethod
    def of(cls, subject: str, error: BackfillError) -> Finding:
        """An error, which ends a start."""
        return cls(subject, Grade.FAILED, error.summary, error.next_step, error)

    @classmethod
    def by(cls, subject: str, check: Callable[[], object], found: str) -> Finding:
        """The result of a check that raises BackfillError; `found` is its text if it raises none."""
        try:
            check()
        except BackfillError as error:
            return cls.of(subject, error)
        return cls.ok(subject, found)

    @property
    def shown(self) -> dict[str, str | int | None]:
        """The finding as JSON values; `code` and `exit_status` are those of the error."""
        error = self.error
        return {
            "subject": self.subject,
            "verdict": self.verdict.value,
            "found": self.found,
            "next_step": self.next_step,
            "code": None if error is None else error.code.value,
            "exit_status": None if error is None else error.exit_status,
        }


def worst(findings: Iterable[Finding]) -> Grade:
    """The worst grade among them."""
    order = (Grade.FAILED, Grade.UNKNOWN, Grade.WARNING)
    verdicts = {finding.verdict for finding in findings}
    return next((verdict for verdict in order if verdict in verdicts), Grade.OK)


@dataclass
class Surroundings:
    """The configuration of a start, and what it finds. Each property may raise what a check of it reports.

    `changes` are those of the table that an operator has asked for.
    `kafka` is None before an embedded broker is started. `skip_records`, `rebuild` and `exit_when_complete` are options
    of the start. `repairs`: it sets aside what a power failure tore, as the owner of the state; else nothing is
    changed. `journal` is the owner's handle, once there is one.
    """

    declared: ServiceConfig
    kafka: KafkaSettings | None
    skip_records: frozenset[RecordId] = frozenset()
    rebuild: bool = False
    exit_when_complete: bool = False
    repairs: bool = False
    journal: Journal | None = None
    changes: tuple[TableChange, ...] = ()
    version: BoundTable | None = None
    """The table that the state has from now on, once it is known to be the declared one or behind it."""
    _settled: ServiceConfig | None = None

    @property
    def broker(self) -> KafkaSettings:
        """The broker; checks that use it need that of the broker."""
        assert self.kafka is not None
        return self.kafka

    @cached_property
    def admin(self) -> AdminClient:
        return admin(self.broker)

    @cached_property
    def upstream(self) -> UpstreamIdentity:
        may_gain = not self.declared.table.by_partition
        return UpstreamIdentity.of(self.broker, self.declared.upstream, client=self.admin, may_gain=may_gain)

    @property
    def config(self) -> ServiceConfig:
        """The configuration with what follows from the number of the upstream's partitions, and from the state."""
        return self._counted if self._settled is None else self._settled

    @cached_property
    def _counted(self) -> ServiceConfig:
        return counted(self.declared, self.upstream.partitions)

    def settle(self) -> None:
        """Find the `version`. Raises: as `version_of`."""
        entry, state = self.entry, self.storage.root
        refuse = refusal_of_wider(self._counted.registry, entry)
        self.version = version_of(self._counted, entry, self.changes, state=state, refuse=refuse)
        self._settled = with_version(self._counted, self.version)
        if not self.declared.lanes and not self.declared.table.by_partition:
            # No file asks for the number, so it also suits jobs that are in none, and outputs that have yet to gain the
            # partitions that the upstream has gained.
            known = [job.definition for job in self.known.jobs]
            self._settled = with_default_lanes(self.config, self.upstream.partitions, known)

    @cached_property
    def sinks(self) -> Sinks:
        config = self.declared
        parks = config.on_bad_record == "park"
        return Sinks(SinkSetup.from_config(config, self.broker, parks=parks))

    @cached_property
    def storage(self) -> Storage:
        return Storage(self.declared.state, synced=self.declared.sync_state)

    @property
    def entry(self) -> Entry | None:
        """The journal's entry, None for a new state."""
        return self._entry if self.journal is None else self.journal.current

    @cached_property
    def _entry(self) -> Entry | None:
        # To open a table that is not there would create it.
        if not self.storage.exists(JOURNAL_PATH, "_delta_log"):
            return None
        return Journal(self.storage, self._counted.table).current

    @property
    def has_finished_batch(self) -> bool:
        """True once an error at a record is no longer likely the configuration's."""
        if self.entry is None or self.entry.plan is None:
            return False
        plan, storage, table = self.entry.plan, self.storage, self.config.table
        return plan.start is not None or plan.is_done(
            ProgressTable(storage, table).epoch, Replica(storage, table).log_epoch
        )

    @property
    def known(self) -> JobsOutcome:
        """The jobs and lanes of the state, as they are once its open batch is done."""
        entry = self.entry
        if entry is None or entry.plan is None:
            return JobsOutcome(())
        return jobs_after(entry.plan, self.config.table, self.may_alter)

    def may_alter(self, plan: BatchPlan, changes: Sequence[TableChange]) -> None:
        """Judge changes that barriers of a plan of the state ask for. Raises: as `MayAlter`."""
        assert self.entry is not None
        may_alter(self.config, self.version or BoundTable.from_binding(self.entry.table))(plan, changes)

    @cached_property
    def start(self) -> AnyStart | None:
        """The start of the table; None for the topic's first record, and for a new one from a database."""
        if self.entry is None and self.config.initial_postgres is not None:
            return None
        return start_of(self.config, self.entry, self.broker, state=self.storage.root)

    @cached_property
    def beginning(self) -> Sequence[int]:
        """The first offset of each partition that is to be read; of a new start from a database as it would be now."""
        if self.entry is None and self.config.initial_postgres is not None:
            # psycopg takes a fifth of a second to import, which other starts should not pay.
            from streaming.service.initial.database import first_offsets

            return first_offsets(self.config, self.broker)
        return padded(() if self.start is None else self.start.offsets, [0] * self.upstream.partitions)

    @cached_property
    def first_records(self) -> FirstRecords:
        # As in `listed`.
        from streaming.service.checks.first_records import read_first

        plan = None if self.entry is None else self.entry.plan
        skipped = frozenset(plan.skipped) if plan else frozenset()
        return read_first(self.config, self.broker, self.beginning, self.skip_records | skipped)


def counted(config: ServiceConfig, partitions: int) -> ServiceConfig:
    """The configuration with the values that follow from the number of the upstream's partitions.

    Raises: ConfigError(CONFIG_INVALID) for lanes that don't divide it, where vnodes are partitions.
    """
    if not config.table.by_partition:
        if config.lanes:
            return config
        return with_default_lanes(config, partitions)
    lanes = config.lanes or partitions
    if partitions % lanes:
        raise ConfigError(
            Code.CONFIG_INVALID,
            where="lanes",
            found=f"{lanes} lanes, {partitions} partitions of {config.upstream}",
            expected="lanes that divide the upstream's partitions, with table.distribution: upstream",
            next_step="leave lanes out, which makes it the number of partitions",
        )
    jobs = tuple(job.with_partitions(partitions) for job in config.jobs)
    table = config.table.with_partitions(partitions)
    return config.model_copy(update={"table": table, "lanes": lanes, "jobs": jobs})


def with_default_lanes(
    config: ServiceConfig, partitions: int, known: Iterable[JobDefinition] = ()
) -> ServiceConfig:
    """The configuration with a number of lanes that nothing asks for: it suits its jobs, and `known` ones."""
    jobs = [*(job.with_partitions(partitions) for job in config.jobs), *known]
    return config.model_copy(update={"lanes": default_lanes(config.spark, config.table, jobs)})
