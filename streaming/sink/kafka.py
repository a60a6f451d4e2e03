"""Jobs that write to Kafka: each has its output topic, and one for its dead letters, made when they are first needed.

Checks (`check`, `refuse_used`) make nothing; `open` is an effect of a batch whose plan is in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import structlog
from confluent_kafka.admin import AdminClient

from schemas.errors import Code, TopicError
from schemas.formats.outputs.lengths import record_bytes, topic_bytes
from schemas.job import JobDefinition
from schemas.kinds.full_barriers import barrier_topic_bytes
from schemas.records import Barrier
from schemas.settings.job_keys import BARRIER_TOPIC, RETENTION_KEYS, is_finite
from schemas.settings.limits import KAFKA_MESSAGE_BYTES, Limits
from schemas.table import Column
from schemas.topics import DEAD_LETTERS_SUFFIX
from state.values.plan import Parked
from streaming.kafka.barriers import BarrierCut, delete_barriers
from streaming.kafka.clients import TRANSACTION_TIMEOUT_MS, KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of
from streaming.kafka.topics import (
    admin,
    create_topic,
    describe_topic,
    known_settings,
    partitions_of,
    topic_settings,
    watermarks,
)
from streaming.kafka.transactions import TransactionalProducer
from streaming.sink import kafka_reader
from streaming.sink.dead_letters import PARTITIONS, PLACE_HEADER, ReadLetters, missing_letters
from streaming.sink.kafka_writer import open_kafka_writer
from streaming.sink.protocol import Ending, OpenWriter, Sink

log = structlog.get_logger(__name__)

_FENCED_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class KafkaSink(Sink):
    """Makes topics, or refuses those that are there.

    `reserved` topics are no outputs. `parks`: invalid records go to the jobs' dead letters. `key_columns` are those of
    the table's key, which positions in barriers are made of.
    """

    kafka: KafkaSettings
    reserved: frozenset[str]
    limits: Limits
    parks: bool
    key_columns: tuple[Column, ...]

    @property
    def open_writer(self) -> OpenWriter:
        return partial(open_kafka_writer, self.kafka)

    def delete_barriers(self, job: JobDefinition, cut: BarrierCut) -> int:
        if job.barrier_topic is None:
            return 0
        return delete_barriers(self.kafka, job.barrier_topic, cut)

    def fence(self, writer_ids: Sequence[str]) -> None:
        def fence(transactional_id: str) -> None:
            TransactionalProducer(self.kafka, transactional_id).close()

        with ThreadPoolExecutor(min(len(writer_ids), _FENCED_AT_ONCE)) as pool:
            list(pool.map(fence, writer_ids))

    def tails(self, job: JobDefinition) -> Sequence[Barrier | None] | None:
        return kafka_reader.tails(self.kafka, job.with_barriers, beside=job.barrier_topic is not None)

    def begins(self, job: JobDefinition) -> Sequence[Barrier | None]:
        return kafka_reader.begins(self.kafka, job.with_barriers, beside=job.barrier_topic is not None)

    def endings(self, job: JobDefinition, after: int) -> Sequence[Ending]:
        return kafka_reader.endings(
            self.kafka, job.with_barriers, after, beside=job.barrier_topic is not None
        )

    def check(self, job: JobDefinition, *, gains: bool = False) -> None:
        """Raises: TopicError(OUTPUT_TOPIC_MISMATCH, OUTPUT_LOSES_RECORDS)."""
        client = admin(self.kafka)
        for topic in self._outputs(job):
            count = partitions_of(self.kafka, topic, client=client)
            if count is not None:
                few = replace(job, output_partitions=min(count, job.output_partitions)) if gains else job
                self._refuse_incompatible_output(few, topic, client)

    def refuse_used(self, job: JobDefinition) -> None:
        """Also checks an existing topic of dead letters.

        Raises: TopicError(SAME_TOPIC, OUTPUT_TOPIC_MISMATCH, OUTPUT_LOSES_RECORDS).
        """
        self._refuse_same(job)
        client = admin(self.kafka)  # one for all: to connect takes longer than the rest
        if self.parks and partitions_of(self.kafka, job.dead_letters, client=client) is not None:
            self._refuse_incompatible(client, job.dead_letters, PARTITIONS, self.limits.message_bytes)
        for topic in self._outputs(job):
            if partitions_of(self.kafka, topic, client=client) is not None:
                self._refuse_incompatible_output(job, topic, client)
                self._refuse_filled(job, topic, client)

    def _refuse_filled(self, job: JobDefinition, topic: str, client: AdminClient) -> None:
        filled = _filled(self.kafka, topic, client)
        if filled is not None:
            raise TopicError(
                Code.OUTPUT_TOPIC_MISMATCH,
                where=f"{topic}-{filled}",
                found=f"records in the {'output' if topic == job.output else 'barrier'} topic "
                f"of the new job {job.name}",
                expected="an empty topic",
                next_step="name another topic; if a service that lost its state filled it, `backfill rebuild`",
            )

    def open(self, job: JobDefinition) -> None:
        """Make its topics.

        Raises: TopicError(SAME_TOPIC, TOPIC_NOT_CREATED, OUTPUT_TOPIC_MISMATCH, OUTPUT_LOSES_RECORDS).
        """
        self._refuse_same(job)
        client = admin(self.kafka)
        for topic, config in self._outputs(job).items():
            count = partitions_of(self.kafka, topic, client=client)
            is_new = count is None
            if (count or 0) < job.output_partitions and (is_new or job.parts_are_partitions):
                create_topic(
                    self.kafka,
                    topic,
                    job.output_partitions,
                    config=config,
                    replication_factor=job.replication_factor,
                    gains=job.parts_are_partitions,
                    client=client,
                )
            if is_new or _filled(self.kafka, topic, client) is None:
                self._refuse_incompatible_output(job, topic, client)
        if self.parks:
            self.open_letters(job, client)

    def _outputs(self, job: JobDefinition) -> dict[str, dict[str, str]]:
        """The topics of its output, with what they are made with."""
        outputs = {job.output: {**_taking(topic_bytes(job, self.limits)), **dict(job.topic_config)}}
        if job.barrier_topic is not None:
            size = max(self._barrier_bytes(job), KAFKA_MESSAGE_BYTES)
            outputs[job.barrier_topic] = {**_taking(size), **BARRIER_TOPIC}
        return outputs

    def record_bytes(self, job: JobDefinition) -> int | None:
        """By the topic's `max.message.bytes`; None without the right to read it, or if the topic is gone."""
        try:
            settings = known_settings(self.kafka, job.output)
        except TopicError:  # lanes find it, and raise the error for an output
            return None
        return None if settings is None else record_bytes(int(settings["max.message.bytes"]))

    def _barrier_bytes(self, job: JobDefinition) -> int:
        columns = () if job.scan.reads_upstream else self.key_columns
        return barrier_topic_bytes(job, columns, self.limits)

    def open_letters(self, job: JobDefinition, client: AdminClient | None = None) -> None:
        """Make the topic for a job's dead letters if it is not there.

        Raises: TopicError(TOPIC_NOT_CREATED, OUTPUT_TOPIC_MISMATCH).
        """
        client = admin(self.kafka) if client is None else client
        create_topic(
            self.kafka,
            job.dead_letters,
            PARTITIONS,
            config=_taking(self.limits.message_bytes),
            replication_factor=job.replication_factor,
            client=client,
        )
        self._refuse_incompatible(client, job.dead_letters, PARTITIONS, self.limits.message_bytes)

    def _refuse_same(self, job: JobDefinition) -> None:
        if taken := self.reserved.intersection(job.topics):
            raise TopicError(
                Code.SAME_TOPIC,
                where=f"job {job.name}",
                found=f"output {min(taken)!r}, which is the upstream or a topic beside it",
            )

    def _refuse_incompatible_output(self, job: JobDefinition, topic: str, client: AdminClient) -> None:
        may_compact = topic == job.output and job.may_compact
        least = self._barrier_bytes(job) if topic == job.barrier_topic else Limits().message_bytes
        settings = self._refuse_incompatible(client, topic, job.output_partitions, least, may_compact)
        if topic == job.output:
            self._warn_of_less(job, int(settings["max.message.bytes"]))
        losing = {key: settings[key] for key in RETENTION_KEYS if is_finite(settings[key])}
        is_allowed = job.allow_retention and topic == job.output
        if "delete" in settings["cleanup.policy"] and losing and not is_allowed:
            raise TopicError(
                Code.OUTPUT_LOSES_RECORDS,
                where=topic,
                found=", ".join(f"{key}={value}" for key, value in losing.items()),
            )

    def _refuse_incompatible(
        self, client: AdminClient, topic: str, partitions: int, message_bytes: int, may_compact: bool = False
    ) -> dict[str, str]:
        """Check that a topic has as many partitions as its job, and takes records of `message_bytes`.

        Returns its settings. Raises: TopicError(TOPIC_MISSING, OUTPUT_TOPIC_MISMATCH).
        """
        count = describe_topic(self.kafka, topic, client=client).partitions
        settings = topic_settings(self.kafka, topic, client=client)
        policy, taken = settings["cleanup.policy"], int(settings["max.message.bytes"])
        is_kept = may_compact or "compact" not in policy
        if count == partitions and is_kept and taken >= message_bytes:
            return settings
        raise TopicError(
            Code.OUTPUT_TOPIC_MISMATCH,
            where=topic,
            found=f"{count} partitions, cleanup.policy={policy}, max.message.bytes={taken}",
            partitions=partitions,
            size=message_bytes,
        )

    def _warn_of_less(self, job: JobDefinition, taken: int) -> None:
        """Warn of an output whose limit is below the longest record; its job pauses at a row that is longer."""
        needed = topic_bytes(job, self.limits)
        if taken < needed:
            log.warning(
                "output_takes_less",
                job=job.name,
                topic=job.output,
                code=Code.OUTPUT_TOPIC_MISMATCH,
                found=f"max.message.bytes={taken}",
                expected=f"{needed}, as its form and limits.record_bytes may need",
                next_step="raise it, or see docs/outputs.md for what becomes of longer records",
            )


