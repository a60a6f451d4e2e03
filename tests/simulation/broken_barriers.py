"""A barrier source that gets one thing wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from schemas.records import RecordId
from state.values.plan import AlignedBarrier
from streaming.source.barriers.source import BarrierSource, Newest
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
