"""Barriers that their injector announces are those that looking through the topic would find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from operator import le
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from state.values.aligned import AlignedBarrier
from streaming.kafka.barriers import FoundBarrier
from streaming.source.barriers.in_data import Announcements, InjectedBarriers
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.kafka import UpstreamSource
from tests.kit.barriers import EPOCH_STEP, NO_RECORDS, MemoryRecords, barrier

PARTITIONS = 2


def chain(*offsets: tuple[int, int]) -> MemoryRecords:
    """A topic with barriers 1, 2, … whose markers have these offsets."""
    records = MemoryRecords(PARTITIONS)
    for number, places in enumerate(offsets, 1):
        records.ends = list(places)
        records.mark(barrier(number, PARTITIONS))
    return records


def announced(records: MemoryRecords) -> list[AlignedBarrier]:
    """The barriers of a topic as its injector tells them."""
    one, other = ([each for each in records.markers if each.partition == number] for number in range(2))
    return [
        AlignedBarrier(mine.barrier, (mine.offset + 1, its.offset + 1))
        for mine, its in zip(one, other, strict=True)
        if mine.barrier is not None
    ]


class LookedThrough(UpstreamSource):
    """A topic of which everything up to `first` is looked through at the start."""

    def __init__(self, topic: MemoryRecords, first: tuple[int, int]) -> None:
        self.topic, self.first = topic, first

    def find_barriers(self, first: Sequence[int]) -> tuple[list[FoundBarrier], tuple[int, ...]]:
        found = self.topic.barriers_in(cast("DataFrame", (first, self.first)))
        return list(found), self.first

    def range(self, first: Sequence[int], end: Sequence[int], *, headers: bool = False) -> DataFrame:
        return self.topic.range(first, end, headers=headers)

    def barriers_in(self, records: DataFrame) -> Iterator[FoundBarrier]:
        return self.topic.barriers_in(records)


class Listener:
    """A listener to barriers: everything up to `first` was looked through before."""

    def __init__(
        self, topic: MemoryRecords, first: tuple[int, int] = (0, 0), stable: int = 1_000_000
    ) -> None:
        self.stable = stable
        self.announcements = Announcements()
        self.own = InjectedBarriers(
            "up",
            PARTITIONS,
            LookedThrough(topic, first),
            injector=cast("BarrierInjector", None),
            announcements=self.announcements,
            stable=lambda: [self.stable] * PARTITIONS,
        )
        self.known = self.own.begin(None, (0, 0))

    def hears(self, *announcements: AlignedBarrier) -> list[int]:
        """The epochs that are aligned after it."""
        for each in announcements:
            self.announcements.put(each)
        heard = [*self.known, *self.own.aligned(NO_RECORDS)]
        self.known = []
        return [each.epoch // EPOCH_STEP for each in heard]


def test_barriers_that_follow_each_other_are_not_looked_for() -> None:
    topic = chain((3, 0), (7, 9), (20, 10))
    listener = Listener(topic)
    assert listener.hears(announced(topic)[0]) == [1]
    assert listener.hears(*announced(topic)[1:]) == [2, 3]
    assert topic.looked_through == []


def test_one_that_was_not_named_is_found_when_the_next_one_is() -> None:
    topic = chain((3, 0), (7, 9), (20, 10))
    listener = Listener(topic)
    assert listener.hears(announced(topic)[0]) == [1]
    assert listener.hears(announced(topic)[2]) == [2, 3]
    assert topic.looked_through == [((4, 1), (21, 11))]


def test_one_that_was_seen_before_it_was_named_is_not_looked_for_again() -> None:
    topic = chain((3, 0), (7, 9))
    listener = Listener(topic, first=(8, 10))
    assert listener.hears(*announced(topic)) == [1, 2]
    assert topic.looked_through == []


def test_one_that_was_seen_in_a_single_partition_is_found_in_the_others() -> None:
    topic = chain((3, 0), (7, 9))
    listener = Listener(topic, first=(12, 5))
    assert listener.hears(*announced(topic)) == [1, 2]
    assert topic.looked_through == [((12, 5), (12, 10))]


def test_a_barrier_that_committed_readers_do_not_see_yet_is_waited_for() -> None:
    topic = chain((3, 0))
    listener = Listener(topic, stable=3)
    with ThreadPoolExecutor(1) as thread:
        hearing = thread.submit(listener.hears, *announced(topic))
        assert not hearing.done()
        listener.stable = 4
        assert hearing.result(30) == [1]


def test_closing_ends_every_wait_and_what_was_named_is_left() -> None:
    topic = chain((3, 0))
    silent, unstable = Listener(topic), Listener(topic, stable=0)
    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(silent.hears), threads.submit(unstable.hears, *announced(topic))]
        for listener in (silent, unstable):
            listener.announcements.close()
        assert [wait.result(30) for wait in waits] == [[], []]
    assert silent.hears(*announced(topic)) == []


@given(st.data())
def test_whatever_is_named_late_or_never_the_barriers_are_those_of_the_topic(data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=12))
    topic = chain(*accumulate(steps, lambda at, step: (at[0] + step[0], at[1] + step[1])))
    first = data.draw(st.tuples(st.integers(0, 30), st.integers(0, 30)))
    announcements = [each for each in announced(topic) if data.draw(st.booleans())] or announced(topic)[-1:]
    listener = Listener(topic, first=first)
    heard = [epoch for each in announcements for epoch in listener.hears(each)]
    seen = sum(all(map(le, each.ends, first)) for each in announced(topic))
    assert heard == list(range(1, max(announcements[-1].epoch // EPOCH_STEP, seen) + 1))
