"""Barriers that are told by whoever injected them are those that looking through the topic would find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from operator import lt
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from schemas.records import Barrier, BarrierKind
from state.plan import AlignedBarrier
from streaming.core.alignment import Aligner
from streaming.service.barriers import FoundBarrier
from streaming.service.own_barriers import Announcements, OwnBarriers

NO_RECORDS = cast("DataFrame", None)
PARTITIONS = 2


@dataclass
class Topic:
    """Barriers at their places, and which ranges somebody has looked through."""

    barriers: list[AlignedBarrier]
    looked_through: list[tuple[Sequence[int], Sequence[int]]] = field(default_factory=list)

    def range(self, first: Sequence[int], end: Sequence[int]) -> DataFrame:
        self.looked_through.append((first, end))
        return cast("DataFrame", (first, end))

    def barriers_in(self, first: Sequence[int], end: Sequence[int]) -> Iterator[FoundBarrier]:
        for partition in range(PARTITIONS):
            for each in self.barriers:
                if first[partition] <= each.offsets[partition] < end[partition]:
                    yield FoundBarrier(partition, each.offsets[partition], each.barrier)

    def found_in(self, records: DataFrame) -> Iterator[FoundBarrier]:
        first, end = cast("tuple[Sequence[int], Sequence[int]]", records)
        return self.barriers_in(first, end)


class Ranges:
    """A topic as `OwnBarriers` asks it."""

    def __init__(self, topic: Topic) -> None:
        self.range = topic.range
        self.barriers = topic.found_in


def chain(*offsets: tuple[int, int]) -> list[AlignedBarrier]:
    """Barriers 1, 2, … at these offsets."""
    return [
        AlignedBarrier(
            Barrier(
                number,
                number - 1,
                BarrierKind.CHECKPOINT if number > 1 else BarrierKind.INITIAL,
                PARTITIONS,
                0,
            ),
            places,
        )
        for number, places in enumerate(offsets, 1)
    ]


class Listener:
    """Who hears of barriers: everything up to `first` was looked through before."""

    def __init__(self, topic: Topic, first: tuple[int, int] = (0, 0), stable: int = 1_000_000) -> None:
        self.topic, self.stable = topic, stable
        self.announcements = Announcements()
        self.aligner = Aligner("up", PARTITIONS, None)
        self.feed(topic.barriers_in((0, 0), first))
        self.own = OwnBarriers(
            self.announcements, Ranges(topic), self.aligner, first, lambda: [self.stable] * PARTITIONS
        )

    def feed(self, found: Iterator[FoundBarrier]) -> None:
        for each in found:
            assert each.barrier is not None
            self.aligner.feed(each.partition, each.offset, each.barrier)

    def hears(self, *told: AlignedBarrier) -> list[int]:
        """The epochs that are aligned after it."""
        for barrier in told:
            self.announcements.put(barrier)
        self.feed(self.own.barriers(NO_RECORDS))
        return [each.epoch for each in self.aligner.aligned()]


def test_barriers_that_follow_each_other_are_not_looked_for() -> None:
    topic = Topic(chain((3, 0), (7, 9), (20, 10)))
    listener = Listener(topic)
    assert listener.hears(topic.barriers[0]) == [1]
    assert listener.hears(*topic.barriers[1:]) == [2, 3]
    assert topic.looked_through == []


def test_one_that_was_not_told_is_found_when_the_next_one_is() -> None:
    topic = Topic(chain((3, 0), (7, 9), (20, 10)))
    listener = Listener(topic)
    assert listener.hears(topic.barriers[0]) == [1]
    assert listener.hears(topic.barriers[2]) == [2, 3]
    assert topic.looked_through == [((4, 1), (21, 11))]


def test_one_that_was_seen_before_it_was_told_is_not_looked_for_again() -> None:
    topic = Topic(chain((3, 0), (7, 9)))
    listener = Listener(topic, first=(8, 10))
    assert listener.hears(*topic.barriers) == [1, 2]
    assert topic.looked_through == []


def test_one_that_was_seen_in_a_single_partition_is_found_in_the_others() -> None:
    topic = Topic(chain((3, 0), (7, 9)))
    listener = Listener(topic, first=(12, 5))
    assert listener.hears(*topic.barriers) == [1, 2]
    assert topic.looked_through == [((12, 5), (12, 10))]


def test_a_barrier_that_committed_readers_do_not_see_yet_is_waited_for() -> None:
    topic = Topic(chain((3, 0)))
    listener = Listener(topic, stable=3)
    with ThreadPoolExecutor(1) as thread:
        hearing = thread.submit(listener.hears, *topic.barriers)
        assert not hearing.done()
        listener.stable = 4
        assert hearing.result(30) == [1]


def test_closing_ends_every_wait_and_what_was_told_is_left() -> None:
    topic = Topic(chain((3, 0)))
    silent, unstable = Listener(topic), Listener(topic, stable=0)
    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(silent.hears), threads.submit(unstable.hears, *topic.barriers)]
        for listener in (silent, unstable):
            listener.own.close()
        assert [wait.result(30) for wait in waits] == [[], []]
    assert silent.hears(*topic.barriers) == []


@given(st.data())
def test_whatever_is_told_late_or_never_the_barriers_are_those_of_the_topic(data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=12))
    topic = Topic(chain(*accumulate(steps, lambda at, step: (at[0] + step[0], at[1] + step[1]))))
    first = data.draw(st.tuples(st.integers(0, 30), st.integers(0, 30)))
    told = [each for each in topic.barriers if data.draw(st.booleans())] or topic.barriers[-1:]
    listener = Listener(topic, first=first)
    heard = [epoch for each in told for epoch in listener.hears(each)]
    seen = sum(all(map(lt, each.offsets, first)) for each in topic.barriers)
    assert heard == list(range(1, max(told[-1].epoch, seen) + 1))
