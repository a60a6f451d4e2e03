"""The service that a command is about: its configuration, its jobs, its state, and the way to send it requests.

What speaks to Kafka is imported late: `list` and `status` only read the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.errors import Code, ConfigError, EnvironmentProblem, StateError
from schemas.job import JobDefinition
from schemas.kinds.table_changes import TableChange
from schemas.records import Drop, Mutation
from schemas.settings.config import ServiceConfig
from schemas.table import nearest
from state.small_files import is_recent, last_seen_ms
from state.storage import Storage
from streaming.cli.configuration import required_config
from streaming.control.known_table import as_known, version_in
from streaming.control.state_view import StateReader, StateView
from streaming.control.suspended import suspended
from streaming.service.left_out_columns import load

if TYPE_CHECKING:
    from streaming.control.client import ControlClient
    from streaming.kafka.clients import KafkaSettings
    from streaming.registry.outputs import OutputSchemas
    from streaming.sink.protocol import SinkOf


@dataclass(frozen=True)
class Served:
    """A service that runs, or has run, with a configuration."""

    config: ServiceConfig
    storage: Storage
    state_reader: StateReader

    @classmethod
    def of(cls, option: Path | None, word: str | None = None) -> Served:
        """The service of the configuration in the option `--config`, or in a word that stands for it.

        Raises: ConfigError as `required_config` and `load`; StateError(STATE_PATH_INVALID) where no service has ever
        run.
        """
        config = as_known(load(required_config(option, word)))
        storage = Storage(str(config.state))
        return cls(config, storage, StateReader(storage, config.table))

    @property
    def kafka(self) -> KafkaSettings:
        """The broker. Raises: ConfigError(USAGE) for an embedded one, whose address only the service has."""
        if self.config.kafka.bootstrap is None:
            raise ConfigError(
                Code.USAGE,
                where="kafka.bootstrap",
                found="no broker in the configuration: the service has an embedded one on a port of its own",
                expected="an address that other processes know",
                next_step="start a broker with `backfill kafka`, and name it in the configuration",
            )
        from streaming.kafka.clients import KafkaSettings

        return KafkaSettings.from_config(self.config.kafka)

    @property
    def sink_of(self) -> SinkOf:
        """Checks the outputs of new jobs. Raises: as `kafka`."""
        from streaming.sink.kinds import Sinks, SinkSetup

        config = self.config
        return Sinks(SinkSetup.from_config(config, self.kafka, parks=config.on_bad_record == "park"))

    def counted(self, job: JobDefinition) -> JobDefinition:
        """The job with as many partitions as the upstream has, where it names no number."""
        plan = self.state_reader.read().plan
        return job.with_partitions(len(plan.first_offsets)) if plan else job

    @property
    def output_schemas(self) -> OutputSchemas:
        """Registers the schemas of new jobs."""
        from streaming.registry.outputs import OutputSchemas

        return OutputSchemas(self.config.registry, self.config.table)

    def control_client(self, timeout_s: float) -> ControlClient:
        """The way to send requests; a context."""
        from streaming.control.client import ControlClient

        return ControlClient(self.kafka, self.config.topics, self.state_reader, timeout_s=timeout_s)

    def refuse_ended(self) -> None:
        """Raises: EnvironmentProblem(NOT_SERVED) where the service has ended, or gives no sign of life."""
        owner = self.state_reader.owner()
        # Also where others write its barriers: a request on one would wait for a start, perhaps for days.
        if owner and not is_recent(seen_ms := last_seen_ms(self.storage, owner)):
            ended = "a service that has ended" if seen_ms is None else "a service without a sign of life"
            raise EnvironmentProblem(
                Code.NOT_SERVED,
                where=str(self.config.state),
                found=f"{ended} ({owner}); nothing was sent",
                next_step="start it (`backfill run`), and give the command again",
            )

    def topics_of(self, job: str) -> tuple[str, ...]:
        """The topics of a job of the state; none if it has no such job."""
        return tuple(
            topic for each in self.state_reader.jobs() if each.name == job for topic in each.definition.topics
        )

    def check_changes(self, changes: Sequence[TableChange]) -> None:
        """Raises: ConfigError, StateError for changes that the table can't have."""
        version_in(self.config, self.storage, changes)

    def check(self, mutation: Mutation) -> None:
        """Raises: ConfigError for a mutation that the service would refuse as things are now."""
        from streaming.control.client import refuse

        view = self.state_reader.read()
        if view.is_suspended and not isinstance(mutation, Drop):
            raise suspended(self.config.table.name, view.end)
        partitions = len(view.plan.first_offsets) if view.plan else None
        refuse(mutation, view.epoch, view.jobs, lanes=view.lanes, config=self.config, partitions=partitions)


def known_jobs(config: ServiceConfig) -> dict[str, JobDefinition]:
    """By name. What is in the state wins over the file, as it does in the service, where it is at hand."""
    view = view_at_hand(config)
    of_state = () if view is None else view.jobs
    return {job.name: job for job in config.jobs} | {job.name: job.state.definition for job in of_state}


def view_at_hand(config: ServiceConfig) -> StateView | None:
    """The state of a configuration; None where its folder is not at hand: topics can be read from any machine.

    Raises: StateError for tables that can't be read.
    """
    try:
        return StateReader(Storage(str(config.state)), config.table).read()
    except StateError as error:
        if error.code is not Code.STATE_PATH_INVALID:
            raise
        return None


def job_named(name: str, jobs: Mapping[str, JobDefinition]) -> JobDefinition:
    """One of `known_jobs`. Raises: ConfigError(JOB_UNKNOWN)."""
    if name not in jobs:
        raise ConfigError(
            Code.JOB_UNKNOWN,
            where=name,
            found=f"no job of that name{nearest(name, list(jobs))}",
            next_step="see `backfill list`; for an output without a job, name its topic",
        )
    return jobs[name]
