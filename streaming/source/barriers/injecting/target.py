"""Where an injector's barriers go, and where those before them are found: in the data, or in a topic of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from confluent_kafka import KafkaError, Message, Producer

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.errors import Code, TopicError
from schemas.json.barriers import encode_beside
from schemas.records import BARRIER_HEADER, Barrier, RecordId
from schemas.settings.topic_config import BARRIER_TOPIC
from schemas.topics import UpstreamTopics
from streaming.kafka.barriers import FoundBeside, beside_barrier_in
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.kafka.topics import create_topic, partitions_of, require_topic, stable_offsets_of
from streaming.source.barriers.last import BarrierLookup, BarrierSearch, agreed

Ends = Callable[[], tuple[int, ...]]
"""The exclusive end of a barrier's interval in each partition of the data, once its transaction is committed."""


class BarrierTarget(Protocol):
    """One target serves one injector, from the thread that injects; what it finds in `last` it may remember."""

    topics: UpstreamTopics

    def open(self, kafka: KafkaSettings) -> int:
        """Check or create the topics; returns their number of partitions. Raises: TopicError, EnvironmentProblem."""

    def last(self, reader: RangeReader, partitions: int) -> Barrier | None:
        """The last barrier, when no transaction is open that may hold one. Raises: as `BarrierLookup.last`."""

    def last_near(self, reader: RangeReader) -> Barrier | None:
        """The last barrier of partition 0 unless it is far from the end; asked for before `last`."""

    def send(self, producer: Producer, barrier: Barrier) -> Ends:
        """Queue the barrier's copies in a producer whose transaction is open. Raises: EnvironmentProblem."""


class InData(BarrierTarget):
    """Records of the data topic. `left_out` are records that look like barriers and are none, see `BarrierLookup`."""

    def __init__(
        self,
        topic: str | UpstreamTopics,
        left_out: frozenset[RecordId] = frozenset(),
        search: BarrierSearch | None = None,
    ) -> None:
        self.topics = UpstreamTopics.of(topic) if isinstance(topic, str) else topic
        self._lookup = BarrierLookup(self.topics, left_out, search)

    def open(self, kafka: KafkaSettings) -> int:
        """The data topic has to be there."""
        return require_topic(kafka, self.topics.data)

    def last(self, reader: RangeReader, partitions: int) -> Barrier | None:
        """Found near the ends of the partitions, or by the search."""
        return self._lookup.last(reader, partitions)

    def last_near(self, reader: RangeReader) -> Barrier | None:
        """As `BarrierLookup.last_of`."""
        return self._lookup.last_of(reader, 0)

    def send(self, producer: Producer, barrier: Barrier) -> Ends:
        """One copy in each partition of the data. An interval ends behind its copy."""
        ends: dict[int, int] = {}

        def delivered(error: KafkaError | None, copy: Message) -> None:
            if error is None:  # otherwise the commit fails
                partition, offset = located(copy)
                ends[partition] = offset + 1

        value, header = encode_barrier(barrier), barrier_header(barrier)
        for partition in range(barrier.partitions):
            producer.produce(
                self.topics.data,
                value,
                partition=partition,
                headers=[(BARRIER_HEADER, header)],
                on_delivery=delivered,
            )
        return lambda: tuple(ends[partition] for partition in range(barrier.partitions))


class Beside(BarrierTarget):
    """Records of a barrier topic, which `open` creates. Of the data topic only end offsets are read."""

    def __init__(self, topics: UpstreamTopics) -> None:
        assert topics.barriers is not None
        self.topics, self._topic = topics, topics.barriers
        self._stable: Callable[[], Sequence[int]]
        self._ends: list[int] = []

    def open(self, kafka: KafkaSettings) -> int:
        """Make the barrier topic. Raises: TopicError(TOPIC_MISSING, BARRIER_TOPIC_MISMATCH)."""
        partitions = require_topic(kafka, self.topics.data)
        if partitions_of(kafka, self._topic) is None:
            create_topic(kafka, self._topic, partitions, config=BARRIER_TOPIC)
        refuse_unfit(kafka, self.topics, partitions)
        self._stable = stable_offsets_of(kafka, self.topics.data, partitions)
        return partitions

    def last(self, reader: RangeReader, partitions: int) -> Barrier | None:
        """The last record of each partition; where its interval ends is where the next one begins."""
        found = [self._tail(reader, number) for number in range(partitions)]
        self._ends = [each.end if each else 0 for each in found]
        return agreed(self._topic, [each.barrier if each else None for each in found])

    def last_near(self, reader: RangeReader) -> Barrier | None:
        """It is always near."""
        found = self._tail(reader, 0)
        return found.barrier if found else None

    def _tail(self, reader: RangeReader, partition: int) -> FoundBeside | None:
        record = reader.last(
            self._topic, partition, lambda record: header_of(record, BARRIER_HEADER) is not None
        )
        return None if record is None else beside_barrier_in(record)

    def send(self, producer: Producer, barrier: Barrier) -> Ends:
        """One copy in each partition of the barrier topic. Intervals end at the data's last stable offsets now."""
        header = barrier_header(barrier)
        ends = tuple(map(max, self._ends, self._stable()))
        for partition, end in enumerate(ends):
            producer.produce(
                self._topic,
                encode_beside(barrier, end),
                str(partition),
                partition=partition,
                headers=[(BARRIER_HEADER, header)],
            )
        self._ends = list(ends)
        return lambda: ends


def target_of(topics: UpstreamTopics) -> BarrierTarget:
    """The target of an upstream's barriers: its data topic, or its barrier topic if it has one."""
    return InData(topics) if topics.barriers is None else Beside(topics)


def refuse_unfit(kafka: KafkaSettings, topics: UpstreamTopics, partitions: int) -> None:
    """Raises: TopicError(BARRIER_TOPIC_MISMATCH) unless the barrier topic has as many partitions as the data."""
    found = require_topic(kafka, topics.with_barriers)
    if found != partitions:
        raise TopicError(
            Code.BARRIER_TOPIC_MISMATCH,
            where=topics.with_barriers,
            found=f"{found} partitions",
            partitions=partitions,
            topic=topics.data,
        )
