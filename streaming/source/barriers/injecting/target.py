"""Topics of an injector's barriers, for writing and for finding the last one: the data, or a separate topic.

The last barrier is mostly near the end of each partition, and a short look back finds it. A topic without one, or one
whose injector was away for hours, has millions of records behind it: for those there is a search that does not handle
records one by one, Spark's for a service. It goes back from the end in windows until every partition has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, Self

import structlog
from confluent_kafka import KafkaError, Message, Producer

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.errors import Code, InputError, TopicError
from schemas.json.barriers import encode_beside
from schemas.records import BARRIER_HEADER, Barrier, RecordId
from schemas.settings.job_keys import BARRIER_TOPIC
from schemas.topics import UpstreamTopics
from state.values.aligned import padded
from streaming.core.clocks import TokenBucket
from streaming.kafka.barriers import FoundBeside, barrier_in, beside_barrier_in, is_marked
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.kafka.topics import create_topic, require_topic, stable_offsets_of
from streaming.runtime.timing import monotonic_ms

_NEAR_RECORDS, _NEAR_BYTES = 400_000, 256 << 20
"""Limits for all partitions together: a reader in Python takes a second for them, and Spark's first search five."""
_RECORDS_A_PARTITION, _BYTES_A_PARTITION = 10_000, 1 << 20
"""Further limits for each partition: the time that Spark takes to open a consumer for it."""
_WINDOW_RECORDS = 4_000_000
"""Records of all partitions together, in one call of a search."""
BarrierSearch = Callable[[Sequence[int], Sequence[int]], Iterable[tuple[int, Barrier]]]
"""The barriers of [first[p], end[p]) of every partition p, each with its partition, in offset order within one."""

Ends = Callable[[], tuple[int, ...]]
"""The exclusive end of a barrier's interval in each partition of the data, once its transaction is committed."""

_log = structlog.get_logger(__name__)


class BarrierTarget(Protocol):
    """The topic of one injector's barriers, used by the thread that injects. It may remember the result of `last`."""

    topics: UpstreamTopics

    def open(self, kafka: KafkaSettings) -> int:
        """Check or create the topics; returns their number of partitions. Raises: TopicError, EnvironmentProblem."""

    def last(self, reader: RangeReader, partitions: int) -> Barrier | None:
        """The last barrier, when no transaction is open that may hold one.

        Raises: TopicError: PARTITIONS_CHANGED, the topic has fewer partitions than the barrier went to. InputError:
        BARRIER_DISAGREE, partitions end with different barriers; as `barrier_in`.
        """

    def last_near(self, reader: RangeReader) -> Barrier | None:
        """The last barrier of partition 0 unless it is far from the end; asked for before `last`."""

    def send(self, producer: Producer, barrier: Barrier) -> Ends:
        """Queue the barrier's copies in a producer whose transaction is open. Raises: EnvironmentProblem."""


