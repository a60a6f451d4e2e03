"""Reads of outputs when a state is started: their first and last barriers, and the positions in them.

`topic` has the barriers: the output's or, with `beside`, a separate one.

A healthy start reads the last record of each partition. Only a state that is older than its outputs has more of them
read: back to the barrier of the state, or from the beginning if the state is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Message

from schemas.records import Barrier
from streaming.kafka.barriers import barrier_in
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located, location
from streaming.kafka.topics import partitions_of
from streaming.sink.kafka_client import UNDECIDED_S
from streaming.sink.protocol import Ending, foreign_records

_FIRST_WINDOW, _WINDOW_GROWTH = 32, 16


def tails(kafka: KafkaSettings, topic: str, *, beside: bool) -> Sequence[Barrier | None] | None:
    """The implementation of `Sink.tails`."""
    if partitions_of(kafka, topic) is None:
        return None
    with RangeReader(kafka) as reader:
        spans = _spans(reader, topic)
        found = {
            partition: _last(message, beside=beside)
            for partition, message in _at_edge(reader, topic, spans, last=True).items()
        }
    return [found.get(partition) for partition in spans]


def begins(kafka: KafkaSettings, topic: str, *, beside: bool) -> Sequence[Barrier | None]:
    """The implementation of `Sink.begins`."""
    if partitions_of(kafka, topic) is None:
        return ()
    with RangeReader(kafka) as reader:
        spans = _spans(reader, topic)
        first = _at_edge(reader, topic, spans, last=False)
    barriers = {partition: barrier_in(message, beside=beside) for partition, message in first.items()}
    if None in barriers.values():
        return ()
    return [barriers.get(partition) for partition in spans]


def endings(kafka: KafkaSettings, topic: str, after: int, *, beside: bool) -> Sequence[Ending]:
    """The implementation of `Sink.endings`."""
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
        reported[:0] = [each for each in barriers if each.curr > after and (each.progress or each.columns)]
        if barriers and barriers[0].curr <= after:
            break
        high, window = low, min(window * _WINDOW_GROWTH, 1 << 20)
    return Ending(last, tuple(reported))


def _spans(reader: RangeReader, topic: str) -> dict[int, tuple[int, int]]:
    """First offset and end of each partition, once no transaction in them is open."""
    marks = reader.await_stable(topic, timeout_s=UNDECIDED_S)
    return {partition: (each.earliest, each.stable) for partition, each in enumerate(marks)}


def _at_edge(
    reader: RangeReader, topic: str, spans: Mapping[int, tuple[int, int]], *, last: bool
) -> dict[int, Message]:
    """The last record of each partition that has one, or else the first; read in growing windows.

    A window may be empty: any number of aborted records and markers can be at both edges.
    """
    edges: dict[int, Message] = {}
    left, window = dict(spans), _FIRST_WINDOW
    while left := {
        number: span for number, span in left.items() if number not in edges and span[0] < span[1]
    }:
        ranges = {
            number: (max(start, end - window), end) if last else (start, min(end, start + window))
            for number, (start, end) in left.items()
        }
        for message in (each for chunk in reader.read(topic, ranges) for each in chunk):
            partition, _ = located(message)
            if last or partition not in edges:
                edges[partition] = message
        for number, (low, high) in ranges.items():
            start, end = left[number]
            left[number] = (start, low) if last else (high, end)
        window *= _WINDOW_GROWTH
    return edges


def _last(message: Message, *, beside: bool) -> Barrier:
    barrier = barrier_in(message, beside=beside)
    if barrier is None:
        raise foreign_records(location(message), "a record behind the last barrier")
    return barrier
