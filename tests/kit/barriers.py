"""Upstreams in memory of which only the barriers count, and barrier sources on them, without a broker and Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from pyspark.sql import DataFrame

from schemas.errors import BackfillError, Code, Fenced
from schemas.records import Barrier, BarrierKind
from state.values.aligned import AlignedBarrier
from streaming.kafka.barriers import BarrierCut, FoundBarrier, FoundBeside
from streaming.kafka.topics import Watermarks
from streaming.source.barriers.injecting.injector import is_wanted
from streaming.source.barriers.separate_topic import FollowedTopic
from streaming.source.kafka import UpstreamSource
from streaming.source.retention import Gaps

NO_RECORDS = cast("DataFrame", None)
EPOCH_STEP = 1 << 16


def barrier(number: int, partitions: int) -> Barrier:
    """Number 1 is a topic's first."""
    kind = BarrierKind.CHECKPOINT if number > 1 else BarrierKind.INITIAL
    return Barrier(number * EPOCH_STEP, (number - 1) * EPOCH_STEP, kind, partitions, 0)


@dataclass
class MemoryRecords(UpstreamSource):
    """A topic with `ends[p]` records in partition p, some of them markers; in memory.

    `earliest`: what is before is lost. `seen_by_look`: a look gets no further than that many records of a partition.
    """

    partitions: int
    markers: list[FoundBarrier] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    earliest: int = 0
    seen_by_look: int = 1_000
    looked_through: list[tuple[Sequence[int], Sequence[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ends = self.ends or [0] * self.partitions

    def write(self, partition: int) -> int:
        """A record of data; its offset."""
        self.ends[partition] += 1
        return self.ends[partition] - 1

    def mark(self, barrier: Barrier, *partitions: int) -> AlignedBarrier:
        """Markers of a barrier in these partitions, by default in all."""
        for number in partitions or range(self.partitions):
            self.markers.append(FoundBarrier(number, self.write(number), barrier))
        return AlignedBarrier(barrier, tuple(self.ends))

    def find_barriers(self, first: Sequence[int]) -> tuple[list[FoundBarrier], tuple[int, ...]]:
        Gaps().refuse_lost("up", [Watermarks(self.earliest, end, end) for end in self.ends], first)
        ends = tuple(min(end, begin + self.seen_by_look) for begin, end in zip(first, self.ends, strict=True))
        return list(self._between(first, ends)), ends

    def stream(self, first: Sequence[int]) -> DataFrame:
        return cast("DataFrame", (first, self.ends))

    def range(self, first: Sequence[int], end: Sequence[int], *, headers: bool = False) -> DataFrame:
        self.looked_through.append((first, end))
        return cast("DataFrame", (first, end))

    def barriers_in(self, records: DataFrame) -> Iterator[FoundBarrier]:
        first, ends = cast("tuple[Sequence[int], Sequence[int]]", records)
        yield from self._between(first, ends)

    def _between(self, first: Sequence[int], ends: Sequence[int]) -> Iterator[FoundBarrier]:
        for number in range(self.partitions):
            for found in self.markers:
                if found.partition == number and first[number] <= found.offset < ends[number]:
                    yield found


@dataclass
class MemoryInjector:
    """Writes barriers into a topic in memory when it is asked to, and announces them."""

    records: MemoryRecords
    announce: Callable[[AlignedBarrier], None]
    problem: BackfillError | None = None
    failure: BackfillError | None = None
    stopped: int = 0
    hastened: int = 0

    @property
    def last_barrier(self) -> Barrier | None:
        return self.newest()

    def start(self) -> None:
        self.inject()

    def inject(self) -> Barrier:
        newest = self.newest()
        sent = barrier((newest.curr if newest else 0) // EPOCH_STEP + 1, self.records.partitions)
        self.announce(self.records.mark(sent))
        return sent

    def hasten(self, after: int) -> None:
        self.hastened += is_wanted(after, self.newest())

    def newest(self) -> Barrier | None:
        found = (each.barrier for each in self.records.markers if each.barrier)
        return max(found, key=lambda barrier: barrier.curr, default=None)

    def fence(self) -> None:
        self.failure = Fenced(Code.FENCED, where="up.barriers", found="a newer instance of the service")

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        self.stopped += 1


@dataclass
class MemoryBarrierTopic(FollowedTopic):
    """Data without markers, and beside it a topic of barriers, in memory."""

    partitions: int
    ends: list[int] = field(default_factory=list)
    barriers: list[AlignedBarrier] = field(default_factory=list)
    earliest: int = 0
    polled: int = 0

    def __post_init__(self) -> None:
        self.ends = self.ends or [0] * self.partitions

    @property
    def name(self) -> str:
        return "up.barriers"

    def write(self, partition: int) -> int:
        """A record of data; its offset."""
        self.ends[partition] += 1
        return self.ends[partition] - 1

    def add(self, barrier: Barrier) -> AlignedBarrier:
        """A barrier behind all data that there is."""
        self.barriers.append(AlignedBarrier(barrier, tuple(self.ends), in_data=False))
        return self.barriers[-1]

    def require(self) -> None:
        return

    def refuse_lost(self, first: Sequence[int]) -> None:
        Gaps().refuse_lost("up", [Watermarks(self.earliest, end, end) for end in self.ends], first)

    def behind(self, epoch: int) -> list[FoundBeside]:
        self.polled = sum(each.epoch <= epoch for each in self.barriers)
        return self.poll(0)

    def poll(self, timeout_s: float) -> list[FoundBeside]:
        first, self.polled = self.polled, len(self.barriers)
        return [
            FoundBeside(number, offset, each.barrier, end)
            for offset, each in enumerate(self.barriers[first:], first)
            for number, end in enumerate(each.ends)
        ]

    def stream(self) -> DataFrame:
        return NO_RECORDS

    def stable(self) -> Sequence[int]:
        return self.ends

    @property
    def trimmed(self) -> tuple[int, ...]:
        return ()

    def delete(self, cut: BarrierCut) -> int:
        return 0

    def close(self) -> None:
        return
