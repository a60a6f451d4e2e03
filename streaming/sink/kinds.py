"""The registry of sinks: what carries out each kind that a job can name.

A new kind is a model in `schemas.kinds.sinks` and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from schemas.job import JobDefinition
from schemas.kinds.sinks import DEFAULT, SinkConfig, ToKafka
from schemas.settings.config import ServiceConfig
from schemas.settings.limits import Limits
from schemas.table import Column
from streaming.kafka.clients import KafkaSettings
from streaming.sink.kafka import KafkaSink
from streaming.sink.protocol import Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSetup:
    """What a sink is made from, beside the settings of its kind.

    `parks`: records at fault go to the jobs' dead letters. `limits` say how large a record may be. `key_columns`: of
    the table, which positions are made of.
    """

    kafka: KafkaSettings
    reserved: frozenset[str]
    limits: Limits
    parks: bool
    key_columns: tuple[Column, ...]

    @classmethod
    def from_config(cls, config: ServiceConfig, kafka: KafkaSettings, *, parks: bool) -> SinkSetup:
        """Of a service's configuration."""
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
        """The one that a job names."""
        return self._sink(job.sink)

    def all_of(self, jobs: Iterable[JobDefinition]) -> list[Sink]:
        """Each of these jobs' once, and the default, which a former instance may have used whatever is known of it."""
        return [self._sink(sink) for sink in dict.fromkeys([DEFAULT, *(job.sink for job in jobs)])]

    def _sink(self, sink: SinkConfig) -> Sink:
        return SINKS[type(sink)](sink, self.setup)
