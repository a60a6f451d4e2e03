"""Reads of outputs: their first and last barriers, and the positions in them.

The last barriers are read before a batch is sent, all of it when a state is started. A healthy start reads the last
record of each partition. Only a state that is older than its outputs has more of them read: back to the barrier of the
state, or from the beginning if the state is new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from confluent_kafka import Message

from schemas.records import Barrier
from streaming.kafka.barriers import barrier_in, beside_barrier_in
from streaming.kafka.clients import TRANSACTION_TIMEOUT_MS, KafkaSettings
from streaming.kafka.consumer import RangeReader, located, location
from streaming.kafka.topics import partitions_of
from streaming.sink.output import SinkPartition
from streaming.sink.protocol import Ending, foreign_records, output_missing

_FIRST_WINDOW, _WINDOW_GROWTH = 32, 16
UNDECIDED_S = 15 + TRANSACTION_TIMEOUT_MS / 1_000
"""The longest wait for the end of a transaction: the broker ends it some seconds after its timeout."""
_BEHIND = "a record behind the last barrier"

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class LastBarrier:
    """The last barrier of a partition. `end`: for one in a separate topic, the exclusive end of the data it closes."""

    epoch: int
    end: int = 0


def last_barriers(
    reader: RangeReader, targets: Iterable[SinkPartition]
) -> dict[SinkPartition, LastBarrier | None]:
    """The last barriers of output partitions for committed readers, None where one is empty.

    Those of a topic are read together, once everything in them is decided: behind a transaction whose marker is late,
    committed readers see nothing, including what this lane has committed since.

    Raises: TopicError: FOREIGN_RECORDS when the last committed record is no barrier of ours, or lies behind the last
    one; OUTPUT_TOPIC_MISSING when data that a barrier closes is gone; BARRIER_STALLED when an open transaction does not
    end.
    """
    of_topics = defaultdict[tuple[str, str | None], list[SinkPartition]](list)
    for target in targets:
        of_topics[target.topic, target.barriers].append(target)
    found = dict[SinkPartition, LastBarrier | None]()
    for (topic, barriers), group in of_topics.items():
        numbers = [target.partition for target in group]
        last = (
            _last_inline(reader, topic, numbers)
            if barriers is None
            else _last_beside(reader, topic, barriers, numbers)
        )
        found |= {target: last[target.partition] for target in group}
    return found


def _last_inline(
    reader: RangeReader, topic: str, partitions: Collection[int]
) -> dict[int, LastBarrier | None]:
    lasts = _lasts(reader, topic, partitions, partial(barrier_in, beside=False))
    return {number: None if last is None else LastBarrier(last.curr) for number, last in lasts.items()}


def _last_beside(
    reader: RangeReader, topic: str, barriers: str, partitions: Collection[int]
) -> dict[int, LastBarrier | None]:
    """The data must end at the offset that the last barrier names, or before: compaction may take the last record."""
    lasts = _lasts(reader, barriers, partitions, beside_barrier_in, "a record that is no barrier")
    marks = reader.await_stable(topic, timeout_s=UNDECIDED_S, partitions=partitions)
    data = reader.look_back(topic, partitions)
    found = dict[int, LastBarrier | None]()
    for number, barrier in lasts.items():
        last, end = data[number].message, 0 if barrier is None else barrier.end
        if marks[number].high < end:
            gone = f"partition {number}, which ends before offset {end} of its last barrier"
            raise output_missing(topic, gone)
        if last is not None and located(last)[1] >= end:
            raise foreign_records(location(last), _BEHIND)
        found[number] = None if barrier is None else LastBarrier(barrier.barrier.curr, end)
    return found


def _lasts(
    reader: RangeReader,
    topic: str,
    partitions: Collection[int],
    read: Callable[[Message], Found | None],
    found_else: str = _BEHIND,
) -> dict[int, Found | None]:
    """The last record of each partition as `read` has it, once no transaction in them is open; None without one.

    Raises: TopicError: FOREIGN_RECORDS where that is None, BARRIER_STALLED.
    """
    reader.await_stable(topic, timeout_s=UNDECIDED_S, partitions=partitions)
    lasts = dict[int, Found | None]()
    for number, (message, _) in reader.look_back(topic, partitions).items():
        lasts[number] = None if message is None else read(message)
        if message is not None and lasts[number] is None:
            raise foreign_records(location(message), found_else)
    return lasts


# In these `topic` has the barriers: the output's or, with `beside`, a separate one.


def tails(kafka: KafkaSettings, topic: str, *, beside: bool) -> Sequence[Barrier | None] | None:
    """The implementation of `Sink.tails`."""
    count = partitions_of(kafka, topic)
    if count is None:
        return None
    with RangeReader(kafka) as reader:
        return list(_lasts(reader, topic, range(count), partial(barrier_in, beside=beside)).values())


def begins(kafka: KafkaSettings, topic: str, *, beside: bool) -> Sequence[Barrier | None]:
    """The implementation of `Sink.begins`."""
    if partitions_of(kafka, topic) is None:
        return ()
    with RangeReader(kafka) as reader:
        spans = _spans(reader, topic)
        first = _firsts(reader, topic, spans)
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


def _firsts(reader: RangeReader, topic: str, spans: Mapping[int, tuple[int, int]]) -> dict[int, Message]:
    """The first record of each partition that has one, read in growing windows.

    A window may be empty: any number of aborted records and markers can be at the begin.
    """
    found: dict[int, Message] = {}
    left, window = dict(spans), _FIRST_WINDOW
    while left := {
        number: span for number, span in left.items() if number not in found and span[0] < span[1]
    }:
        ranges = {number: (start, min(end, start + window)) for number, (start, end) in left.items()}
        for message in (each for chunk in reader.read(topic, ranges) for each in chunk):
            found.setdefault(located(message)[0], message)
        left = {number: (ranges[number][1], end) for number, (_, end) in left.items()}
        window *= _WINDOW_GROWTH
    return found
