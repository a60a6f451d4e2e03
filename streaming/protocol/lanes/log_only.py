"""Lanes of a batch that no job waits for, as when a replica is built from a topic: all that they do is write the log.

What is not sent needs no lane of its vnode. So each lane takes some of the upstream's partitions as they are: Spark
reads them and hands the bytes on, nothing is exchanged, and the lane decodes them by whole columns. It takes half the
CPU that Spark takes to decode a record, to write it again in order to see whether it is sound, and to exchange it.

Formats without such a reader, and batches with a record that it finds odd, go by Spark's columns as ever; and so does
what asks for rows that a lane keeps of its vnodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from schemas.formats.protocol import Images
from streaming.core.history import history_ranges
from streaming.lane.task import LaneOutcome, LaneTask
from streaming.protocol.lanes.quiet import RunLane
from streaming.protocol.lanes.short import Unfit, all_or_unfit
from streaming.runtime import failpoints
from streaming.runtime.tasks import run_each
from streaming.source.few_records import Records, UnfitError, decoded_columns, few_schema, marked_columns
from streaming.source.kafka import UpstreamSource


@dataclass(frozen=True)
class LogOnlyLanes:
    """`run` lets an UnfitError of the rows pass."""

    source: UpstreamSource
    run: RunLane

    @staticmethod
    def may_take(task: LaneTask) -> bool:
        """Whether nothing of the task is for one of its lanes alone, and its records can be read by columns."""
        plan, table, format_ = task.plan, task.table, task.upstream_format
        return (
            not plan.sent_jobs
            and not plan.parked
            and plan.reading is None
            and task.replica is None
            and not history_ranges(plan)
            and plan.lanes <= len(plan.first_offsets)
            and table.has_key
            and not table.by_partition
            and format_.images is not Images.ROWS
            and format_.column_reader(table.columns, table.key_columns) is not None
        )

    def carry_out(self, task: LaneTask) -> list[LaneOutcome] | Unfit:
        """The outcome of every lane, as `LaneRunner.carry_out`, if none of the records is odd."""
        run, schema = self.run, few_schema(task.upstream_format, task.table)

        def work(lane: int, batches: Iterable[pa.RecordBatch]) -> LaneOutcome | Unfit:
            failpoints.obey(task.failpoint)
            try:
                return run(task, lane, _decoded(batches, task), schema)
            except UnfitError:
                return Unfit.ODD

        rows = self.source.raw_in_place(task.plan.first_offsets, task.plan.end_offsets, task.plan.lanes)
        return all_or_unfit(run_each(rows, work))


def _decoded(batches: Iterable[pa.RecordBatch], task: LaneTask) -> Iterator[pa.RecordBatch]:
    """Raises: UnfitError."""
    for batch in batches:
        *columns, is_marked = batch.columns
        records, marks = Records(*columns), is_marked.true_count
        if marks:
            yield marked_columns(records.filter(is_marked), task.upstream_format, task.table)
            records = records.filter(pc.invert(is_marked))
        yield decoded_columns(records, task.upstream_format, task.table, by_columns=True)
