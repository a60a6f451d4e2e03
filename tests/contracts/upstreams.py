"""Upstreams for the contract of barrier sources: each writes data and barriers, and makes sources that find them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from confluent_kafka import Message, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.json.barriers import encode_beside
from schemas.records import BARRIER_HEADER
from schemas.topics import UpstreamTopics
from state.values.plan import AlignedBarrier
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.kafka.topics import admin, create_topic, end_offsets, stable_offsets
from streaming.source.barriers.announced import Announcements
from streaming.source.barriers.beside import EmbeddedBeside, InjectedBeside
from streaming.source.barriers.followed import FollowedTopic
from streaming.source.barriers.in_data import EmbeddedBarriers, InjectedBarriers
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import Beside, InData
from streaming.source.barriers.last import newest_barrier
from streaming.source.barriers.source import BarrierSource
from streaming.source.kafka import UpstreamSource
from tests.kit.barriers import (
    NO_RECORDS,
    BesideTopic,
    MemoryInjector,
    MemoryRecords,
    barrier,
)
from tests.kit.real import await_condition
from tests.kit.tables import table

PARTITIONS = 2
HOUR_MS = 3_600_000
FAR = barrier(1 << 40, PARTITIONS)
"""Follows none of a test's barriers, those of the wall clock neither."""


class TestUpstream(ABC):
    """One upstream. `injects`: a source writes its barriers, one at its start."""

    __test__ = False
    in_data, injects = True, False

    @abstractmethod
    def data(self, partition: int) -> int:
        """Write a record; its offset."""

    @abstractmethod
    def barrier(self) -> None:
        """Write the next barrier behind all data."""

    @abstractmethod
    def break_chain(self) -> None:
        """Have somebody write a barrier that follows none, and then a good one where that is needed to notice it."""

    @abstractmethod
    def lose(self) -> None:
        """Remove every record from the topics."""

    @abstractmethod
    def source(self) -> BarrierSource:
        """A new one, not started."""

    def hurry(self) -> None:  # noqa: B027  # some have no hurry
        """From here on sources write barriers by themselves, every 100 ms."""

    def fence(self) -> None:
        """Let another instance write the barriers instead of the newest source."""
        raise NotImplementedError

    @abstractmethod
    def records(self) -> DataFrame:
        """A micro-batch that holds everything."""

    def more(self, source: BarrierSource) -> list[AlignedBarrier]:
        """What a source gives for what has come."""
        found = source.aligned(self.records())
        while source.has_more:
            found += source.aligned(self.records())
        return found


class Memory(TestUpstream):
    """Markers in a topic in memory, written by its owner."""

    def __init__(self) -> None:
        self.topic = MemoryRecords(PARTITIONS, seen_by_look=3)
        self._written = 0

    def data(self, partition: int) -> int:
        return self.topic.write(partition)

    def barrier(self) -> None:
        self._written += 1
        self.topic.mark(barrier(self._written, PARTITIONS))

    def break_chain(self) -> None:
        self.topic.mark(FAR)

    def lose(self) -> None:
        self.topic.earliest = max(self.topic.ends)

    def source(self) -> BarrierSource:
        return EmbeddedBarriers("up", PARTITIONS, self.topic)

    def records(self) -> DataFrame:
        return self.topic.range([0] * PARTITIONS, self.topic.ends)


class MemoryInjected(Memory):
    """The same, written and announced by the source's own injector."""

    injects = True
    injector: MemoryInjector

    def barrier(self) -> None:
        self.injector.inject()

    def break_chain(self) -> None:
        super().break_chain()
        self.injector.inject()

    def fence(self) -> None:
        self.injector.fence()

    def source(self) -> BarrierSource:
        announcements = Announcements()
        self.injector = MemoryInjector(self.topic, announcements.put)
        return InjectedBarriers(
            "up",
            PARTITIONS,
            self.topic,
            injector=self.injector,
            announcements=announcements,
            stable=lambda: self.topic.ends,
        )

    def more(self, source: BarrierSource) -> list[AlignedBarrier]:
        return super().more(source) if source.has_more else []


class MemoryBeside(TestUpstream):
    """Barriers in a topic of their own, in memory, written by its owner."""

    in_data = False

    def __init__(self) -> None:
        self.topic = BesideTopic(PARTITIONS)

    def data(self, partition: int) -> int:
        return self.topic.write(partition)

    def barrier(self) -> None:
        self.topic.add(barrier(len(self.topic.barriers) + 1, PARTITIONS))

    def break_chain(self) -> None:
        self.topic.add(FAR)

    def lose(self) -> None:
        self.topic.earliest = max(self.topic.ends)

    def source(self) -> BarrierSource:
        return EmbeddedBeside(self.topic, PARTITIONS)

    def records(self) -> DataFrame:
        return NO_RECORDS

    def more(self, source: BarrierSource) -> list[AlignedBarrier]:
        return super().more(source) if self.topic.polled < len(self.topic.barriers) else []


class Kafka(TestUpstream):
    """A Kafka topic with barriers of its owner, and Spark to look through it."""

    def __init__(self, bootstrap: str, topic: str, spark: Callable[[], SparkSession]) -> None:
        self.kafka, self.topic = KafkaSettings(bootstrap), topic
        self.upstream = UpstreamSource(spark, self.kafka, topic, table())
        self._producer = Producer(self.kafka.producer())
        self._owner = BarrierInjector(self.kafka, InData(topic), HOUR_MS)

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
    """The same, with barriers of the source's own injector."""

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
        self._owner = BarrierInjector(self.kafka, InData(self.topic), HOUR_MS, owner="state")
        self._owner.inject_one()

    def source(self) -> BarrierSource:
        announcements = Announcements()
        self.injector = BarrierInjector(
            self.kafka,
            InData(self.topic),
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
            stable=partial(stable_offsets, self.kafka, self.topic, PARTITIONS, client=admin(self.kafka)),
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
            self.kafka, Beside(self._topics), self.interval_ms, is_ours=lambda: self.is_ours, owner="state"
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
        return EmbeddedBeside(self._followed(), PARTITIONS)

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
        return newest_barrier(self.kafka, self._topics) > max(
            barrier.curr if barrier else 0 for barrier, _ in source.newest()
        )


class KafkaInjectedBeside(KafkaBeside):
    """The same, with barriers of the source's own injector."""

    injects = True
    injector: BarrierInjector

    def barrier(self) -> None:
        self.injector.inject_one()

    def hurry(self) -> None:
        self.interval_ms = 100

    def fence(self) -> None:
        self.is_ours = False
        self._owner = BarrierInjector(self.kafka, Beside(self._topics), HOUR_MS, owner="state")
        self._owner.inject_one()

    def source(self) -> BarrierSource:
        self.injector = self._injector()
        return InjectedBeside(self._followed(), PARTITIONS, self.injector)


def await_end(source: BarrierSource) -> Exception:
    """Wait for what `check` raises."""
    raised: list[Exception] = []

    def ended() -> bool:
        try:
            source.check()
        except Exception as error:  # noqa: BLE001  # the test looks at it
            raised.append(error)
        return bool(raised)

    await_condition(ended, "the end of the source", limit_s=30)
    return raised[0]
