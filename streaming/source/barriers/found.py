"""The barriers among the records of an upstream.

Spark's stream finds barriers among all records. At a start some thousand records behind the last batch are searched
without Spark, while its JVM comes up, so that the first batch need not wait for the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Message

from schemas.avro.codec import MAX_BARRIER_BYTES, decode_barrier
from schemas.errors import Code, InputError, TopicError
from schemas.records import BARRIER_HEADER, Barrier, RecordId
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.source.retention import Gaps

_LOOK_RECORDS, _LOOK_BYTES = 200_000, 256 << 20
"""Limits of a search: about a second, less than the start of Spark."""


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
