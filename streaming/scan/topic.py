"""Source backfill: the upstream's own records are read, partition by partition by offset.

A part is an upstream partition, a position the first offset that was not read. So a slice is a range of offsets that
ends, at the latest, where the batch's changes begin, and its records come to the lanes together with these
(`streaming.core.offset_ranges`, `UpstreamSource.exchanged`): nothing is read here. Offsets are no count of records:
aborted ones and transaction markers have some too, so a slice may turn out smaller than its budget, or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.formats.protocol import UpstreamFormat
from schemas.job import JobDefinition
from schemas.position import Key
from state.values.pin import Pin
from state.values.plan import Slice
from state.values.progress import Completed, InProgress, Progress
from streaming.core.planning import Amount, Cut
from streaming.scan.protocol import LiveRows, PinnedScan, Scan, SliceReader

_ALL = np.iinfo(np.int64).max


@dataclass(frozen=True)
class UpstreamLog:
    """The upstream topic, as a scan needs it.

    `begins` gives the first offset that each partition still holds; `likely_bytes` the likely memory of a number of
    changes.
    """

    format: UpstreamFormat
    begins: Callable[[], Sequence[int]]
    likely_bytes: Callable[[int], int]


@dataclass(frozen=True)
class PinnedTopic(PinnedScan):
    """`partitions` is the number of the upstream's. Nothing is read by it: see the module."""

    partitions: int

    def reader(self, parts: frozenset[int], columns: Sequence[str]) -> SliceReader:
        def nothing(item: Slice) -> Iterator[pa.Table]:
            return iter(())

        return nothing

    def parts_of(self, changes: LiveRows) -> npt.NDArray[np.int32]:
        return changes.partitions

    def covered(self, changes: LiveRows, progress: Mapping[int, Progress]) -> npt.NDArray[np.bool_]:
        upto = np.zeros(self.partitions, dtype=np.int64)
        for part, state in progress.items():
            if isinstance(state, Completed):
                upto[part] = _ALL
            elif isinstance(state, InProgress):
                upto[part] = state.position[0]
        result: npt.NDArray[np.bool_] = changes.offsets < upto[changes.partitions]
        return result


class SourceBackfill(Scan):
    """The scan of the upstream topic. Requests its first offsets once per pin."""

    def __init__(self, log: UpstreamLog) -> None:
        self._log = log
        self._pin: Pin | None = None
        self._begins: Sequence[int] = ()

    def cut(self, pin: Pin, part: int, after: Key | None, limit: Amount) -> Cut:
        begin = self._begin_at(pin)[part] if after is None else after[0]
        left, row_bytes = max(pin.offsets[part] - begin, 0), max(self._log.likely_bytes(1), 1)
        count = max(min(limit.rows, limit.size // row_bytes), 1)
        if left <= count:
            return Cut(None, left, left * row_bytes)
        return Cut((begin + count,), count, count * row_bytes)

    def _begin_at(self, pin: Pin) -> Sequence[int]:
        if pin != self._pin:
            self._pin, self._begins = pin, self._log.begins()
        return self._begins

    def pinned(self, pin: Pin, parts: frozenset[int]) -> PinnedTopic:
        return PinnedTopic(len(pin.offsets))

    def incompatibility(self, job: JobDefinition, pin: Pin) -> str | None:
        partitions = len(pin.offsets)
        if job.output_partitions != partitions:
            return f"read: topic with {job.output_partitions} output_partitions, of {partitions} partitions"
        return job.scan.misfit(self._log.format)

    def lost(self, pin: Pin, progress: Mapping[int, Progress]) -> str | None:
        begins = self._begin_at(pin)
        gone = [
            f"{part}@{state.position[0]} to {part}@{begins[part] - 1}"
            for part, state in sorted(progress.items())
            if isinstance(state, InProgress) and state.position[0] < begins[part]
        ]
        return ", ".join(gone) or None
