"""One Spark job a batch: decode, exchange by lane, one lane task each; their results come back as values.

None for a batch without records, see `streaming.protocol.lanes.quiet`, and one of a single stage for few of them, see
`streaming.protocol.lanes.short`, and for those that no job waits for, see `streaming.protocol.lanes.log_only`. Where
vnodes are the upstream's partitions nothing is exchanged: each lane task reads its own.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from schemas.errors import BackfillError, Code, EnvironmentProblem
from streaming.core.history import history_ranges, readers
from streaming.lane.run import run_lane
from streaming.lane.task import Crashed, Failed, LaneOutcome, LaneTask, Undone
from streaming.protocol.lanes.log_only import LogOnlyLanes
from streaming.protocol.lanes.odd_records import OddRecords
from streaming.protocol.lanes.quiet import QuietLanes
from streaming.protocol.lanes.short import ShortLanes, Unfit
from streaming.runtime import failpoints
from streaming.runtime.paths import log_folder
from streaming.runtime.session import JVM_GONE
from streaming.runtime.tasks import run_each
from streaming.source.few_records import FewRecords, UnfitError
from streaming.source.kafka import UpstreamSource
from streaming.source.quiet import QuietIntervals


class Lanes:
    """Runs the lanes of a batch and waits for all of them."""

    def __init__(self, source: UpstreamSource, intervals: QuietIntervals, records: FewRecords) -> None:
        self._source = source
        self._short = ShortLanes(lambda: source.spark, records, source.begins, _caught)
        self._quiet = QuietLanes(intervals.is_quiet, _caught, same_machine=self._is_local)
        self._log_only = LogOnlyLanes(source, _caught)
        self._schema: pa.Schema | None = None
        self.is_cold = True
        """As in `LaneRunner`: no query was planned yet."""
        self._odd = OddRecords()

    @property
    def slots(self) -> int:
        """Lanes that Spark runs at once."""
        return self._source.spark.sparkContext.defaultParallelism

    @property
    def reads_columns(self) -> bool:
        """Whether records were not too odd for that of late."""
        return not self._odd.are_likely

    def _is_local(self) -> bool:
        return str(self._source.spark.sparkContext.master).startswith("local")

    def warm_up(self) -> None:
        """Have Spark carry out a query, which takes seconds the first time, beside batches that need none."""
        # If it fails, so will the first batch that does.
        with suppress(EnvironmentProblem, *JVM_GONE):
            spark = self._source.spark
            run_each(spark.range(0, self.slots, 1, self.slots), lambda slot, batches: None)

    def carry_out(self, task: LaneTask) -> list[LaneOutcome]:
        """The outcome of every lane. Some may hold an error while others have sent their part.

        Raises: EnvironmentProblem(SPARK_FAILED) when the job itself failed; which lanes have sent is unknown then.
        """
        if self._quiet.may_take(task):
            return _sound(self._quiet.carry_out(task))
        outcomes = self._without_exchange(task)
        return _sound(self._by_spark(task) if isinstance(outcomes, Unfit) else outcomes)

    def _without_exchange(self, task: LaneTask) -> list[LaneOutcome] | Unfit:
        outcomes: list[LaneOutcome] | Unfit = Unfit.UNREAD
        by_columns = False
        if task.is_short:
            outcomes, by_columns = self._short.carry_out(task), task.only_by_columns
        if outcomes is Unfit.UNREAD and self.reads_columns and self._log_only.may_take(task):
            outcomes, by_columns = self._log_only.carry_out(task), True
        if by_columns and outcomes is not Unfit.UNREAD:
            self._odd.tried(were_odd=outcomes is Unfit.ODD)
        else:
            self._odd.passed()
        return outcomes

    def _by_spark(self, task: LaneTask) -> list[LaneOutcome]:
        self.is_cold = False
        self._source.read_as(task.upstream_format)
        rows, places = self._rows(task)
        if self._schema is None:
            self._schema = to_arrow_schema(rows.schema)
        return run_each(rows, _lane_work(task, self._schema, places))

    def _rows(self, task: LaneTask) -> tuple[DataFrame, Sequence[int]]:
        """The records of the task, and the lane of each of Spark's partitions."""
        plan, order = task.plan, task.plan.barriers if task.in_parts else ()
        if task.table.by_partition:
            history = history_ranges(plan)
            return self._source.rows_in_place(
                plan.first_offsets, plan.end_offsets, plan.lanes, in_order_of=order, history=history
            )
        rows = self._source.lane_rows(
            self._source.range(plan.first_offsets, plan.end_offsets),
            plan.lanes,
            in_order_of=order,
            by_partition=len(plan.first_offsets) if readers(plan) or not task.table.has_key else 0,
            history=[self._source.range(*zip(*layer, strict=True)) for layer in history_ranges(plan)],
        )
        return rows, range(plan.lanes)


def _sound(outcomes: list[LaneOutcome]) -> list[LaneOutcome]:
    for outcome in outcomes:
        if isinstance(outcome, Undone) and isinstance(outcome.why, Crashed):
            raise _crashed(outcome.lane, outcome.why.trace)
    return outcomes


def _crashed(lane: int, trace: str) -> EnvironmentProblem:
    file = log_folder() / f"lane-{os.getpid()}.log"
    with file.open("a", encoding="utf-8") as out:
        out.write(trace)
    return EnvironmentProblem(
        Code.SPARK_FAILED,
        where=f"lane {lane}",
        found="an unexpected error",
        expected="the lane to come to its end",
        next_step=f"report it with {file}; nothing of the lane's batch became visible",
    )


def _lane_work(
    task: LaneTask, schema: pa.Schema, places: Sequence[int]
) -> Callable[[int, Iterable[pa.RecordBatch]], LaneOutcome]:
    def work(place: int, batches: Iterable[pa.RecordBatch]) -> LaneOutcome:
        failpoints.obey(task.failpoint)
        return _caught(task, places[place], batches, schema)

    return work


def _caught(task: LaneTask, lane: int, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> LaneOutcome:
    """A lane's outcome, whatever it ends with. Raises: UnfitError of its `batches`."""
    try:
        return run_lane(task, lane, batches, schema)
    except BackfillError as error:
        return Undone(lane, Failed(error))
    except UnfitError:
        raise
    except Exception:  # noqa: BLE001  # Spark would bury it in a Java stack and give up on the stream
        return Undone(lane, Crashed(traceback.format_exc()))
