"""Upstreams for the contract of barrier sources: each writes data and barriers, and makes sources that find them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import cast

from pyspark.sql import DataFrame

from state.values.aligned import AlignedBarrier
from streaming.source.barriers.in_data import Announcements, EmbeddedBarriers, InjectedBarriers
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.separate_topic import SeparateBarriers
from streaming.source.barriers.source import BarrierSource
from tests.kit.barriers import (
    NO_RECORDS,
    MemoryBarrierTopic,
    MemoryInjector,
    MemoryRecords,
    barrier,
)
from tests.kit.real import await_condition

PARTITIONS = 2
HOUR_MS = 3_600_000
FAR = barrier(1 << 40, PARTITIONS)
"""Follows none of a test's barriers, those of the wall clock neither."""


class TestUpstream(ABC):
    """One upstream. `injects`: a source writes its barriers, one at its start."""

    __test__ = False
    in_data, injects = True, False

    @abstractmethod
    def data(self, partition: int) -> int:
        """Write a record; its offset."""

    @abstractmethod
    def barrier(self) -> None:
        """Write the next barrier behind all data."""

    @abstractmethod
    def break_chain(self) -> None:
        """Have somebody write a barrier that follows none, and then a good one where that is needed to notice it."""

    @abstractmethod
    def lose(self) -> None:
        """Remove every record from the topics."""

    @abstractmethod
    def source(self) -> BarrierSource:
        """A new one, not started."""

    def hurry(self) -> None:  # noqa: B027  # some have no hurry
        """From here on sources write barriers by themselves, every 100 ms."""

    def fence(self) -> None:
        """Let another instance write the barriers instead of the newest source."""
        raise AssertionError("no source of this upstream writes barriers")

    @abstractmethod
    def records(self) -> DataFrame:
        """A micro-batch that holds everything."""

    def more(self, source: BarrierSource) -> list[AlignedBarrier]:
        """Barriers that a source gives for the records so far."""
        found = source.aligned(self.records())
        while source.has_more:
            found += source.aligned(self.records())
        return found


class Memory(TestUpstream):
    """Markers in a topic in memory, written by its owner."""

    def __init__(self) -> None:
        self.topic = MemoryRecords(PARTITIONS, seen_by_look=3)
        self._written = 0

    def data(self, partition: int) -> int:
        return self.topic.write(partition)

    def barrier(self) -> None:
        self._written += 1
        self.topic.mark(barrier(self._written, PARTITIONS))

    def break_chain(self) -> None:
        self.topic.mark(FAR)

    def lose(self) -> None:
        self.topic.earliest = max(self.topic.ends)

    def source(self) -> BarrierSource:
        return EmbeddedBarriers("up", PARTITIONS, self.topic)

    def records(self) -> DataFrame:
        return self.topic.range([0] * PARTITIONS, self.topic.ends)


class MemoryInjected(Memory):
    """Barriers in memory, written and announced by the source's own injector."""

    injects = True
    injector: MemoryInjector

    def barrier(self) -> None:
        self.injector.inject()

    def break_chain(self) -> None:
        super().break_chain()
        self.injector.inject()

    def fence(self) -> None:
        self.injector.fence()

    def source(self) -> BarrierSource:
        announcements = Announcements()
        self.injector = MemoryInjector(self.topic, announcements.put)
        return InjectedBarriers(
            "up",
            PARTITIONS,
            self.topic,
            injector=cast("BarrierInjector", self.injector),
            announcements=announcements,
            stable=lambda: self.topic.ends,
        )

    def more(self, source: BarrierSource) -> list[AlignedBarrier]:
        return super().more(source) if source.has_more else []


class MemoryBeside(TestUpstream):
    """Barriers in a topic of their own, in memory, written by its owner."""

    in_data = False

    def __init__(self) -> None:
        self.topic = MemoryBarrierTopic(PARTITIONS)

    def data(self, partition: int) -> int:
        return self.topic.write(partition)

    def barrier(self) -> None:
        self.topic.add(barrier(len(self.topic.barriers) + 1, PARTITIONS))

    def break_chain(self) -> None:
        self.topic.add(FAR)

    def lose(self) -> None:
        self.topic.earliest = max(self.topic.ends)

    def source(self) -> BarrierSource:
        return SeparateBarriers(self.topic, PARTITIONS)

    def records(self) -> DataFrame:
        return NO_RECORDS

    def more(self, source: BarrierSource) -> list[AlignedBarrier]:
        return super().more(source) if self.topic.polled < len(self.topic.barriers) else []


def await_end(source: BarrierSource) -> Exception:
    """Wait for what `check` raises."""
    raised: list[Exception] = []

    def ended() -> bool:
        try:
            source.check()
        except Exception as error:  # noqa: BLE001  # the test looks at it
            raised.append(error)
        return bool(raised)

    await_condition(ended, "the end of the source", limit_s=30)
    return raised[0]
