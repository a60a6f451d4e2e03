"""Barriers in the data: records of the upstream topic, one in every partition, aligned by their chain.

Those of the service's own injector are known the moment they are committed (`Announcements`). Found by reading the
stream, they would be known later: Spark polls the topic, plans a micro-batch, and a job filters its records. The
injector has the offsets of its copies, and barriers form a chain: where one follows the newest that is known (`prev`),
there is none between them. Where it does not (others came before it at a start, the answer to a commit was lost, or
another injector wrote one) the records up to it are searched.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark.sql import DataFrame

from schemas.records import RecordId
from state.values.aligned import AlignedBarrier
from streaming.core.alignment import Aligner
from streaming.kafka.barriers import FoundBarrier
from streaming.kafka.consumer import stable_pauses_s
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.source import BarrierSource, Newest, WithInjector
from streaming.source.kafka import UpstreamSource

Offsets = tuple[int, ...]
"""One offset for each partition."""


class Announcements:
    """A queue of barriers from the injector's thread to the stream's. Safe for both."""

    def __init__(self) -> None:
        self._queue: deque[AlignedBarrier] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, barrier: AlignedBarrier) -> None:
        """Announce a barrier that is committed; its ends are right behind its copies."""
        with self._changed:
            self._queue.append(barrier)
            self._changed.notify_all()

    def take(self) -> list[AlignedBarrier]:
        """Wait for barriers and take all there are, in order; none once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            taken = [] if self._closed else list(self._queue)
            self._queue.clear()
            return taken

    @property
    def has_news(self) -> bool:
        return bool(self._queue)

    def close(self) -> None:
        """End all waiting; idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def closed_within(self, timeout_s: float) -> bool:
        """Wait up to this long for `close`. False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, timeout_s)


class EmbeddedBarriers(BarrierSource):
    """Barriers that the upstream's owner writes; the records are searched for them."""

    def __init__(
        self, topic: str, partitions: int, records: UpstreamSource, *, begins: tuple[int, ...] = ()
    ) -> None:
        self._topic, self._partitions, self._records, self._begins = topic, partitions, records, begins
        self._aligner = Aligner(topic, partitions, None)
        self._stream_from: Offsets = ()

    def begin(self, position: AlignedBarrier | None, first: Sequence[int]) -> list[AlignedBarrier]:
        self._aligner = Aligner(self._topic, self._partitions, position, begins=self._begins)
        # Without Spark, whose JVM may still be coming up.
        found, self._stream_from = self._records.find_barriers(first)
        return self._align(found)

    def stream(self) -> DataFrame:
        return self._records.stream(self._stream_from)

    def aligned(self, records: DataFrame) -> list[AlignedBarrier]:
        return self._align(self._records.barriers_in(records))

    def take_duplicates(self, end: AlignedBarrier) -> Sequence[RecordId]:
        return self._aligner.take_duplicates(end)

    def newest(self) -> Newest:
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

    `announcements` get each barrier that the injector has committed. `stable` gives the last stable offset of each
    partition now.
    """

    def __init__(
        self,
        topic: str,
        partitions: int,
        records: UpstreamSource,
        *,
        injector: BarrierInjector,
        announcements: Announcements,
        stable: Callable[[], Sequence[int]],
        begins: tuple[int, ...] = (),
    ) -> None:
        super().__init__(topic, partitions, records, begins=begins)
        self._injector, self._announcements, self._stable = injector, announcements, stable
        self._known_to: Offsets = ()

    def begin(self, position: AlignedBarrier | None, first: Sequence[int]) -> list[AlignedBarrier]:
        known = super().begin(position, first)  # some of these may be announced, too
        self._known_to = self._stream_from
        return known

    def aligned(self, records: DataFrame) -> list[AlignedBarrier]:
        # The records only trigger a micro-batch.
        return self._align(self._next_barriers())

    def _next_barriers(self) -> Iterator[FoundBarrier]:
        """Wait for the announced barriers, and those before them that were not; none once the source is closed.

        Feed each to the aligner before asking for the next. Raises: as `UpstreamSource.barriers_in`.
        """
        for announced in self._announcements.take():
            end = tuple(map(max, self._known_to, announced.ends))
            if end != self._known_to and self._await_stable(end):
                yield from self._up_to(announced, end)
                self._known_to = end

    def _await_stable(self, end: Offsets) -> bool:
        """Wait until committed readers get to `end`: other transactions may still be open. False: closed meanwhile."""
        pauses_s = stable_pauses_s()
        while any(stable < wanted for stable, wanted in zip(self._stable(), end, strict=True)):
            if self._announcements.closed_within(next(pauses_s)):
                return False
        return True

    def _up_to(self, announced: AlignedBarrier, end: Offsets) -> Iterator[FoundBarrier]:
        if self._follows(announced):
            # The injector's copy is the last record before the end.
            return (FoundBarrier(p, stop - 1, announced.barrier) for p, stop in enumerate(announced.ends))
        return self._records.barriers_in(self._records.range(self._known_to, end))

    def _follows(self, announced: AlignedBarrier) -> bool:
        newest = (barrier.curr if barrier else 0 for barrier, _ in self._aligner.newest())
        return all(curr == announced.barrier.prev for curr in newest)

    @property
    def has_more(self) -> bool:
        return self._announcements.has_news

    @property
    def waits(self) -> bool:
        return True

    def wakeup(self) -> None:
        self._announcements.close()

    def close(self) -> None:
        self.wakeup()
        super().close()
