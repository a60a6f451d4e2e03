"""The barriers among the records of an upstream, and the one that was injected last.

Spark's stream finds barriers among all records. At a start some thousand records behind the last batch are searched
without Spark, while its JVM comes up, so that the first batch need not wait for the stream.

The last barrier is mostly near the end of each partition, and a short look back finds it. A topic without one, or one
whose injector was away for hours, has millions of records behind it: for those there is a search that does not handle
records one by one, Spark's for a service. It goes back from the end in windows until every partition has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from confluent_kafka import Message

from schemas.avro.codec import MAX_BARRIER_BYTES, decode_barrier
from schemas.errors import Code, InputError, TopicError
from schemas.records import BARRIER_HEADER, Barrier, RecordId
from schemas.topics import UpstreamTopics
from streaming.kafka.barriers import barrier_in
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.source.retention import Gaps

_LOOK_RECORDS, _LOOK_BYTES = 200_000, 256 << 20
"""Limits of a search: about a second, less than the start of Spark."""
_NEAR_RECORDS, _NEAR_BYTES = 400_000, 256 << 20
"""Limits for all partitions together: a reader in Python takes a second for them, and Spark's first search five."""
_RECORDS_A_PARTITION, _BYTES_A_PARTITION = 10_000, 1 << 20
"""Further limits for each partition: the time that Spark takes to open a consumer for it."""
_WINDOW_RECORDS = 4_000_000
"""Records of all partitions together, in one call of a search."""
BarrierSearch = Callable[[Sequence[int], Sequence[int]], Iterable[tuple[int, Barrier]]]
"""The barriers of [first[p], end[p]) of every partition p, each with its partition, in offset order within one."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FoundBarrier:
    """A barrier and its record's partition and offset; None for a record that an operator has left out."""

    partition: int
    offset: int
    barrier: Barrier | None


@dataclass(frozen=True, slots=True)
class Marked:
    """A record with the header of a barrier. `value` may be None where `size`, in bytes, is above any barrier's.

    `ambiguous`: it has the key of a change, or several such headers.
    """

    place: RecordId
    value: bytes | None
    size: int
    header: bytes | None
    ambiguous: bool


def found_barrier(topic: str, marked: Marked, left_out: frozenset[RecordId]) -> FoundBarrier:
    """Decode a marked record as a barrier.

    Raises: InputError as `decode_barrier`, AMBIGUOUS_RECORD, and AVRO_LIMIT for one that is larger than any barrier.
    """
    place = marked.place
    if place in left_out:
        return FoundBarrier(*place, None)
    where = f"{topic}-{place[0]}@{place[1]}"
    if marked.ambiguous:
        found, record = (
            "a record that is marked as a barrier and has a key, or several marks",
            f"{place[0]}@{place[1]}",
        )
        raise InputError(Code.AMBIGUOUS_RECORD, where=where, found=found, record=record)
    if marked.size > MAX_BARRIER_BYTES:
        found, expected = f"a barrier of {marked.size} bytes", f"at most {MAX_BARRIER_BYTES}"
        raise InputError(Code.AVRO_LIMIT, where=where, found=found, expected=expected)
    return FoundBarrier(*place, decode_barrier(marked.header, marked.value, where=where))


@dataclass(frozen=True, slots=True)
class BarriersFound:
    """Barriers, in offset order within a partition, and the offset from which each partition is to be read."""

    found: list[FoundBarrier]
    next_offsets: tuple[int, ...]


def find_barriers(
    kafka: KafkaSettings,
    topic: str,
    first_offsets: Sequence[int],
    left_out: frozenset[RecordId],
    gaps: Gaps,
) -> BarriersFound:
    """Search committed records from these offsets on for barriers; ends early if there are very many.

    Raises: as `found_barrier`; EnvironmentProblem; InputError(DATA_LOST).
    """
    found: list[FoundBarrier] = []
    records = size = 0
    with RangeReader(kafka) as reader:
        all_marks = reader.watermarks(topic)
        gaps.refuse_lost(topic, all_marks, first_offsets)
        next_offsets = list(gaps.first(first_offsets))
        ends = [marks.stable for marks in all_marks]
        for chunk in reader.read(topic, dict(enumerate(zip(next_offsets, ends, strict=False)))):
            for message in chunk:
                partition, offset = located(message)
                next_offsets[partition] = offset + 1
                size += len(message)
                marked = _marked(message)
                if marked is not None:
                    found.append(found_barrier(topic, marked, left_out))
            records += len(chunk)
            if records >= _LOOK_RECORDS or size >= _LOOK_BYTES:
                break
    return BarriersFound(found, tuple(next_offsets))


