"""Barriers in a separate topic, each with the end of its interval in the data.

The data is not searched. The barrier topic is followed by a consumer of its own, so a barrier is known milliseconds
after its commit; Spark's stream of that topic only triggers micro-batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property

import structlog
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from schemas.epoch import NO_EPOCH
from schemas.errors import Code, TopicError
from schemas.records import BARRIER_HEADER
from schemas.topics import UpstreamTopics
from state.values.aligned import AlignedBarrier
from streaming.core.alignment import Aligner
from streaming.kafka.barriers import BarrierCut, FoundBeside, beside_barrier_in, delete_barriers
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located, location, stable_pauses_s
from streaming.kafka.errors import OUT_OF_RANGE, translate, translated
from streaming.kafka.topics import stable_offsets_of, watermarks
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import refuse_incompatible_topic
from streaming.source.barriers.source import BarrierSource, Newest, WithInjector
from streaming.source.kafka import UpstreamSource
from streaming.source.retention import Gaps

_POLL_S = 0.2
_FIRST_BARRIERS = 20_000
"""The maximum number of barriers that `behind` returns; those after them come from `poll`."""
_FETCH_WAIT_MS = 500
"""The broker answers a fetch as soon as there is something, else after this long."""
_POLL_RECORDS = 10_000
_log = structlog.get_logger(__name__)


class FollowedTopic:
    """A barrier topic, followed from a barrier on. `spark()` blocks until the session is there.

    `partitions` are those of the data. The topic has at least as many as its last handled barrier, `least`: its owner
    may add the others later.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topics: UpstreamTopics,
        partitions: int,
        spark: Callable[[], SparkSession],
        gaps: Gaps | None = None,
        least: int | None = None,
    ) -> None:
        self._gaps, self._least = Gaps() if gaps is None else gaps, least
        self._kafka, self._topics, self._partitions, self._spark = kafka, topics, partitions, spark
        self._next: dict[int, int] = {}
        self._trimmed = frozenset[int]()
        self._busy, self._closed = threading.Lock(), False

    @property
    def name(self) -> str:
        return self._topics.with_barriers

    def require(self) -> None:
        """Raises: TopicError: TOPIC_MISSING, or BARRIER_TOPIC_MISMATCH for one that does not fit the data."""
        refuse_incompatible_topic(self._kafka, self._topics, self._partitions, self._least)

    def refuse_lost(self, first: Sequence[int]) -> None:
        """Raises: InputError(DATA_LOST) when the data from these offsets on is not there."""
        self._gaps.refuse_lost(self._topics.data, watermarks(self._kafka, self._topics.data), first)

    def behind(self, epoch: int) -> list[FoundBeside]:
        """The barriers behind this epoch that are there now, maybe not all; `poll` continues from there.

        Reads without Spark, each record at most twice.
        Raises: as `decode_beside`; EnvironmentProblem; TopicError(TOPIC_MISSING).
        """
        barriers: list[FoundBeside] = []
        with RangeReader(self._kafka) as reader:
            marks = reader.watermarks(self.name)[: self._partitions]
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
                self._next |= {partition: offset + 1 for partition, offset in map(located, chunk)}
                if len(barriers) >= _FIRST_BARRIERS:
                    break
        return barriers

    def _first_behind(self, reader: RangeReader, partition: int, epoch: int) -> int | None:
        """The offset behind the last barrier up to `epoch`; None if the partition has none."""

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
        """The next barriers, in offset order within a partition; none when nothing comes in time, or once closed.

        Raises: as `behind`; TopicError(BARRIER_STALLED) if they were deleted, and a new start goes on behind them.
        """
        with self._busy:
            if self._closed:
                return []
            first = self._consumer.poll(timeout_s)
            if first is None:
                return []
            records = [first, *self._consumer.consume(_POLL_RECORDS, 0)]
        return found_beside([each for each in records if self._is_record(each)])

    @property
    def trimmed(self) -> Collection[int]:
        """Partitions whose first barrier may lie later than right behind that epoch, as older ones were deleted."""
        return self._trimmed

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() in OUT_OF_RANGE:
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
        """Spark's stream of the topic, from the end of `behind` on."""
        first = [self._next[number] for number in range(len(self._next))]
        return UpstreamSource(self._spark, self._kafka, self.name, holds_barriers=False).stream(first)

    def stable(self) -> Sequence[int]:
        """The last stable offset of each partition of the data: committed readers get that far. One round trip."""
        return self._stable_offsets()

    def delete(self, cut: BarrierCut) -> int:
        """Delete barriers as far as the cut allows; only for the service that writes the topic. Returns the number."""
        return delete_barriers(self._kafka, self.name, cut)

    @cached_property
    def _stable_offsets(self) -> Callable[[], tuple[int, ...]]:
        return stable_offsets_of(self._kafka, self._topics.data, self._partitions)

    def close(self) -> None:
        """Leave the broker, after a `poll` under way; idempotent."""
        with self._busy:
            if not self._closed and "_consumer" in self.__dict__:
                self._consumer.close()
            self._closed = True


