"""A topic that is read from later offsets on: its first barrier against a slow model that sees the whole topic.

Barriers stand in the data or beside it, and the offsets anywhere between them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import event, given
from hypothesis import strategies as st

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.json.barriers import encode_beside
from schemas.records import Barrier, BarrierKind
from streaming.core.alignment import Aligner
from streaming.reading.barriers import MergedSource
from streaming.verify.history import PartitionHistory, TopicEntry, UpstreamHistory
from tests.kit.encoded_histories import ListSource

DATA = None


@dataclass(frozen=True)
class Topic:
    """Partitions of data and the numbers of barriers, and the first offset of each that is read."""

    partitions: list[list[int | None]]
    begins: tuple[int, ...]

    @property
    def barriers(self) -> int:
        return max(item or 0 for item in self.partitions[0])

    def place(self, partition: int, number: int) -> int:
        return self.partitions[partition].index(number)


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    count, barriers = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    partitions: list[list[int | None]] = []
    for _ in range(count):
        items: list[int | None] = []
        for number in range(1, barriers + 1):
            items += [DATA] * draw(st.integers(0, 2)) + [number]
        partitions.append(items + [DATA] * draw(st.integers(0, 2)))
    begins = tuple(draw(st.integers(0, len(items))) for items in partitions)
    return Topic(partitions, begins)


def barrier(topic: Topic, number: int) -> Barrier:
    return Barrier(number << 16, number - 1 << 16, BarrierKind.CHECKPOINT, len(topic.partitions), 0)


@given(topics())
def test_in_the_data_it_is_the_first_whose_markers_are_all_behind_the_offsets(topic: Topic) -> None:
    reached = [
        number
        for number in range(1, topic.barriers + 1)
        if all(topic.place(p, number) >= begin for p, begin in enumerate(topic.begins))
    ]
    event(f"{topic.barriers - len(reached)} barriers before the first")
    aligner = Aligner("up", len(topic.partitions), None, begins=topic.begins)
    given_, left_out = [], set[tuple[int, int]]()
    for partition, items in enumerate(topic.partitions):
        for offset, number in enumerate(items):
            if number is not DATA and offset >= topic.begins[partition]:
                aligner.feed(partition, offset, barrier(topic, number))
        given_ += aligner.take_aligned()
    for each in given_:
        left_out |= set(aligner.take_duplicates(each))
    assert [each.epoch >> 16 for each in given_] == reached
    assert [each.ends for each in given_] == [
        tuple(topic.place(p, number) + 1 for p in range(len(topic.partitions))) for number in reached
    ]
    if reached:
        early = {
            (p, offset)
            for p, items in enumerate(topic.partitions)
            for offset, number in enumerate(items)
            if offset >= topic.begins[p] and number is not DATA and number < reached[0]
        }
        assert left_out == early
    assert verified(topic, beside=False) == folded(topic, reached, beside=False)


@given(topics())
def test_beside_the_data_it_is_the_first_whose_ends_have_reached_the_offsets(topic: Topic) -> None:
    ends = {number: ends_of(topic, number) for number in range(1, topic.barriers + 1)}
    begins = tuple(min(begin, data_of(topic, p)) for p, begin in enumerate(topic.begins))
    reached = [n for n in ends if all(end >= begin for end, begin in zip(ends[n], begins, strict=True))]
    aligner = Aligner("up.barriers", len(topic.partitions), None, in_data=False, begins=begins)
    for partition in range(len(topic.partitions)):
        for number in ends:
            aligner.feed_beside(partition, number - 1, barrier(topic, number), ends[number][partition])
    given_ = aligner.take_aligned()
    assert [(each.epoch >> 16, each.ends) for each in given_] == [(n, ends[n]) for n in reached]
    beside = Topic(topic.partitions, begins)
    assert verified(beside, beside=True) == folded(beside, reached, beside=True)


def ends_of(topic: Topic, number: int) -> tuple[int, ...]:
    """Data records before the barrier: where it ends in a topic that holds no barriers."""
    return tuple(
        sum(item is DATA for item in items[: topic.place(p, number)])
        for p, items in enumerate(topic.partitions)
    )


def data_of(topic: Topic, partition: int) -> int:
    return sum(item is DATA for item in topic.partitions[partition])


Interval = tuple[int, tuple[tuple[int, int], ...]]


def folded(topic: Topic, reached: list[int], *, beside: bool) -> list[Interval]:
    """Each barrier with the data records, (partition, offset), of the interval that it closes."""
    result, before = [], topic.begins
    for number in reached:
        places = tuple(topic.place(p, number) for p in range(len(topic.partitions)))
        ends = ends_of(topic, number) if beside else places
        records = tuple(
            (p, offset)
            for p, items in enumerate(topic.partitions)
            for offset in range(before[p], ends[p])
            if beside or items[offset] is DATA
        )
        result.append((number, records))
        before = ends if beside else tuple(end + 1 for end in ends)
    return result


def verified(topic: Topic, *, beside: bool) -> list[Interval]:
    """Intervals of the topic as the judge sees them."""
    sources = [
        merged(topic, p) if beside else ListSource(in_data(topic, p)) for p in range(len(topic.partitions))
    ]
    history = UpstreamHistory([PartitionHistory("up", p, s) for p, s in enumerate(sources)], topic.begins)
    result: list[Interval] = []
    seen: list[tuple[int, int]] = []
    while (
        closed := history.advance(lambda where, entry: seen.append((where.partition, entry.offset)))
    ) is not None:
        result.append((closed.curr >> 16, tuple(sorted(seen))))
        seen.clear()
    return result


def in_data(topic: Topic, partition: int) -> list[TopicEntry]:
    entries = [
        TopicEntry(offset, b"k", b"v")
        if number is DATA
        else TopicEntry(
            offset, None, encode_barrier(barrier(topic, number)), barrier_header(barrier(topic, number))
        )
        for offset, number in enumerate(topic.partitions[partition])
    ]
    return entries[topic.begins[partition] :]


def merged(topic: Topic, partition: int) -> MergedSource:
    data = [TopicEntry(offset, b"k", b"v") for offset in range(data_of(topic, partition))]
    barriers = [
        TopicEntry(
            number - 1,
            str(partition).encode(),
            encode_beside(barrier(topic, number), ends_of(topic, number)[partition]),
            barrier_header(barrier(topic, number)),
        )
        for number in range(1, topic.barriers + 1)
    ]
    begin = topic.begins[partition]
    return MergedSource(ListSource(data[begin:]), ListSource(barriers), "up.barriers", partition, begin=begin)
