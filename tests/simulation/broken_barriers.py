"""Barriers that get one thing wrong: their source, their deletion, what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from schemas.records import Barrier, RecordId
from state.values.aligned import AlignedBarrier
from state.values.plan import BatchPlan
from streaming.compaction.maintenance import BarrierKeeping
from streaming.source.barriers.source import BarrierSource, Newest
from tests.simulation.beside import OwnBeside
from tests.simulation.broker import Broker, Producer
from tests.simulation.instance import Instance


class _EndsAreInclusive(BarrierSource):
    def __init__(self, source: BarrierSource) -> None:
        self._source = source

    def stream(self) -> DataFrame:
        return self._source.stream()

    def newest(self) -> Newest:
        return self._source.newest()

    def take_duplicates(self, end: AlignedBarrier) -> Sequence[RecordId]:
        return self._source.take_duplicates(end)

    def begin(self, position: AlignedBarrier | None, first: Sequence[int]) -> list[AlignedBarrier]:
        return [_inclusive(each) for each in self._source.begin(position, first)]

    def aligned(self, records: DataFrame) -> list[AlignedBarrier]:
        return [_inclusive(each) for each in self._source.aligned(records)]


def _inclusive(aligned: AlignedBarrier) -> AlignedBarrier:
    return (
        aligned if aligned.in_data else replace(aligned, ends=tuple(max(0, end - 1) for end in aligned.ends))
    )


class TakesEndsForOffsets(Instance):
    """The last record before a barrier beside the data comes with the next one."""

    def source(self) -> BarrierSource:
        return _EndsAreInclusive(super().source())


class _DeletesAhead(BarrierKeeping):
    def delete(self, plan: BatchPlan) -> None:
        if isinstance(self._source, OwnBeside):
            self._source.delete_all()


class DeletesBarriersThatAreToCome(Instance):
    """Deletes barriers of the upstream behind the last finished batch as well."""

    keeping_type = _DeletesAhead


class _LeavesOutOne(Producer):
    def send_barrier_beside(self, topic: str, partition: int, barrier: Barrier, end: int) -> None:
        if barrier.full:
            barrier = replace(barrier, progress=barrier.progress[1:])
        super().send_barrier_beside(topic, partition, barrier, end)


class _SendsPartlyFull(Broker):
    def producer(self, transactional_id: str) -> Producer:
        made = super().producer(transactional_id)
        return _LeavesOutOne(self, self.scheduler, transactional_id, made.epoch)


class SendsPartlyFullBarriers(Instance):
    """A full barrier lacks a vnode."""

    broker_type = _SendsPartlyFull
