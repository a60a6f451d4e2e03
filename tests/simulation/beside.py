"""A history whose barriers stand beside the data: the same records, of which lanes get the data alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from schemas.kinds.full_barriers import begins_period
from state.columns import OP
from streaming.kafka.barriers import BarrierCut, FoundBeside
from streaming.lane.task import LaneTask
from streaming.source.barriers.separate_topic import FollowedTopic, SeparateBarriers
from streaming.source.decoded import MARKED
from tests.simulation.changelog import Changelog

if TYPE_CHECKING:
    from tests.simulation.arrivals import Arrivals

Wait = Callable[[Callable[[], bool]], None]


class BesideChangelog(Changelog):
    """The judge goes by the records as they are, where a barrier is behind the data that it closes."""

    def lane_rows(self, task: LaneTask, lane: int) -> pa.RecordBatch:
        rows = super().lane_rows(task, lane)
        return rows.filter(pc.not_equal(pc.fill_null(rows[OP], -1), MARKED))

    def source(self, arrivals: Arrivals, wait: Wait, partitions: int) -> SeparateBarriers:
        return OwnBeside(
            ArrivedTopic(self, arrivals, wait, partitions), partitions, begins=self.begins[:partitions]
        )

    def beside(self, number: int) -> list[FoundBeside]:
        """The barriers of a partition, each with its end among the data."""
        return list(self._beside(number))

    def _beside(self, number: int) -> Iterator[FoundBeside]:
        barriers = iter(self.barriers[number])
        end, offset = self.begins[number], 0
        for entry in self.records[number]:
            if entry.offset < self.begins[number]:
                continue
            if entry.barrier is None:
                end = entry.offset + 1
                continue
            found = next(barriers).barrier
            assert found is not None
            yield FoundBeside(number, offset, found, end)
            offset += 1


def oldest(arrivals: Arrivals) -> int:
    """The barrier that the upstream begins with."""
    places = zip(arrivals.changelog.barriers, arrivals.deleted, strict=True)
    found = [
        barriers[deleted].barrier
        for (barriers, deleted), late in zip(places, arrivals.changelog.late, strict=True)
        if not late
    ]
    return max((barrier.curr for barrier in found if barrier is not None), default=0)


class OwnBeside(SeparateBarriers):
    """The service's own topic, of which it may delete what it has handled."""

    def delete_barriers(self, cut: BarrierCut) -> int:
        return self._topic.delete(cut)

    def delete_all(self) -> None:
        """Delete also barriers that no batch has handled, as no owner does."""
        assert isinstance(self._topic, ArrivedTopic)
        self._topic.delete_all()


class ArrivedTopic(FollowedTopic):
    """The arrived part of the barrier topic; `wait` lets others run until a condition holds."""

    name = "up.barriers"

    def __init__(self, changelog: BesideChangelog, arrivals: Arrivals, wait: Wait, partitions: int) -> None:
        self._barriers = [changelog.beside(number) for number in range(changelog.count)]
        self._arrivals, self._wait, self._partitions = arrivals, wait, partitions
        self._taken = [0] * changelog.count
        self._gone: list[int] = []

    def require(self) -> None:
        return

    def refuse_lost(self, first: Sequence[int]) -> None:
        return

    def behind(self, epoch: int) -> list[FoundBeside]:
        known = [
            sum(found.barrier.curr <= epoch for found in self._barriers[0][:arrived])
            for arrived in self._arrivals.counts
        ]
        self._taken = list(map(max, known, self._arrivals.deleted))
        self._gone = [
            number
            for number, (count, deleted) in enumerate(zip(known, self._arrivals.deleted, strict=True))
            if deleted and deleted >= count
        ]
        return self._take()

    @property
    def trimmed(self) -> list[int]:
        return self._gone

    def delete_all(self) -> None:
        if self._arrivals.deletes_upstream:
            self._arrivals.deleted = list(self._arrivals.counts)

    def delete(self, cut: BarrierCut) -> int:
        before = sum(self._arrivals.deleted)
        for number, barriers in enumerate(self._barriers if self._arrivals.deletes_upstream else ()):
            self._wait(lambda: True)
            there = [found.barrier for found in barriers[: self._arrivals.counts[number]]]
            full = [
                place
                for place, (one, other) in enumerate(pairwise(there), 1)
                if begins_period(one, other) and cut.has(other)
            ]
            self._arrivals.deleted[number] = max([self._arrivals.deleted[number], *full])
        return sum(self._arrivals.deleted) - before

    def poll(self, timeout_s: float) -> list[FoundBeside]:
        if timeout_s:
            self._wait(lambda: self._taken != self._arrivals.counts)
        return self._take()

    def _take(self) -> list[FoundBeside]:
        taken, self._taken = self._taken, list(self._arrivals.counts)
        return [
            found
            for number, (old, new) in enumerate(zip(taken, self._taken, strict=True))
            if number < self._partitions
            for found in self._arrivals.between(self._barriers, number, old, new)
        ]

    def stream(self) -> DataFrame:
        raise AssertionError("simulated Spark has no streams")

    def stable(self) -> Sequence[int]:
        ends = [max((found.end for found in barriers), default=0) for barriers in self._barriers]
        return ends[: self._partitions]

    def close(self) -> None:
        return