def _taking(message_bytes: int) -> dict[str, str]:
    return {"max.message.bytes": str(max(message_bytes, KAFKA_MESSAGE_BYTES))}


def _filled(kafka: KafkaSettings, topic: str, client: AdminClient) -> int | None:
    """The first partition with committed or undecided records, None without one.

    Aborted records do not count: a service that is restored from before its first batch for a job finds some.
    """
    marks = watermarks(kafka, topic, client=client)
    held = [number for number, each in enumerate(marks) if each.high > 0]
    if not held:
        return None
    with RangeReader(kafka) as reader:
        looks = reader.look_back(topic, held)
    for number in held:
        undecided = marks[number].stable < marks[number].high
        if undecided or marks[number].earliest > 0 or looks[number].message is not None:
            return number
    return None


@dataclass(frozen=True, slots=True)
class TableLetters:
    """Dead letters of an upstream topic without an open job: `write` is a `WriteEarlyLetters`.

    No lane has a transaction then that they could be part of. So the driver writes them, when the plan that parks their
    records is in the journal and before any effect of it, and writes each location once: the letters in the topic are
    read after every earlier writer is fenced. Letters of two services on one upstream are in one topic, each once.
    """

    kafka: KafkaSettings
    upstream: str
    limits: Limits
    read_letters: ReadLetters

    @property
    def topic(self) -> str:
        return f"{self.upstream}{DEAD_LETTERS_SUFFIX}"

    def write(self, parked: Sequence[Parked], writer_id: str) -> None:
        """Write those that are not in the topic yet; see `WriteEarlyLetters`."""
        create_topic(self.kafka, self.topic, PARTITIONS, config=_taking(self.limits.message_bytes))
        with open_kafka_writer(self.kafka, writer_id, TRANSACTION_TIMEOUT_MS) as writer:
            missing = missing_letters(self.read_letters, parked, self._places(), self.upstream)
            if missing:
                with writer.transaction():
                    for letter in missing:
                        writer.letter_to(self.topic, letter)

    def _places(self) -> set[str]:
        with RangeReader(self.kafka) as reader:
            marks = reader.await_stable(self.topic, timeout_s=kafka_reader.UNDECIDED_S)
            ranges = {partition: (each.earliest, each.stable) for partition, each in enumerate(marks)}
            found = (
                header_of(each, PLACE_HEADER) for chunk in reader.read(self.topic, ranges) for each in chunk
            )
            return {place.decode("utf-8", "replace") for place in found if place is not None}
