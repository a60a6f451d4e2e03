"""Upstreams on a real broker for the contract of barrier sources, see `upstreams`."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Message, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.json.barriers import encode_beside
from schemas.records import BARRIER_HEADER
from schemas.topics import UpstreamTopics
from state.values.aligned import AlignedBarrier
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.kafka.topics import admin, create_topic, end_offsets, stable_offsets_of
from streaming.source.barriers.in_data import Announcements, EmbeddedBarriers, InjectedBarriers
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import DataTopicTarget, SeparateTopicTarget, newest_barrier
from streaming.source.barriers.separate_topic import FollowedTopic, InjectedSeparateBarriers, SeparateBarriers
from streaming.source.barriers.source import BarrierSource
from streaming.source.kafka import UpstreamSource
from tests.contracts.upstreams import FAR, HOUR_MS, PARTITIONS, TestUpstream
from tests.kit.barriers import (
    NO_RECORDS,
)


class Kafka(TestUpstream):
    """A Kafka topic with barriers of its owner, and Spark to look through it."""

    def __init__(self, bootstrap: str, topic: str, spark: Callable[[], SparkSession]) -> None:
        self.kafka, self.topic = KafkaSettings(bootstrap), topic
        self.upstream = UpstreamSource(spark, self.kafka, topic)
        self._producer = Producer(self.kafka.producer())
        self._owner = BarrierInjector(self.kafka, DataTopicTarget(topic), HOUR_MS)

    def data(self, partition: int) -> int:
        return self._send(partition, b"key", b"value")

    def _send(self, partition: int, key: bytes | None, value: bytes, header: bytes | None = None) -> int:
        sent: list[Message] = []
        headers: list[tuple[str, str | bytes | None]] = [] if header is None else [(BARRIER_HEADER, header)]
        self._producer.produce(
            self.topic,
            value,
            key,
            partition,
            headers=headers,
            on_delivery=lambda _, message: sent.append(message),
        )
        assert self._producer.flush(30) == 0
        offset = sent[0].offset()
        assert offset is not None
        return offset

    def barrier(self) -> None:
        self._owner.inject_one()

    def break_chain(self) -> None:
        for number in range(PARTITIONS):
            self._send(number, None, encode_barrier(FAR), barrier_header(FAR))

    def lose(self) -> None:
        with RangeReader(self.kafka) as reader:
            marks = reader.await_stable(self.topic, timeout_s=30)
        upto = [TopicPartition(self.topic, number, each.high) for number, each in enumerate(marks)]
        client = admin(self.kafka)  # answers come as long as it is there
        for answer in client.delete_records(upto).values():
            answer.result(30)

    def source(self) -> BarrierSource:
        return EmbeddedBarriers(self.topic, PARTITIONS, self.upstream)

    def records(self) -> DataFrame:
        with RangeReader(self.kafka) as reader:
            marks = reader.await_stable(self.topic, timeout_s=30)
        return self.upstream.range([0] * PARTITIONS, [each.stable for each in marks])

    def close(self) -> None:
        """Leave the broker."""
        self._owner.stop()


class KafkaInjected(Kafka):
    """An upstream on a broker, with barriers of the source's own injector."""

    injects = True
    is_ours, interval_ms = True, HOUR_MS
    injector: BarrierInjector

    def barrier(self) -> None:
        self.injector.inject_one()

    def break_chain(self) -> None:
        super().break_chain()
        self.injector.stop()  # it reads the topic's end again before it injects
        self.injector.inject_one()

    def hurry(self) -> None:
        self.interval_ms = 100

    def fence(self) -> None:
        self.is_ours = False
        self._owner = BarrierInjector(self.kafka, DataTopicTarget(self.topic), HOUR_MS, owner="state")
        self._owner.inject_one()

    def source(self) -> BarrierSource:
        announcements = Announcements()
        self.injector = BarrierInjector(
            self.kafka,
            DataTopicTarget(self.topic),
            self.interval_ms,
            on_barrier=announcements.put,
            is_ours=lambda: self.is_ours,
            owner="state",
        )
        return InjectedBarriers(
            self.topic,
            PARTITIONS,
            self.upstream,
            injector=self.injector,
            announcements=announcements,
            stable=stable_offsets_of(self.kafka, self.topic, PARTITIONS),
        )

    def more(self, source: BarrierSource) -> list[AlignedBarrier]:
        return super().more(source) if source.has_more else []


class KafkaBeside(Kafka):
    """A Kafka topic, and one of barriers beside it, which its owner writes."""

    in_data = False
    is_ours, interval_ms = True, HOUR_MS

    def __init__(self, bootstrap: str, topic: str, spark: Callable[[], SparkSession]) -> None:
        super().__init__(bootstrap, topic, spark)
        self._topics, self._spark = UpstreamTopics.of(topic, barriers=f"{topic}.barriers"), spark
        create_topic(self.kafka, self._topics.with_barriers, PARTITIONS)
        self._owner = self._injector()

    def _injector(self) -> BarrierInjector:
        return BarrierInjector(
            self.kafka,
            SeparateTopicTarget(self._topics),
            self.interval_ms,
            is_ours=lambda: self.is_ours,
            owner="state",
        )

    def break_chain(self) -> None:
        places = [(self.topic, number) for number in range(PARTITIONS)]
        ends = end_offsets(self.kafka, places, client=admin(self.kafka))
        for _, number in places:
            self._producer.produce(
                self._topics.with_barriers,
                encode_beside(FAR, ends[self.topic, number]),
                str(number),
                number,
                headers=[(BARRIER_HEADER, barrier_header(FAR))],
            )
        assert self._producer.flush(30) == 0

    def source(self) -> BarrierSource:
        return SeparateBarriers(self._followed(), PARTITIONS)

    def _followed(self) -> FollowedTopic:
        return FollowedTopic(self.kafka, self._topics, PARTITIONS, self._spark)

    def records(self) -> DataFrame:
        return NO_RECORDS

    def more(self, source: BarrierSource) -> list[AlignedBarrier]:
        """A source waits for what has not come."""
        found: list[AlignedBarrier] = []
        while self._has_news(source):
            found += super().more(source)
        return found

    def _has_news(self, source: BarrierSource) -> bool:
        return newest_barrier(self.kafka, self._topics) > min(
            barrier.curr if barrier else 0 for barrier, _ in source.newest()
        )


class KafkaInjectedBeside(KafkaBeside):
    """An upstream on a broker, with barriers of the source's own injector."""

    injects = True
    injector: BarrierInjector

    def barrier(self) -> None:
        self.injector.inject_one()

    def hurry(self) -> None:
        self.interval_ms = 100

    def fence(self) -> None:
        self.is_ours = False
        self._owner = BarrierInjector(self.kafka, SeparateTopicTarget(self._topics), HOUR_MS, owner="state")
        self._owner.inject_one()

    def source(self) -> BarrierSource:
        self.injector = self._injector()
        return InjectedSeparateBarriers(self._followed(), PARTITIONS, self.injector)
