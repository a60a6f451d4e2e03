"""Lanes of a batch with few records: each reads the upstream's records itself, in a Spark task of its own.

That is one stage without a query, where `on_spark` has two and an exchange between them. What a lane gets is the same,
so the same plan sends the same bytes in either way, and a batch may begin in one and be repeated in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from streaming.lane.task import LaneOutcome, LaneTask
from streaming.protocol.lanes.quiet import RunLane
from streaming.runtime import failpoints
from streaming.runtime.tasks import run_numbers
from streaming.source.direct_read import DirectReader, UnreadError, ranges_of
from streaming.source.routes import Routes


@dataclass(frozen=True)
class DirectLanes:
    """`begins` are the first offsets that are read, where they are not the topic's first ones."""

    spark: Callable[[], SparkSession]
    reader: DirectReader
    begins: tuple[int, ...]
    run: RunLane

    def outcomes(self, task: LaneTask) -> list[LaneOutcome] | None:
        """The outcome of every lane, as `LaneRunner.carry_out`; None where a lane could not read its records.

        Lanes that have sent their part by then report `already_sent` when the task is carried out in another way.
        """
        run, reader, begins = self.run, self.reader, self.begins

        def work(lane: int) -> LaneOutcome | None:
            failpoints.obey(task.failpoint)
            try:
                rows = lane_rows(task, lane, reader, begins)
            except UnreadError:
                return None
            return run(task, lane, [rows], rows.schema)

        found = run_numbers(self.spark(), task.plan.lanes, work)
        read = [outcome for outcome in found if outcome is not None]
        return read if len(read) == len(found) else None


def lane_rows(task: LaneTask, lane: int, reader: DirectReader, begins: tuple[int, ...]) -> pa.RecordBatch:
    """The records of a lane, as the exchange brings them to it. Raises: UnreadError."""
    ranges, format_ = ranges_of(task.plan, begins), task.upstream_format
    if task.table.by_partition:
        return reader.decoded(_own(ranges, task, lane), format_)
    return reader.decoded(ranges, format_, Routes.of(task.plan, task.table), lane)


def _own(ranges: Mapping[int, tuple[int, int]], task: LaneTask, lane: int) -> Mapping[int, tuple[int, int]]:
    return {number: ranges[number] for number in task.upstream_partitions(lane) if number in ranges}
