"""Barriers that stand beside the data: records of a topic of their own, each with the end of its interval.

The data is not looked through for anything. The barrier topic is followed by a consumer of its own, so a barrier is
known some milliseconds after its commit; Spark's stream of that topic only triggers micro-batches.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from pyspark.sql import DataFrame

from schemas.epoch import NO_EPOCH
from state.values.plan import AlignedBarrier
from streaming.core.alignment import Aligner
from streaming.kafka.barriers import BarrierCut, FoundBeside
from streaming.kafka.consumer import stable_pauses_s
from streaming.source.barriers.injected import Injecting, WithInjector
from streaming.source.barriers.source import BarrierSource, Newest

_POLL_S = 0.2


class BarrierTopic(Protocol):
    """A topic of barriers, and what has to be known of its data; see `streaming.source.barriers.followed`."""

    @property
    def name(self) -> str:
        """The topic's name."""

    def require(self) -> None:
        """Check that the topic exists and fits the data. Raises: TopicError(TOPIC_MISSING, BARRIER_TOPIC_MISMATCH)."""

    def refuse_lost(self, first: Sequence[int]) -> None:
        """Raises: InputError(DATA_LOST) when the data from these offsets on is not there."""

    def behind(self, epoch: int) -> list[FoundBeside]:
        """The barriers behind this one that are there now, maybe not all. From then on `poll` goes on.

        Raises: as `decode_beside`; EnvironmentProblem; TopicError(TOPIC_MISSING).
        """

    @property
    def trimmed(self) -> Collection[int]:
        """Partitions whose first barrier may lie later than right behind that one, as older ones were deleted."""
        return ()

    def poll(self, timeout_s: float) -> list[FoundBeside]:
        """The next barriers, in offset order within a partition; none when nothing comes in time.

        Raises: as `behind`; TopicError(BARRIER_STALLED) if they were deleted, and a new start goes on behind them.
        """

    def stream(self) -> DataFrame:
        """Spark's stream of the topic, from where `behind` has ended."""

    def stable(self) -> Sequence[int]:
        """The last stable offset of each partition of the data: committed readers get that far now."""

    def delete(self, cut: BarrierCut) -> int:
        """As `BarrierSource.delete_barriers`, for the service that writes the topic."""
        return 0

    def close(self) -> None:
        """Leave the broker; idempotent."""


class EmbeddedBeside(BarrierSource):
    """Barriers that another process writes to a barrier topic."""

    def __init__(self, topic: BarrierTopic, partitions: int, *, begins: tuple[int, ...] = ()) -> None:
        self._topic, self._partitions, self._begins = topic, partitions, begins
        self._aligner = self._make_aligner(None)
        self._aligned: list[AlignedBarrier] = []
        self._closed = threading.Event()

    def _make_aligner(self, position: AlignedBarrier | None) -> Aligner:
        return Aligner(self._topic.name, self._partitions, position, in_data=False, begins=self._begins)

    def start(self) -> None:
        """Check the barrier topic. Raises: as `BarrierTopic.require`."""
        self._topic.require()

    def begin(self, position: AlignedBarrier | None, first: Sequence[int]) -> list[AlignedBarrier]:
        """As `BarrierSource.begin`: looks back in the barrier topic for the position."""
        self._topic.refuse_lost(first)
        self._aligner = self._make_aligner(position)
        found = self._topic.behind(position.epoch if position else NO_EPOCH)
        self._aligner.mark_trimmed(self._topic.trimmed)
        self._feed(found)
        return self._take_readable()

    def stream(self) -> DataFrame:
        """Spark's stream of the barrier topic."""
        return self._topic.stream()

    def aligned(self, records: DataFrame) -> list[AlignedBarrier]:
        """Wait for the next barriers. `records` are not looked at."""
        while not self._closed.is_set():
            self._feed(self._topic.poll(0 if self._aligned else _POLL_S))
            if self._aligned:
                return self._await_readable()
        return []

    @property
    def has_more(self) -> bool:
        """Whether barriers wait for their data."""
        return bool(self._aligned)

    @property
    def waits(self) -> bool:
        """Always: the barrier topic is polled here."""
        return True

    @property
    def untaken(self) -> int:
        """Barriers that wait for their data."""
        return len(self._aligned)

    def newest(self) -> Newest:
        """As `BarrierSource.newest`."""
        return self._aligner.newest()

    def wakeup(self) -> None:
        """As `BarrierSource.wakeup`."""
        self._closed.set()

    def close(self) -> None:
        """As `BarrierSource.close`."""
        self.wakeup()
        self._topic.close()

    def _feed(self, barriers: Iterable[FoundBeside]) -> None:
        for found in barriers:
            self._aligner.feed_beside(found.partition, found.offset, found.barrier, found.end)
        self._aligned += self._aligner.take_aligned()

    def _await_readable(self) -> list[AlignedBarrier]:
        """Wait until committed readers get to the ends of a barrier: its writer need not have waited for that."""
        pauses_s = stable_pauses_s()
        while not (readable := self._take_readable()):
            if self._closed.wait(next(pauses_s)):
                return []
        return readable

    def _take_readable(self) -> list[AlignedBarrier]:
        """The aligned barriers whose data can be read."""
        stable = self._topic.stable() if self._aligned else ()
        readable = [each for each in self._aligned if _is_below(each.ends, stable)]
        del self._aligned[: len(readable)]
        return readable


def _is_below(ends: Sequence[int], stable: Sequence[int]) -> bool:
    return all(end <= upto for end, upto in zip(ends, stable, strict=True))


class InjectedBeside(WithInjector, EmbeddedBeside):
    """Barriers that this service's injector writes to a barrier topic, which is followed as if others did.

    The injector makes the topic.
    """

    def __init__(
        self, topic: BarrierTopic, partitions: int, injector: Injecting, *, begins: tuple[int, ...] = ()
    ) -> None:
        super().__init__(topic, partitions, begins=begins)
        self._injector = injector

    def delete_barriers(self, cut: BarrierCut) -> int:
        """As `BarrierSource.delete_barriers`."""
        return self._topic.delete(cut)