def found_beside(records: Sequence[Message]) -> list[FoundBeside]:
    """The barriers among the records of a barrier topic. Raises: as `decode_beside`."""
    return [found for record in records if (found := beside_barrier_in(record)) is not None]


class SeparateBarriers(BarrierSource):
    """Barriers that another process writes to a barrier topic."""

    def __init__(self, topic: FollowedTopic, partitions: int, *, begins: tuple[int, ...] = ()) -> None:
        self._topic, self._partitions, self._begins = topic, partitions, begins
        self._aligner = self._make_aligner(None)
        self._aligned: list[AlignedBarrier] = []
        self._closed = threading.Event()

    def _make_aligner(self, position: AlignedBarrier | None) -> Aligner:
        return Aligner(self._topic.name, self._partitions, position, in_data=False, begins=self._begins)

    def start(self) -> None:
        """Raises: as `FollowedTopic.require`."""
        self._topic.require()

    def begin(self, position: AlignedBarrier | None, first: Sequence[int]) -> list[AlignedBarrier]:
        self._topic.refuse_lost(first)
        self._aligner = self._make_aligner(position)
        found = self._topic.behind(position.epoch if position else NO_EPOCH)
        self._aligner.mark_trimmed(self._topic.trimmed)
        self._feed(found)
        return self._take_readable()

    def stream(self) -> DataFrame:
        return self._topic.stream()

    def aligned(self, records: DataFrame) -> list[AlignedBarrier]:
        # The records only trigger a micro-batch.
        while not self._closed.is_set():
            self._feed(self._topic.poll(0 if self._aligned else _POLL_S))
            if self._aligned:
                return self._await_readable()
        return []

    @property
    def has_more(self) -> bool:
        return bool(self._aligned)

    @property
    def waits(self) -> bool:
        return True

    @property
    def untaken(self) -> int:
        return len(self._aligned)

    def newest(self) -> Newest:
        return self._aligner.newest()

    def wakeup(self) -> None:
        self._closed.set()

    def close(self) -> None:
        self.wakeup()
        self._topic.close()

    def _feed(self, barriers: Iterable[FoundBeside]) -> None:
        for found in barriers:
            self._aligner.feed_beside(found.partition, found.offset, found.barrier, found.end)
        self._aligned += self._aligner.take_aligned()

    def _await_readable(self) -> list[AlignedBarrier]:
        """Wait until committed readers reach a barrier's ends, which its writer need not have waited for."""
        pauses_s = stable_pauses_s()
        while not (readable := self._take_readable()):
            if self._closed.wait(next(pauses_s)):
                return []
        return readable

    def _take_readable(self) -> list[AlignedBarrier]:
        """The aligned barriers whose data can be read."""
        stable = self._topic.stable() if self._aligned else ()
        readable = [
            each
            for each in self._aligned
            if all(end <= upto for end, upto in zip(each.ends, stable, strict=True))
        ]
        del self._aligned[: len(readable)]
        return readable


class InjectedSeparateBarriers(WithInjector, SeparateBarriers):
    """Barriers that this service's injector writes to a barrier topic that it makes; it is followed like any other."""

    def __init__(
        self,
        topic: FollowedTopic,
        partitions: int,
        injector: BarrierInjector,
        *,
        begins: tuple[int, ...] = (),
    ) -> None:
        super().__init__(topic, partitions, begins=begins)
        self._injector = injector

    def delete_barriers(self, cut: BarrierCut) -> int:
        return self._topic.delete(cut)
