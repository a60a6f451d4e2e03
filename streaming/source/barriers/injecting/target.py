"""Topics of an injector's barriers, for writing and for finding the last one: the data, or a separate topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self

from confluent_kafka import KafkaError, Message, Producer

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.errors import Code, TopicError
from schemas.json.barriers import encode_beside
from schemas.records import BARRIER_HEADER, Barrier, RecordId
from schemas.settings.job_keys import BARRIER_TOPIC
from schemas.topics import UpstreamTopics
from state.values.aligned import padded
from streaming.core.clocks import TokenBucket
from streaming.kafka.barriers import FoundBeside, beside_barrier_in
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.kafka.topics import create_topic, require_topic, stable_offsets_of
from streaming.runtime.timing import monotonic_ms
from streaming.source.barriers.found import BarrierLookup, BarrierSearch, agreed

Ends = Callable[[], tuple[int, ...]]
"""The exclusive end of a barrier's interval in each partition of the data, once its transaction is committed."""


class BarrierTarget(Protocol):
    """The topic of one injector's barriers, used by the thread that injects. It may remember the result of `last`."""

    topics: UpstreamTopics

    def open(self, kafka: KafkaSettings) -> int:
        """Check or create the topics; returns their number of partitions. Raises: TopicError, EnvironmentProblem."""

    def last(self, reader: RangeReader, partitions: int) -> Barrier | None:
        """The last barrier, when no transaction is open that may hold one. Raises: as `BarrierLookup.last`."""

    def last_near(self, reader: RangeReader) -> Barrier | None:
        """The last barrier of partition 0 unless it is far from the end; asked for before `last`."""

    def send(self, producer: Producer, barrier: Barrier) -> Ends:
        """Queue the barrier's copies in a producer whose transaction is open. Raises: EnvironmentProblem."""


class DataTopicTarget(BarrierTarget):
    """Barriers in the data topic. `left_out` are marked records that are no barriers, see `BarrierLookup`."""

    def __init__(
        self,
        topic: str | UpstreamTopics,
        left_out: frozenset[RecordId] = frozenset(),
        search: BarrierSearch | None = None,
    ) -> None:
        self.topics = UpstreamTopics.of(topic) if isinstance(topic, str) else topic
        self._lookup = BarrierLookup(self.topics, left_out, search)

    def open(self, kafka: KafkaSettings) -> int:
        return require_topic(kafka, self.topics.data)

    def last(self, reader: RangeReader, partitions: int) -> Barrier | None:
        return self._lookup.last(reader, partitions)

    def last_near(self, reader: RangeReader) -> Barrier | None:
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


class BarrierPace:
    """The ends of barriers that go on by so many records a second at most, all partitions together.

    Between two barriers twice their interval counts at most: after an hour without a service the limit holds as well.
    """

    def __init__(
        self,
        rate: int,
        interval_ms: int,
        clock_ms: Callable[[], int] = monotonic_ms,
        *,
        first: Sequence[int] = (),
    ) -> None:
        self._rate, self._clock_ms, self._first = rate, clock_ms, first
        self._bucket = TokenBucket(max(2 * interval_ms, TokenBucket().longest_fill_ms))

    @classmethod
    def of(cls, read_limit: int | None, interval_ms: int, first: Sequence[int] = ()) -> Self | None:
        """The pace of a configuration; None without a limit. Nothing before the offsets `first` is read."""
        return None if read_limit is None else cls(read_limit, interval_ms, first=first)

    def within(self, begins: Sequence[int], ends: Sequence[int]) -> tuple[int, ...]:
        """Ends as near to `ends` as the pace allows, where the last ones were `begins`.

        Each partition may take an equal part; what one leaves of it those with more records have.
        """
        begins = [
            min(max(pair), end) for *pair, end in zip(begins, padded(self._first, begins), ends, strict=True)
        ]
        limited, left = list(ends), self._bucket.fill(self._clock_ms(), self._rate)
        by_records = sorted(range(len(ends)), key=lambda number: ends[number] - begins[number])
        for index, number in enumerate(by_records):
            taken = min(ends[number] - begins[number], left // (len(by_records) - index))
            limited[number], left = begins[number] + taken, left - taken
            self._bucket.take(taken)
        return tuple(limited)


class SeparateTopicTarget(BarrierTarget):
    """Barriers in a separate topic, which `open` creates. Of the data topic only end offsets are read."""

    def __init__(self, topics: UpstreamTopics, pace: BarrierPace | None = None) -> None:
        assert topics.barriers is not None
        self.topics, self._topic, self._pace = topics, topics.barriers, pace
        self._stable: Callable[[], Sequence[int]]
        self._ends: list[int] = []

    def open(self, kafka: KafkaSettings) -> int:
        partitions = require_topic(kafka, self.topics.data)
        create_topic(kafka, self._topic, partitions, config=BARRIER_TOPIC, gains=True)
        refuse_unfit(kafka, self.topics, partitions)
        self._stable = stable_offsets_of(kafka, self.topics.data, partitions)
        return partitions

    def last(self, reader: RangeReader, partitions: int) -> Barrier | None:
        """The last record of each partition; where its interval ends is where the next one begins."""
        found = [self._tail(reader, number) for number in range(partitions)]
        self._ends = [each.end if each else 0 for each in found]
        if self._pace is not None:  # what retention took is not read
            self._ends = [
                max(end, mark.earliest)
                for end, mark in zip(self._ends, reader.watermarks(self.topics.data), strict=False)
            ]
        return agreed(self._topic, [each.barrier if each else None for each in found])

    def last_near(self, reader: RangeReader) -> Barrier | None:
        # It is always near the end.
        found = self._tail(reader, 0)
        return found.barrier if found else None

    def _tail(self, reader: RangeReader, partition: int) -> FoundBeside | None:
        record = reader.last(
            self._topic, partition, lambda record: header_of(record, BARRIER_HEADER) is not None
        )
        return None if record is None else beside_barrier_in(record)

    def send(self, producer: Producer, barrier: Barrier) -> Ends:
        """One copy in each partition of the barrier topic. Intervals end at the data's last stable offsets now.

        With a pace they may end before.
        """
        header = barrier_header(barrier)
        ends = tuple(map(max, self._ends, self._stable()))
        if self._pace is not None:
            ends = self._pace.within(self._ends, ends)
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


def target_of(topics: UpstreamTopics, pace: BarrierPace | None = None) -> BarrierTarget:
    """The target of an upstream's barriers: its data topic, or its barrier topic if it has one, by this pace."""
    return DataTopicTarget(topics) if topics.barriers is None else SeparateTopicTarget(topics, pace)


def refuse_unfit(
    kafka: KafkaSettings, topics: UpstreamTopics, partitions: int, least: int | None = None
) -> None:
    """Check that the barrier topic has as many partitions as the data, or between that and `least`.

    Raises: TopicError(BARRIER_TOPIC_MISMATCH).
    """
    found = require_topic(kafka, topics.with_barriers)
    if not (least or partitions) <= found <= partitions:
        raise TopicError(
            Code.BARRIER_TOPIC_MISMATCH,
            where=topics.with_barriers,
            found=f"{found} partitions",
            partitions=partitions,
            topic=topics.data,
        )
