"""The API's control requests: what is impossible is refused here, the rest is sent to the control topic."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.job import JobDefinition
from schemas.records import Add, Mutation
from schemas.table import TableSchema
from streaming.control.client import refuse, send_request
from streaming.kafka.clients import KafkaSettings
from streaming.observe.status_cache import StatusCache
from streaming.registry.outputs import OutputSchemas
from streaming.sink.protocol import SinkOf


@dataclass(frozen=True)
class Gateway:
    """Of one service. It reads the jobs from the panel, so it sees the state as of the last batch."""

    cache: StatusCache
    kafka: KafkaSettings
    control_topic: str
    table: TableSchema
    sink_of: SinkOf
    schemas: OutputSchemas

    def __call__(self, mutation: Mutation) -> str:
        """Check a mutation against the current jobs, and send it; the request's id.

        Raises: ConfigError as the service would refuse it, TopicError for an output that is in use,
        EnvironmentProblem; as `OutputSchemas.register`.
        """
        epoch, lanes, jobs = self.cache.jobs()
        partitions = self.cache.partitions()
        refuse(mutation, epoch, jobs, lanes=lanes, table=self.table, partitions=partitions or None)
        if isinstance(mutation, Add):
            job = JobDefinition.from_json(mutation.job, self.table).with_partitions(partitions)
            self.sink_of(job).refuse_used(job)
            if job.format.framed:
                self.schemas.register(job)
        return send_request(self.kafka, self.control_topic, mutation)
