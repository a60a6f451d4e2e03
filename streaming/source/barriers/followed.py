"""A barrier topic on Kafka, followed from a barrier on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import structlog
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from schemas.errors import Code, TopicError
from schemas.records import BARRIER_HEADER
from schemas.topics import UpstreamTopics
from streaming.kafka.barriers import BarrierCut, FoundBeside, beside_barrier_in, delete_barriers
from streaming.kafka.clients import KafkaSettings, translate, translated
from streaming.kafka.consumer import RangeReader, header_of, located, location
from streaming.kafka.topics import stable_offsets_of
from streaming.source.barriers.beside import EmbeddedBeside, InjectedBeside
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import Beside, refuse_unfit
from streaming.source.barriers.source import BarrierSetup
from streaming.source.gaps import Gaps, refuse_lost
from streaming.source.spark_topic import SparkTopic

_FIRST_BARRIERS = 20_000
"""At most so many are returned by `behind`; those after them come from `poll`."""
_FETCH_WAIT_MS = 500
"""The broker answers a fetch as soon as there is something, else after this long."""
_POLL_RECORDS = 10_000
_log = structlog.get_logger(__name__)


class FollowedTopic:
    """A `streaming.source.barriers.beside.BarrierTopic` on Kafka. `spark()` blocks until the session is there."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topics: UpstreamTopics,
        partitions: int,
        spark: Callable[[], SparkSession],
        gaps: Gaps | None = None,
    ) -> None:
        self._gaps = Gaps() if gaps is None else gaps
        self._kafka, self._topics, self._partitions, self._spark = kafka, topics, partitions, spark
        self._next: dict[int, int] = {}
        self._trimmed = frozenset[int]()
        self._busy, self._closed = threading.Lock(), False

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._topics.with_barriers

    def require(self) -> None:
        """Raises: as `refuse_unfit`."""
        refuse_unfit(self._kafka, self._topics, self._partitions)

    def refuse_lost(self, first: Sequence[int]) -> None:
        """Raises: InputError(DATA_LOST)."""
        refuse_lost(self._kafka, self._topics.data, first, self._gaps)

    def behind(self, epoch: int) -> list[FoundBeside]:
        """As `BarrierTopic.behind`; without Spark, and each record is read at most twice."""
        barriers: list[FoundBeside] = []
        with RangeReader(self._kafka) as reader:
            marks = reader.watermarks(self.name)
            behind = [self._first_behind(reader, number, epoch) for number in range(len(marks))]
            self._next = {number: behind[number] or each.earliest for number, each in enumerate(marks)}
            self._trimmed = frozenset(
                number for number, each in enumerate(marks) if each.earliest and behind[number] is None
            )
            if epoch and self._trimmed:
                _log.warning("barriers_deleted", topic=self.name, behind=epoch, partitions=len(self._trimmed))
            ranges = {number: (self._next[number], each.stable) for number, each in enumerate(marks)}
            for chunk in reader.read(self.name, ranges):
                barriers += found_beside(chunk)
                self._next |= _next_offsets(chunk)
                if len(barriers) >= _FIRST_BARRIERS:
                    break
        return barriers

    def _first_behind(self, reader: RangeReader, partition: int, epoch: int) -> int | None:
        """The offset behind the last barrier that is not newer than `epoch`; None if the partition has none."""

        def is_known(record: Message) -> bool:
            header = header_of(record, BARRIER_HEADER)
            return header is not None and header.isdigit() and int(header) <= epoch

        known = reader.last(self.name, partition, is_known) if epoch else None
        return None if known is None else located(known)[1] + 1

    @cached_property
    def _consumer(self) -> Consumer:
        over = {"enable.partition.eof": False, "fetch.wait.max.ms": _FETCH_WAIT_MS}
        consumer = Consumer(self._kafka.consumer(**over))
        with translated(self._kafka, what=self.name):
            consumer.list_topics(self.name, timeout=self._kafka.wait_s)
            consumer.assign([TopicPartition(self.name, *place) for place in self._next.items()])
        return consumer

    def poll(self, timeout_s: float) -> list[FoundBeside]:
        """As `BarrierTopic.poll`; nothing once it is closed."""
        with self._busy:
            if self._closed:
                return []
            first = self._consumer.poll(timeout_s)
            if first is None:
                return []
            records = [first, *self._consumer.consume(_POLL_RECORDS, 0)]
        return found_beside([each for each in records if self._is_record(each)])

    @property
    def trimmed(self) -> frozenset[int]:
        """As `BarrierTopic.trimmed`."""
        return self._trimmed

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            raise TopicError(
                Code.BARRIER_STALLED,
                where=location(message) if message.topic() else self.name,
                found="barriers that their owner deleted before they were read here",
                expected="a reader that keeps up with barriers_keep",
                next_step="nothing: it goes on with the oldest barrier that is there",
            )
        if not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
            raise translate(error, self._kafka, what=location(message) if message.topic() else self.name)
        return False

    def stream(self) -> DataFrame:
        """As `BarrierTopic.stream`."""
        first = [self._next[number] for number in range(self._partitions)]
        return SparkTopic(self._spark, self._kafka, self.name, headers=False).stream(first)

    def stable(self) -> Sequence[int]:
        """As `BarrierTopic.stable`; one round trip."""
        return self._stable_offsets()

    def delete(self, cut: BarrierCut) -> int:
        """As `BarrierTopic.delete`."""
        return delete_barriers(self._kafka, self.name, cut)

    @cached_property
    def _stable_offsets(self) -> Callable[[], tuple[int, ...]]:
        return stable_offsets_of(self._kafka, self._topics.data, self._partitions)

    def close(self) -> None:
        """As `BarrierTopic.close`; waits for a `poll` under way."""
        with self._busy:
            if not self._closed and "_consumer" in self.__dict__:
                self._consumer.close()
            self._closed = True


def found_beside(records: Sequence[Message]) -> list[FoundBeside]:
    """The barriers among the records of a barrier topic. Raises: as `decode_beside`."""
    return [found for record in records if (found := beside_barrier_in(record)) is not None]


def _next_offsets(chunk: Sequence[Message]) -> Mapping[int, int]:
    """Behind the records of a chunk, in which those of a partition are in order."""
    return {partition: offset + 1 for partition, offset in map(located, chunk)}


def embedded(setup: BarrierSetup) -> EmbeddedBeside:
    """The source of barriers that another process writes to a Kafka topic beside the data."""
    return EmbeddedBeside(_followed(setup), setup.partitions, begins=setup.begins)


def injected(setup: BarrierSetup) -> InjectedBeside:
    """The source of barriers that the service's own injector writes to a Kafka topic beside the data."""
    injector = BarrierInjector(
        setup.kafka, Beside(setup.topics), setup.interval_ms, is_ours=setup.is_ours, owner=setup.owner
    )
    return InjectedBeside(_followed(setup), setup.partitions, injector, begins=setup.begins)


def _followed(setup: BarrierSetup) -> FollowedTopic:
    return FollowedTopic(setup.kafka, setup.topics, setup.partitions, setup.spark, setup.gaps)
