"""The control requests of the API: impossible ones are refused, others go to the control topic; an output's readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from schemas.job import JobDefinition
from schemas.kinds.table_changes import TableChange, changes_from_json
from schemas.records import Add, Alter, Drop, Mutation, record_from_text
from schemas.settings.config import ServiceConfig
from schemas.table import TableSchema
from state.storage import Storage
from streaming.control.client import refuse, refuse_former, send_request, send_suspended
from streaming.control.cost import cost_of
from streaming.control.known_table import version_in
from streaming.control.suspended import not_suspended, suspended
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.errors import translated
from streaming.kafka.topics import Watermarks, admin, answered, watermarks
from streaming.observe.changes import JobEstimate, WayOn
from streaming.observe.middleware import unknown_job
from streaming.observe.models import OutputStatus, ReaderStatus
from streaming.observe.status_cache import StatusCache
from streaming.registry.outputs import OutputSchemas
from streaming.sink.protocol import SinkOf
from streaming.source.barriers.injecting.control_requests import (
    AlterAndTryAgain,
    DropAndTryAgain,
    SuspendedAction,
    TryAgain,
)

MOST_GROUPS = 500
"""Groups of a cluster that are asked, a request each."""


@dataclass(frozen=True)
class ControlApi:
    """Checks and sends the control requests of the API. It sees the jobs as of the last batch."""

    cache: StatusCache
    storage: Storage
    kafka: KafkaSettings
    config: Callable[[], ServiceConfig]
    """With the table in the version that the service has by now."""
    sink_of: SinkOf

    @property
    def table(self) -> TableSchema:
        return self.config().table

    def send(self, mutation: Mutation) -> str:
        """Check a mutation against the current jobs, and send it; the request's id.

        Raises: ConfigError as the service would refuse it, TopicError for an output that is in use,
        EnvironmentProblem; as `OutputSchemas.register`.
        """
        if self.cache.vitals.is_suspended:
            raise suspended(self.table.name, self.cache.vitals.last_end)
        self._refuse(mutation)
        refuse_former(self.kafka, self.config().topics, mutation)
        if isinstance(mutation, Alter):
            self._check_changes(changes_from_json(json.loads(mutation.changes)))
        if isinstance(mutation, Add):
            job = self._addable(mutation)
            if job.format.framed:
                OutputSchemas(self.config().registry, self.table).register(job)
        return send_request(self.kafka, self.config().topics.control, mutation)

    def lead_on(self, way: WayOn) -> str:
        """Tell a suspended table how to go on; the request's id.

        Raises: ConfigError(NOT_SUSPENDED, JOB_UNKNOWN); EnvironmentProblem.
        """
        if not self.cache.vitals.is_suspended:
            raise not_suspended(self.table.name)
        action: SuspendedAction
        if way.alter:
            action = AlterAndTryAgain(self._check_changes(way.changes()))
        elif way.drop is None:
            action = TryAgain(frozenset(map(record_from_text, way.skip_records)), way.accept_log_reset)
        else:
            self._refuse(Drop(way.drop))
            action = DropAndTryAgain(way.drop)
        return send_suspended(self.kafka, self.config().topics.control, action)[0]

    def _check_changes(self, changes: tuple[TableChange, ...]) -> tuple[TableChange, ...]:
        """Raises: ConfigError, StateError for changes that the table can't have."""
        version_in(self.config(), self.storage, changes)
        return changes

    def plan(self, job: JobDefinition) -> JobEstimate:
        """Estimate a job. Reads a sample of the replica, for a second or so. Raises: as for its creation."""
        mutation = Add(job.to_json())
        self._refuse(mutation)
        job = self._addable(mutation)
        cost = cost_of(job, self.table, self.storage, lambda: watermarks(self.kafka, self.config().upstream))
        return JobEstimate(
            rows=cost.rows,
            kept_share=cost.kept_share,
            output_rows=cost.output_rows,
            output_bytes=cost.output_bytes,
            seconds=cost.seconds(job, self.cache.jobs()[1], self.config().limits.rate_limit),
            output_partitions=job.output_partitions,
            columns=[column.name for column in job.columns],
            form=job.form,
        )

    def output(self, job: str) -> OutputStatus:
        """Offsets and readers of a job's output. Raises: ConfigError(JOB_UNKNOWN); as `readers_of`."""
        known = next((each.state.definition for each in self.cache.jobs()[2] if each.name == job), None)
        if known is None:
            raise unknown_job(job)
        return readers_of(self.kafka, known.output)

    def _refuse(self, mutation: Mutation) -> None:
        epoch, lanes, jobs = self.cache.jobs()
        partitions = self.cache.partitions() or None
        refuse(mutation, epoch, jobs, lanes=lanes, config=self.config(), partitions=partitions)

    def _addable(self, mutation: Add) -> JobDefinition:
        job = JobDefinition.from_json(mutation.job, self.table).with_partitions(self.cache.partitions())
        self.sink_of(job).refuse_used(job)
        return job


def readers_of(settings: KafkaSettings, topic: str) -> OutputStatus:
    """The offsets that a topic holds now, and its consumer groups, those that are furthest behind first.

    Groups without Describe are left out by the broker; what commits no offsets to Kafka, as many sinks, is not seen.

    Raises: TopicError(TOPIC_MISSING), EnvironmentProblem.
    """
    client = admin(settings)
    marks = watermarks(settings, topic, client=client)
    asked = [TopicPartition(topic, number) for number in range(len(marks))]
    with translated(settings, what="consumer groups"):
        groups = answered(client.list_consumer_groups(request_timeout=settings.wait_s), settings).valid
        states = {each.group_id: each.state.name for each in groups}
        futures = {
            group: client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, asked)], request_timeout=settings.wait_s
            )[group]
            for group in sorted(states)[:MOST_GROUPS]
        }
        offsets = {group: answered(each, settings).topic_partitions for group, each in futures.items()}
    readers = [
        ReaderStatus(group=group, state=states[group], behind=behind)
        for group, places in offsets.items()
        if (behind := _behind(places, marks)) is not None
    ]
    readers.sort(key=lambda each: (-each.behind, each.group))
    held = sum(each.stable - each.earliest for each in marks)
    return OutputStatus(offsets=held, readers=readers, unasked=max(0, len(states) - MOST_GROUPS))


def _behind(places: Sequence[TopicPartition], marks: Sequence[Watermarks]) -> int | None:
    """The offsets up to the end that are unread; None for a group without an offset in the topic."""
    known = {each.partition: each.offset for each in places if each.offset >= 0}
    if not known:
        return None
    # A partition without an offset, or with one that was deleted, is read from what is there.
    return sum(
        max(0, each.stable - max(known.get(number, 0), each.earliest)) for number, each in enumerate(marks)
    )
