"""The desk that takes the API's wishes: what can't be is refused here, the rest goes into the control topic."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.job import JobDefinition
from schemas.limits import Limits
from schemas.records import Add, Mutation
from schemas.table import TableSchema
from streaming.observe.panel import Panel
from streaming.runtime.kafka import KafkaSettings
from streaming.service.outputs import refuse_used_output
from streaming.steering.wishes import refuse, send_wish


@dataclass(frozen=True)
class Desk:
    """Of one service."""

    panel: Panel
    kafka: KafkaSettings
    upstream: str
    table: TableSchema
    limits: Limits

    def __call__(self, mutation: Mutation) -> str:
        """Check a mutation against the jobs as they are now, and send it; the wish's id.

        Raises: ConfigError as the service would refuse it, TopicError for an output that is in use,
        EnvironmentProblem.
        """
        epoch, lanes, jobs = self.panel.jobs()
        refuse(mutation, epoch, jobs, lanes=lanes, table=self.table)
        if isinstance(mutation, Add):
            refuse_used_output(self.kafka, JobDefinition.from_json(mutation.job, self.table), self.limits)
        return send_wish(self.kafka, self.upstream, mutation)
