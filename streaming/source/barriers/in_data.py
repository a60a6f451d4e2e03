"""Barriers that stand in the data: records of the upstream topic, one in every partition, aligned by their chain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from pyspark.sql import DataFrame

from schemas.records import Barrier, RecordId
from state.values.plan import AlignedBarrier
from streaming.core.alignment import Aligner
from streaming.kafka.topics import stable_offsets_of
from streaming.source.barriers.announced import Announcements, OwnBarriers
from streaming.source.barriers.found import FoundBarrier
from streaming.source.barriers.injected import Injecting, WithInjector
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import InData
from streaming.source.barriers.source import BarrierSetup, BarrierSource, Newest, Records


class EmbeddedBarriers(BarrierSource):
    """Barriers that the upstream's owner writes; found by looking through the records."""

    def __init__(
        self, topic: str, partitions: int, records: Records, *, begins: tuple[int, ...] = ()
    ) -> None:
        self._topic, self._partitions, self._records, self._begins = topic, partitions, records, begins
        self._aligner = Aligner(topic, partitions, None)
        self._stream_from: tuple[int, ...] = ()

    def begin(self, position: AlignedBarrier | None, first: Sequence[int]) -> list[AlignedBarrier]:
        """As `BarrierSource.begin`: looks through some thousand records, without Spark."""
        self._aligner = Aligner(self._topic, self._partitions, position, begins=self._begins)
        look = self._records.look(first)
        self._stream_from = look.next_offsets
        return self._align(look.found)

    def stream(self) -> DataFrame:
        """The data, from where the first look has ended."""
        return self._records.stream(self._stream_from)

    def aligned(self, records: DataFrame) -> list[AlignedBarrier]:
        """As `BarrierSource.aligned`: those among the records."""
        return self._align(self._records.barriers(records))

    def take_duplicates(self, end: AlignedBarrier) -> Sequence[RecordId]:
        """As `BarrierSource.take_duplicates`; what the operator left out is among them."""
        return self._aligner.take_duplicates(end)

    def newest(self) -> Newest:
        """As `BarrierSource.newest`."""
        return self._aligner.newest()

    def _align(self, barriers: Iterable[FoundBarrier]) -> list[AlignedBarrier]:
        """Feed barriers, those of a partition in offset order. The iterator may depend on what was fed before."""
        for found in barriers:
            if found.barrier is None:
                self._aligner.leave_out(found.partition, found.offset)
            else:
                self._aligner.feed(found.partition, found.offset, found.barrier)
        return self._aligner.take_aligned()


class InjectedBarriers(WithInjector, EmbeddedBarriers):
    """Barriers that this service's injector writes and announces; those of others are found where they come between.

    `announcements` get what the injector has committed. `stable` gives the last stable offset of each partition now.
    """

    def __init__(
        self,
        topic: str,
        partitions: int,
        records: Records,
        *,
        injector: Injecting,
        announcements: Announcements,
        stable: Callable[[], Sequence[int]],
        begins: tuple[int, ...] = (),
    ) -> None:
        super().__init__(topic, partitions, records, begins=begins)
        self._injector, self._announcements, self._stable = injector, announcements, stable
        self._own: OwnBarriers | None = None

    def begin(self, position: AlignedBarrier | None, first: Sequence[int]) -> list[AlignedBarrier]:
        """As `BarrierSource.begin`; among them may be some that are announced too."""
        known = super().begin(position, first)
        self._own = OwnBarriers(
            self._announcements, self._records, self._aligner, self._stream_from, self._stable
        )
        return known

    def aligned(self, records: DataFrame) -> list[AlignedBarrier]:
        """Wait for the next announced barriers. `records` are not looked at."""
        assert self._own is not None
        return self._align(self._own.barriers())

    @property
    def has_more(self) -> bool:
        """Whether barriers were announced since."""
        return self._announcements.has_news

    @property
    def waits(self) -> bool:
        """Always: the injector announces what it has committed."""
        return True

    def wakeup(self) -> None:
        """As `BarrierSource.wakeup`."""
        self._announcements.close()

    def close(self) -> None:
        """As `BarrierSource.close`."""
        self.wakeup()
        super().close()


def embedded(setup: BarrierSetup) -> EmbeddedBarriers:
    """Barriers that the owner of a Kafka topic writes into it."""
    return EmbeddedBarriers(setup.topics.data, setup.partitions, setup.records, begins=setup.begins)


def injected(setup: BarrierSetup) -> InjectedBarriers:
    """Barriers that an injector of the service's own writes into a Kafka topic."""
    announcements = Announcements()
    topic, records = setup.topics.data, setup.records
    injector = BarrierInjector(
        setup.kafka,
        InData(setup.topics, setup.left_out, partial(_search, records)),
        setup.interval_ms,
        is_ours=setup.is_ours,
        on_barrier=announcements.put,
        owner=setup.owner,
    )
    return InjectedBarriers(
        topic,
        setup.partitions,
        records,
        injector=injector,
        announcements=announcements,
        stable=stable_offsets_of(setup.kafka, topic, setup.partitions),
        begins=setup.begins,
    )


def _search(records: Records, first: Sequence[int], end: Sequence[int]) -> Iterator[tuple[int, Barrier]]:
    """As `BarrierSearch`."""
    for found in records.barriers(records.range(first, end)):
        if found.barrier is not None:
            yield found.partition, found.barrier
