"""Records that are barriers, in the data or in a topic of their own, and the deletion of the oldest of the latter.

A topic whose oldest barriers were deleted begins with a full one (`schemas.kinds.full_barriers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Message, TopicPartition

from schemas.avro.codec import MAX_BARRIER_BYTES, decode_barrier
from schemas.errors import Code, InputError
from schemas.json.barriers import decode_beside
from schemas.kinds.full_barriers import PERIOD_MS, begins_period
from schemas.records import BARRIER_HEADER, Barrier, RecordId
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located, location
from streaming.kafka.errors import translated
from streaming.kafka.topics import PartitionId, admin


@dataclass(frozen=True, slots=True)
class FoundBeside:
    """A barrier of a separate topic: its partition and offset there, and the exclusive `end` of its interval."""

    partition: int
    offset: int
    barrier: Barrier
    end: int


def is_marked(record: Message) -> bool:
    """True for a record with the header of a barrier."""
    return header_of(record, BARRIER_HEADER) is not None


def barrier_in(message: Message, *, beside: bool) -> Barrier | None:
    """The barrier in a record of a barrier topic or of the data; None if it is none. Raises: InputError."""
    if beside:
        found = beside_barrier_in(message)
        return None if found is None else found.barrier
    header = header_of(message, BARRIER_HEADER)
    return None if header is None else decode_barrier(header, message.value(), where=location(message))


def beside_barrier_in(message: Message) -> FoundBeside | None:
    """The barrier in a record of a barrier topic, None without the header. Raises: as `decode_beside`."""
    header = header_of(message, BARRIER_HEADER)
    if header is None:
        return None
    partition, offset = located(message)
    where = location(message)
    found = decode_beside(header, message.key(), message.value(), partition=partition, where=where)
    return FoundBeside(partition, offset, found.barrier, found.end)


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


def mark_of(message: Message) -> Marked | None:
    """The record as one that is marked as a barrier; None without the header."""
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


_LATE_MS = 600_000
"""The most that a barrier's time may lie after its append time, by the clocks of two machines."""
_WINDOW_OFFSETS = 8_192


@dataclass(frozen=True, slots=True)
class BarrierCut:
    """Barriers before the one of `epoch` may be deleted, if they were injected before `before_ms` (Unix time)."""

    epoch: int
    before_ms: int

    def has(self, barrier: Barrier) -> bool:
        """True if a topic may begin with this barrier."""
        return barrier.curr <= self.epoch and barrier.injected_at_ms <= self.before_ms


def delete_barriers(kafka: KafkaSettings, topic: str, cut: BarrierCut) -> int:
    """Delete the records before the newest full barrier within the cut, by partition; returns the number of offsets.

    Of an upstream, all of whose barriers are full, the first of a period is taken, as it is in its outputs. The last
    barrier of a partition is never deleted. Raises: EnvironmentProblem, TopicError when the broker refuses.
    """
    with RangeReader(kafka) as reader:
        marks = reader.watermarks(topic)
        firsts = reader.first_since(topic, cut.before_ms - PERIOD_MS - _LATE_MS)
        begins: dict[PartitionId, int] = {}
        for partition, each in enumerate(marks):
            span = max(firsts.get(partition, each.earliest), each.earliest), each.stable
            begin = _newest_full(reader, (topic, partition), span, cut)
            if begin is not None and begin > each.earliest:
                begins[topic, partition] = begin
    _delete_before(kafka, begins)
    return sum(begin - marks[partition].earliest for (_, partition), begin in begins.items())


def _newest_full(
    reader: RangeReader, place: PartitionId, span: tuple[int, int], cut: BarrierCut
) -> int | None:
    """The offset of the newest full barrier in the cut that is the first of its period; None without one."""
    found, before = None, None
    for offset, barrier in _barriers(reader, place, span):
        if not cut.has(barrier):
            break
        if barrier.full and before is not None and begins_period(before, barrier):
            found = offset
        before = barrier
    return found


def _barriers(
    reader: RangeReader, place: PartitionId, span: tuple[int, int]
) -> Iterator[tuple[int, Barrier]]:
    topic, partition = place
    begin, end = span
    while begin < end:
        upto = min(begin + _WINDOW_OFFSETS, end)
        for chunk in reader.read(topic, {partition: (begin, upto)}):
            for found in filter(None, map(beside_barrier_in, chunk)):
                yield found.offset, found.barrier
        begin = upto


def _delete_before(kafka: KafkaSettings, begins: Mapping[PartitionId, int]) -> None:
    """Raises: EnvironmentProblem, TopicError."""
    if not begins:
        return
    wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in begins.items()]
    client = admin(kafka)  # held: a request of a deleted client is never answered
    for deleted, answer in client.delete_records(wanted, request_timeout=kafka.wait_s).items():
        with translated(kafka, what=f"{deleted.topic}-{deleted.partition}"):
            answer.result()
