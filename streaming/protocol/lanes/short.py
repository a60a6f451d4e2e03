"""Lanes of a short batch: each reads and decodes the upstream's records itself, in a Spark task of its own.

That is one stage without a query, where `on_spark` has two and an exchange between them. What a lane gets is the same,
so the same plan sends the same bytes in either way, and a batch may begin in one and be repeated in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from streaming.core.history import readers
from streaming.core.planning import markers_of
from streaming.lane.task import LaneOutcome, LaneTask
from streaming.protocol.lanes.quiet import RunLane
from streaming.runtime import failpoints
from streaming.runtime.tasks import run_numbers
from streaming.source.few_records import FewRecords, UnfitError, UnreadError, ranges_of


class Unfit(Enum):
    """Why lanes can't read the records of a batch themselves.

    ODD: what is in one of them, so others by the same writer are likely to be, too. UNREAD: nothing is known of that.
    """

    ODD = auto()
    UNREAD = auto()


@dataclass(frozen=True)
class ShortLanes:
    """`begins` are the first offsets that are read, where they are not the topic's first ones."""

    spark: Callable[[], SparkSession]
    records: FewRecords
    begins: tuple[int, ...]
    run: RunLane

    def carry_out(self, task: LaneTask) -> list[LaneOutcome] | Unfit:
        """The outcome of every lane, as `LaneRunner.carry_out`; or why another way has to be gone.

        Lanes that have sent their part by then are met again as such.
        """
        run, records, begins = self.run, self.records, self.begins

        def work(lane: int) -> LaneOutcome | Unfit:
            failpoints.obey(task.failpoint)
            try:
                rows = lane_rows(task, lane, records, begins)
            except UnreadError:
                return Unfit.UNREAD
            except UnfitError:
                return Unfit.ODD
            return run(task, lane, [rows], rows.schema)

        return all_or_unfit(run_numbers(self.spark(), task.plan.lanes, work))


def all_or_unfit(outcomes: Sequence[LaneOutcome | Unfit]) -> list[LaneOutcome] | Unfit:
    """The outcomes of all lanes, if the records of none were unfit."""
    unfit = {outcome for outcome in outcomes if isinstance(outcome, Unfit)}
    if unfit:
        return Unfit.ODD if Unfit.ODD in unfit else Unfit.UNREAD
    return [outcome for outcome in outcomes if not isinstance(outcome, Unfit)]


def lane_rows(task: LaneTask, lane: int, records: FewRecords, begins: tuple[int, ...]) -> pa.RecordBatch:
    """The records of a lane, as `UpstreamSource` brings them to it; barriers' markers are left out.

    Raises: UnfitError, in every lane alike, unless vnodes are partitions: then in those whose records are unfit.
    """
    plan = task.plan
    return records.decoded(
        _ranges(task, lane, begins),
        task.upstream_format,
        markers=markers_of(plan),
        skipped=frozenset(plan.skipped),
        wanted=None if task.table.by_partition else partial(_of_lane, task, lane),
        by_columns=task.only_by_columns,
    )


def _ranges(task: LaneTask, lane: int, begins: tuple[int, ...]) -> Mapping[int, tuple[int, int]]:
    found = ranges_of(task.plan, begins)
    if not task.table.by_partition:
        return found
    return {number: found[number] for number in task.upstream_partitions(lane) if number in found}


def _of_lane(task: LaneTask, lane: int, partitions: pa.Array, vnodes: pa.Array) -> pa.Array:
    """Where a record is of one of the lane's vnodes; jobs that read the upstream need those of its partitions, too."""
    is_own = _within(pc.fill_null(vnodes, 0), task.vnodes(lane))
    if readers(task.plan):
        of_partition = _within(partitions, task.upstream_partitions(lane))
        is_own = pc.or_(is_own, pc.and_(of_partition, vnodes.is_valid()))
    return is_own


def _within(numbers: pa.Array, wanted: range) -> pa.Array:
    return pc.and_(pc.greater_equal(numbers, wanted.start), pc.less(numbers, wanted.stop))
