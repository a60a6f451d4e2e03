"""What outputs tell when a state is started: how they begin and end, and the positions in their barriers.

`topic` is what has the barriers, with `beside` a topic of their own.

A healthy start reads the last record of each partition. Only a state that is older than its outputs has more of them
read: back to the barrier that it knows, or from the beginning if it is new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import Message

from schemas.records import Barrier
from streaming.kafka.barrier_records import barrier_in
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located, place
from streaming.kafka.topics import partitions_of
from streaming.sink.kafka_client import UNDECIDED_S
from streaming.sink.protocol import Ending, foreign_records

_FIRST_WINDOW, _WINDOW_GROWTH = 32, 16


def tails(kafka: KafkaSettings, topic: str, *, beside: bool) -> Sequence[Barrier | None] | None:
    """See `Sink.tails`."""
    if partitions_of(kafka, topic) is None:
        return None
    with RangeReader(kafka) as reader:
        spans = _spans(reader, topic)
        found = {
            partition: _last(message, beside=beside)
            for partition, message in _backwards(reader, topic, spans)
        }
    return [found.get(partition) for partition in spans]


def begins(kafka: KafkaSettings, topic: str, *, beside: bool) -> Sequence[int | None]:
    """See `Sink.begins`."""
    if partitions_of(kafka, topic) is None:
        return ()
    with RangeReader(kafka) as reader:
        spans = _spans(reader, topic)
        first = dict(_forwards(reader, topic, spans))
    barriers = {partition: barrier_in(message, beside=beside) for partition, message in first.items()}
    if None in barriers.values():
        return ()
    return [barrier.curr if (barrier := barriers.get(partition)) else None for partition in spans]


def endings(kafka: KafkaSettings, topic: str, after: int, *, beside: bool) -> Sequence[Ending]:
    """See `Sink.endings`."""
    if partitions_of(kafka, topic) is None:
        return ()
    with RangeReader(kafka) as reader:
        spans = _spans(reader, topic)
        return [
            _ending(reader, topic, partition, span, after, beside=beside) for partition, span in spans.items()
        ]


def _ending(
    reader: RangeReader, topic: str, partition: int, span: tuple[int, int], after: int, *, beside: bool
) -> Ending:
    start, high = span
    window = _FIRST_WINDOW
    last: int | None = None
    reported: list[Barrier] = []
    while high > start:
        low = max(start, high - window)
        barriers: list[Barrier] = []
        for chunk in reader.read(topic, {partition: (low, high)}):
            barriers += filter(None, (barrier_in(each, beside=beside) for each in chunk))
        if last is None and barriers:
            last = barriers[-1].curr
        reported[:0] = [barrier for barrier in barriers if barrier.curr > after and barrier.progress]
        if barriers and barriers[0].curr <= after:
            break
        high, window = low, min(window * _WINDOW_GROWTH, 1 << 20)
    return Ending(last, tuple(reported))


def _spans(reader: RangeReader, topic: str) -> dict[int, tuple[int, int]]:
    """First offset and end of each partition, once all in them is decided."""
    marks = reader.await_stable(topic, timeout_s=UNDECIDED_S)
    return {partition: (each.earliest, each.stable) for partition, each in enumerate(marks)}


def _backwards(
    reader: RangeReader, topic: str, spans: Mapping[int, tuple[int, int]]
) -> Iterator[tuple[int, Message]]:
    """The last record of each partition that has one, all partitions at a time."""
    left, window = dict(spans), _FIRST_WINDOW
    while left := {partition: span for partition, span in left.items() if span[0] < span[1]}:
        ranges = {partition: (max(start, end - window), end) for partition, (start, end) in left.items()}
        found: dict[int, Message] = {}
        for chunk in reader.read(topic, ranges):
            found.update({located(message)[0]: message for message in chunk})
        yield from found.items()
        left = {
            partition: (start, ranges[partition][0])
            for partition, (start, _) in left.items()
            if partition not in found
        }
        window *= _WINDOW_GROWTH


def _forwards(
    reader: RangeReader, topic: str, spans: Mapping[int, tuple[int, int]]
) -> Iterator[tuple[int, Message]]:
    """The first record of each partition that has one; aborted ones, any number, may come before it."""
    left, window = dict(spans), _FIRST_WINDOW
    while left := {partition: span for partition, span in left.items() if span[0] < span[1]}:
        ranges = {partition: (start, min(end, start + window)) for partition, (start, end) in left.items()}
        found: dict[int, Message] = {}
        for message in (each for chunk in reader.read(topic, ranges) for each in chunk):
            found.setdefault(located(message)[0], message)
        yield from found.items()
        left = {
            partition: (ranges[partition][1], end)
            for partition, (_, end) in left.items()
            if partition not in found
        }
        window *= _WINDOW_GROWTH


def _last(message: Message, *, beside: bool) -> Barrier:
    barrier = barrier_in(message, beside=beside)
    if barrier is None:
        raise foreign_records(place(message), "a record behind the last barrier")
    return barrier
