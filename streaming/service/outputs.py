"""The topics that jobs write: each job's output, and the one for its dead letters, made when they are first needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.errors import Code, TopicError
from schemas.job import JobDefinition
from schemas.limits import KAFKA_MESSAGE_BYTES, Limits
from streaming.lane.dead_letters import PARTITIONS
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.topics import (
    cleanup_policy,
    create_topic,
    describe_topic,
    partitions_of,
    topic_setting,
    watermarks,
)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Makes topics, or refuses those that are there. `parks`: records at fault go to the jobs' dead letters."""

    kafka: KafkaSettings
    limits: Limits
    parks: bool

    def check(self, jobs: Iterable[JobDefinition]) -> None:
        """Outputs that are there are what their jobs say. Raises: TopicError(OUTPUT_TOPIC_MISMATCH)."""
        for job in jobs:
            if partitions_of(self.kafka, job.output) is not None:
                _refuse_unfit(self.kafka, job.output, job.output_partitions, self.limits)

    def ensure(self, job: JobDefinition) -> None:
        """The topics of a job that is about to open: there, with their partitions, and the output empty.

        Raises: TopicError(OUTPUT_TOPIC_MISMATCH).
        """
        create_topic(self.kafka, job.output, job.output_partitions, config=self._topic_config())
        refuse_used_output(self.kafka, job, self.limits)
        if self.parks:
            self.ensure_letters(job)

    def ensure_letters(self, job: JobDefinition) -> None:
        """The topic for a job's dead letters. Raises: TopicError(OUTPUT_TOPIC_MISMATCH)."""
        create_topic(self.kafka, job.dead_letters, PARTITIONS, config=self._topic_config())
        _refuse_unfit(self.kafka, job.dead_letters, PARTITIONS, self.limits)

    def _topic_config(self) -> dict[str, str]:
        return {"max.message.bytes": str(max(self.limits.message_bytes, KAFKA_MESSAGE_BYTES))}


def _refuse_unfit(kafka: KafkaSettings, topic: str, partitions: int, limits: Limits) -> None:
    """Whether an output topic that is there can be one, with as many partitions as its job says, and as long records.

    Raises: TopicError(TOPIC_MISSING, OUTPUT_TOPIC_MISMATCH).
    """
    count, policy = describe_topic(kafka, topic).partitions, cleanup_policy(kafka, topic)
    taken = int(topic_setting(kafka, topic, "max.message.bytes"))
    if count == partitions and "compact" not in policy and taken >= limits.message_bytes:
        return
    raise TopicError(
        Code.OUTPUT_TOPIC_MISMATCH,
        where=topic,
        found=f"{count} partitions, cleanup.policy={policy}, max.message.bytes={taken}",
        expected=f"{partitions} partitions, no compaction (it would take barriers and changes out), "
        f"and at least {limits.message_bytes} bytes a message",
        next_step="name another topic, delete this one, or declare the count that it has",
    )


def refuse_used_output(kafka: KafkaSettings, job: JobDefinition, limits: Limits) -> None:
    """Whether the output topic of a job that is to open is fit for it and empty, if it is there.

    Raises: TopicError(OUTPUT_TOPIC_MISMATCH).
    """
    if partitions_of(kafka, job.output) is None:
        return
    _refuse_unfit(kafka, job.output, job.output_partitions, limits)
    filled = [number for number, marks in enumerate(watermarks(kafka, job.output)) if marks.high > 0]
    if filled:
        raise TopicError(
            Code.OUTPUT_TOPIC_MISMATCH,
            where=f"{job.output}-{filled[0]}",
            found=f"records in the output topic of the new job {job.name}",
            expected="an empty topic",
            next_step="name another topic, or delete this one if nobody needs it",
        )
