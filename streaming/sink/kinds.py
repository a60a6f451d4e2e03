"""The registry of sinks: the implementation of each kind that a job can name.

A new kind is a model in `schemas.kinds.configs` and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from schemas.job import JobDefinition
from schemas.kinds.configs import DEFAULT_SINK, SinkConfig, ToKafka
from schemas.settings.config import ServiceConfig
from schemas.settings.limits import Limits
from schemas.table import Column
from streaming.kafka.clients import KafkaSettings
from streaming.sink.kafka import KafkaSink
from streaming.sink.protocol import Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSetup:
    """The parameters of a sink, besides the settings of its kind.

    `parks`: invalid records go to the jobs' dead letters. `limits` has the size of records. `key_columns`: the table's
    key, which positions are made of.
    """

    kafka: KafkaSettings
    reserved: frozenset[str]
    limits: Limits
    parks: bool
    key_columns: tuple[Column, ...]

    @classmethod
    def from_config(cls, config: ServiceConfig, kafka: KafkaSettings, *, parks: bool) -> SinkSetup:
        """The setup of a service."""
        return cls(
            kafka=kafka,
            reserved=config.topics.all,
            limits=config.limits,
            parks=parks,
            key_columns=config.table.key_columns,
        )


SINKS: dict[type[SinkConfig], Callable[[Any, SinkSetup], Sink]] = {
    ToKafka: lambda _, setup: KafkaSink(
        setup.kafka, setup.reserved, setup.limits, setup.parks, setup.key_columns
    ),
}
"""By its model, an instance of which is the first argument."""


@dataclass(frozen=True, slots=True)
class Sinks:
    """The sinks of a service's jobs: a `SinkOf`."""

    setup: SinkSetup

    def __call__(self, job: JobDefinition) -> Sink:
        """The sink that a job names."""
        return self._sink(job.sink)

    def all_of(self, jobs: Iterable[JobDefinition]) -> list[Sink]:
        """The sinks of these jobs, each once, and the default one, which a former instance may have used."""
        return [self._sink(sink) for sink in dict.fromkeys([DEFAULT_SINK, *(job.sink for job in jobs)])]

    def _sink(self, sink: SinkConfig) -> Sink:
        return SINKS[type(sink)](sink, self.setup)