def _marked(message: Message) -> Marked | None:
    headers = message.headers()
    if not headers:
        return None
    marks = [value for name, value in list(headers) if name == BARRIER_HEADER]
    if not marks:
        return None
    value, header = message.value(), marks[0]
    assert value is None or isinstance(value, bytes)
    assert header is None or isinstance(header, bytes)
    ambiguous = len(marks) > 1 or message.key() is not None
    return Marked(located(message), value, len(value or b""), header, ambiguous)


@dataclass(frozen=True, slots=True)
class BarrierLookup:
    """Finds an upstream's last barrier. `left_out` are no barriers; without `search` a reader reads all back."""

    topics: UpstreamTopics
    left_out: frozenset[RecordId] = frozenset()
    search: BarrierSearch | None = None

    @property
    def _topic(self) -> str:
        return self.topics.with_barriers

    def last(self, reader: RangeReader, partitions: int) -> Barrier | None:
        """The last barrier of the topic, None for one without any. Raises: as `agreed`; as `barrier_in`."""
        near: dict[str, float] = {}
        if self.search is not None:
            near = {
                "most": _NEAR_RECORDS / partitions + _RECORDS_A_PARTITION,
                "most_bytes": _NEAR_BYTES + _BYTES_A_PARTITION * partitions,
            }
        looks = self._look_back(reader, range(partitions), **near)
        found = {number: barrier for number, (barrier, _) in looks.items() if barrier is not None}
        if self.search is not None:
            found |= self._far(
                reader, {number: since for number, (_, since) in looks.items() if number not in found}
            )
        return agreed(self._topic, [found.get(number) for number in range(partitions)])

    def last_of(self, reader: RangeReader, partition: int) -> Barrier | None:
        """The last barrier of a partition."""
        return self._look_back(reader, [partition])[partition][0]

    def _look_back(
        self, reader: RangeReader, partitions: Collection[int], **near: float
    ) -> dict[int, tuple[Barrier | None, int]]:
        """The last barrier of each partition, and the offset at which the search ended; `near` as of `look_back`."""

        def is_barrier(record: Message) -> bool:
            return header_of(record, BARRIER_HEADER) is not None and located(record) not in self.left_out

        is_beside = self.topics.barriers is not None
        return {
            number: (None if message is None else barrier_in(message, beside=is_beside), since)
            for number, (message, since) in reader.look_back(
                self._topic, partitions, is_barrier, **near
            ).items()
        }

    def _far(self, reader: RangeReader, seen: Mapping[int, int]) -> dict[int, Barrier]:
        """The last barriers of partitions without one behind the offset at which the near search ended."""
        assert self.search is not None
        marks = reader.watermarks(self._topic)
        ends = [max(seen.get(number, 0), each.earliest) for number, each in enumerate(marks)]
        found: dict[int, Barrier] = {}
        while left := sum(end - each.earliest for end, each in zip(ends, marks, strict=True)):
            if left > _WINDOW_RECORDS:
                _log.info("looking_for_the_last_barrier", upstream=self._topic, records=left)
            share = min(_WINDOW_RECORDS / left, 1.0)
            firsts = [
                end - math.ceil((end - each.earliest) * share) for end, each in zip(ends, marks, strict=True)
            ]
            found |= dict(self.search(firsts, ends))
            ends = [
                each.earliest if number in found else first
                for number, (first, each) in enumerate(zip(firsts, marks, strict=True))
            ]
        return found


def agreed(topic: str, found: Sequence[Barrier | None]) -> Barrier | None:
    """The barrier that all partitions of a topic end with that were there then; None where none has any.

    Raises:
        TopicError: PARTITIONS_CHANGED, the topic has fewer partitions than the barrier went to.
        InputError: BARRIER_DISAGREE, partitions end with different barriers.
    """
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


def newest_barrier(kafka: KafkaSettings, topics: UpstreamTopics) -> int:
    """The epoch of the last barrier in the first partition, aligned or not; 0 without any."""
    with RangeReader(kafka) as reader:
        barrier = BarrierLookup(topics).last_of(reader, 0)
    return 0 if barrier is None else barrier.curr