class DataTopicTarget(BarrierTarget):
    """Barriers in the data topic. `left_out` are marked records that are no barriers.

    Without `search` a reader reads all back to the last barrier.
    """

    def __init__(
        self,
        topic: str | UpstreamTopics,
        left_out: frozenset[RecordId] = frozenset(),
        search: BarrierSearch | None = None,
    ) -> None:
        self.topics = UpstreamTopics.of(topic) if isinstance(topic, str) else topic
        self._left_out, self._search = left_out, search

    def open(self, kafka: KafkaSettings) -> int:
        return require_topic(kafka, self.topics.data)

    def last(self, reader: RangeReader, partitions: int) -> Barrier | None:
        near: dict[str, float] = {}
        if self._search is not None:
            near = {
                "most": _NEAR_RECORDS / partitions + _RECORDS_A_PARTITION,
                "most_bytes": _NEAR_BYTES + _BYTES_A_PARTITION * partitions,
            }
        looks = self._look_back(reader, range(partitions), **near)
        found = {number: barrier for number, (barrier, _) in looks.items() if barrier is not None}
        if self._search is not None:
            unfound = {number: since for number, (_, since) in looks.items() if number not in found}
            found |= self._far(reader, unfound, self._search)
        return _agreed(self.topics.data, [found.get(number) for number in range(partitions)])

    def last_near(self, reader: RangeReader) -> Barrier | None:
        return self._look_back(reader, [0])[0][0]

    def _look_back(
        self, reader: RangeReader, partitions: Collection[int], **near: float
    ) -> dict[int, tuple[Barrier | None, int]]:
        """The last barrier of each partition, and the offset at which the search ended; `near` as of `look_back`."""

        def is_barrier(record: Message) -> bool:
            return is_marked(record) and located(record) not in self._left_out

        looks = reader.look_back(self.topics.data, partitions, is_barrier, **near)
        return {
            number: (None if message is None else barrier_in(message, beside=False), since)
            for number, (message, since) in looks.items()
        }

    def _far(self, reader: RangeReader, seen: Mapping[int, int], search: BarrierSearch) -> dict[int, Barrier]:
        """The last barriers of partitions without one behind the offset at which the near search ended."""
        topic = self.topics.data
        marks = reader.watermarks(topic)
        ends = [max(seen.get(number, 0), each.earliest) for number, each in enumerate(marks)]
        found: dict[int, Barrier] = {}
        while left := sum(end - each.earliest for end, each in zip(ends, marks, strict=True)):
            if left > _WINDOW_RECORDS:
                _log.info("looking_for_the_last_barrier", upstream=topic, records=left)
            share = min(_WINDOW_RECORDS / left, 1.0)
            firsts = [
                end - math.ceil((end - each.earliest) * share) for end, each in zip(ends, marks, strict=True)
            ]
            found |= dict(search(firsts, ends))
            ends = [
                each.earliest if number in found else first
                for number, (first, each) in enumerate(zip(firsts, marks, strict=True))
            ]
        return found

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
        refuse_incompatible_topic(kafka, self.topics, partitions)
        self._stable = stable_offsets_of(kafka, self.topics.data, partitions)
        return partitions

    def last(self, reader: RangeReader, partitions: int) -> Barrier | None:
        """The last record of each partition; where its interval ends is where the next one begins."""
        found = self._tails(reader, partitions)
        self._ends = [each.end if each else 0 for each in found]
        if self._pace is not None:  # what retention took is not read
            self._ends = [
                max(end, mark.earliest)
                for end, mark in zip(self._ends, reader.watermarks(self.topics.data), strict=False)
            ]
        return _agreed(self._topic, [each.barrier if each else None for each in found])

    def last_near(self, reader: RangeReader) -> Barrier | None:
        # It is always near the end.
        [found] = self._tails(reader, 1)
        return found.barrier if found else None

    def _tails(self, reader: RangeReader, partitions: int) -> list[FoundBeside | None]:
        looks = reader.look_back(self._topic, range(partitions), is_marked)
        return [None if look.message is None else beside_barrier_in(look.message) for look in looks.values()]

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


def _agreed(topic: str, found: Sequence[Barrier | None]) -> Barrier | None:
    """The barrier that all partitions of a topic end with that were there then; None where none has any."""
    last = max(
        (barrier for barrier in found if barrier is not None), key=lambda each: each.curr, default=None
    )
    if last is None:
        return None
    if last.partitions > len(found):
        raise TopicError(
            Code.PARTITIONS_CHANGED,
            where=topic,
            found=f"{len(found)} partitions",
            partitions=last.partitions,
            before=f"the last barrier ({last.curr}) says",
        )
    for partition, barrier in enumerate(found[: last.partitions]):
        if barrier is None or barrier.curr != last.curr:
            raise InputError(
                Code.BARRIER_DISAGREE,
                where=f"{topic}-{partition}",
                found=f"{barrier.curr if barrier else 'none'} as its last barrier",
                other=f"in another partition: {last.curr}",
            )
    return last


def target_of(topics: UpstreamTopics, pace: BarrierPace | None = None) -> BarrierTarget:
    """The target of an upstream's barriers: its data topic, or its barrier topic if it has one, by this pace."""
    return DataTopicTarget(topics) if topics.barriers is None else SeparateTopicTarget(topics, pace)


def newest_barrier(kafka: KafkaSettings, topics: UpstreamTopics) -> int:
    """The epoch of the last barrier in the first partition, aligned or not; 0 without any."""
    with RangeReader(kafka) as reader:
        barrier = target_of(topics).last_near(reader)
    return 0 if barrier is None else barrier.curr


def refuse_incompatible_topic(
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
