"""The control requests of the API: impossible ones are refused, others go to the control topic; an output's readers.

Types of requests that change something, and of their answers, are in the OpenAPI description as `models`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from schemas.job import JobDefinition
from schemas.kinds.table_changes import MOST_CHANGES, TableChange, changes_from_json, changes_text
from schemas.records import RECORD_PATTERN, Add, Alter, Drop, Mutation, record_from_text
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
from streaming.observe.middleware import unknown_job
from streaming.observe.models import ApiModel, OutputStatus, ReaderStatus
from streaming.observe.status_cache import StatusCache
from streaming.registry.outputs import OutputSchemas
from streaming.sink.protocol import SinkOf
from streaming.source.barriers.injecting.control_requests import (
    AlterAndTryAgain,
    DropAndTryAgain,
    SuspendedAction,
    TryAgain,
)

_MAX_LIMIT = 10**12


def _whole(value: object) -> object:
    """JSON knows one kind of number: 10.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
Rows = Annotated[int, Field(ge=0, le=_MAX_LIMIT), BeforeValidator(_whole)]


_MISSING = (
    "Whether earlier records may have had the field, so that rows lack its values until a record comes."
)


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class AddedColumn(_Request):
    """A new column, as below `columns` in a configuration."""

    add: dict[str, str | dict[str, Any]] = Field(min_length=1, max_length=1)
    accept_missing: bool = Field(False, description=_MISSING)


class WidenedColumn(_Request):
    """A wider type for a column, `{c: bigint}`."""

    widen: dict[str, str] = Field(min_length=1, max_length=1)


class RetiredColumn(_Request):
    """A column that the upstream's table has no more."""

    retire: str


class RenamedField(_Request):
    """A new name in records of a column, `{old: new}`."""

    rename: dict[str, str] = Field(min_length=1, max_length=1)
    accept_missing: bool = Field(False, description=_MISSING)


class IgnoredField(_Request):
    """A field of records that is no column."""

    ignore: str


Changes = list[AddedColumn | WidenedColumn | RetiredColumn | RenamedField | IgnoredField]


class NewJob(_Request):
    """A job, as below `jobs` in a configuration."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: str = Field(max_length=63)
    output: str = Field(max_length=249)
    columns: list[str | dict[str, str | None]] | None = Field(
        None, description="`id`, renamed `{cust: customer}`, or masked: `{mail: hash(mail)}`, `{mail: null}`."
    )
    key: list[str] | None = None
    hash_key_file: str | None = Field(None, description="A file on the service's machine.", max_length=4_096)
    filter: str | None = Field(None, max_length=16_384)
    output_partitions: Count | None = None
    rate_limit: Rows | None = None
    latency_budget: str | None = None
    replication_factor: Count | None = None
    topic_config: dict[str, str] | None = None
    allow_retention: bool | None = None
    paused: bool | None = None
    from_: str | None = Field(None, alias="from", max_length=63)
    until: str | None = Field(None, max_length=63)
    format: str | None = Field(None, max_length=63)
    encoding: str | None = Field(None, max_length=63)
    tombstones: bool | None = None
    barrier_topic: str | None = Field(None, max_length=249)
    read: str | None = Field(None, max_length=63)
    headers: list[str] | None = None
    new_columns: str | None = Field(None, max_length=63)
    sink: str | None = Field(None, max_length=63)

    def declared(self) -> dict[str, Any]:
        """The job as a configuration has it; a null is a key that is not there."""
        return {name: value for name, value in self.model_dump().items() if value is not None}


class Limit(_Request):
    """Snapshot rows per second; null takes the limit away."""

    rate_limit: Rows | None


class WantedLanes(_Request):
    """The number of lanes from the next barrier's batch on."""

    lanes: Count


class WantedChanges(_Request):
    """Changes of the table, for records from the next barrier on."""

    changes: Changes = Field(min_length=1, max_length=MOST_CHANGES)

    def text(self) -> str:
        """The text of the mutation."""
        return changes_text(_asked(self.changes))


class WayOn(_Request):
    """A decision on a suspended table."""

    skip_records: list[Annotated[str, Field(pattern=f"^{RECORD_PATTERN}$")]] = Field(
        [],
        description="Records to leave out if they are invalid, each as PARTITION@OFFSET.",
        max_length=1_000,
    )
    accept_log_reset: bool = Field(False, description="Whether a database's log may begin anew once more.")
    drop: str | None = Field(None, description="A job to drop first.", max_length=63)
    alter: Changes = Field([], description="Changes of the table.", max_length=MOST_CHANGES)

    def changes(self) -> tuple[TableChange, ...]:
        """The changes of the table; none if there are none."""
        return _asked(self.alter) if self.alter else ()


def _asked(changes: Changes) -> tuple[TableChange, ...]:
    return changes_from_json([each.model_dump() for each in changes])


class JobEstimate(ApiModel):
    """Estimate of what a job would read, send and take, as by `backfill plan`; nothing is started or changed."""

    rows: int = Field(
        description="Rows that it reads; with `read: topic` offsets, some of which hold no record."
    )
    kept_share: float | None = Field(
        description="Of a sample, what its filter lets through; null without rows."
    )
    output_rows: int | None
    output_bytes: int | None = Field(description="Keys and values, uncompressed.")
    seconds: float | None = Field(description="At the least; null where it never ends, or nothing is known.")
    output_partitions: int
    columns: list[str]
    form: str = Field(description="Format and encoding of the output, as in `debezium json`.")


class Taken(ApiModel):
    """A control request that is in the topic; it takes effect at the end of the batch that holds its barrier."""

    wanted: str


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
