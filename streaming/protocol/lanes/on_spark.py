"""Runs the lanes of a batch in the way that its task allows (`Way`), and waits for all of them.

Where there is more than a few records it is one Spark job: raw records are read and exchanged by lane where they have
to be, each lane's task decodes its own, and results come back as values.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from schemas.errors import BackfillError, Code, EnvironmentProblem
from streaming.core.offset_ranges import history_ranges
from streaming.lane.run import run_lane
from streaming.lane.task import Crashed, Failed, LaneOutcome, LaneTask, Undone
from streaming.protocol.lanes import Way
from streaming.protocol.lanes.direct import DirectLanes
from streaming.protocol.lanes.quiet import QuietLanes
from streaming.runtime import failpoints
from streaming.runtime.paths import log_folder
from streaming.runtime.session import JVM_GONE
from streaming.runtime.tasks import run_each
from streaming.source.decoded import decoded_schema_of
from streaming.source.direct_read import DirectReader
from streaming.source.exchange import Exchange, unpacked
from streaming.source.kafka import UpstreamSource
from streaming.source.quiet import QuietIntervals
from streaming.source.raw.decoding import decoded
from streaming.source.raw.records import Records
from streaming.source.routes import Routes


class Lanes:
    """Runs the lanes of a batch and waits for all of them."""

    def __init__(self, source: UpstreamSource, intervals: QuietIntervals, reader: DirectReader) -> None:
        self._source = source
        self._direct = DirectLanes(lambda: source.spark, reader, source.begins, _caught)
        self._quiet = QuietLanes(intervals.is_quiet, _caught, same_machine=self._is_local)
        self.is_cold = True
        """As in `LaneRunner`: no query was planned yet."""

    @property
    def slots(self) -> int:
        """Lanes that Spark runs at once."""
        return self._source.spark.sparkContext.defaultParallelism

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
        way = self._way(task)
        outcomes: list[LaneOutcome] | None = None
        if way is Way.EMPTY:
            outcomes = self._quiet.carry_out(task)
        elif way is Way.DIRECT:
            outcomes = self._direct.outcomes(task)
        return _sound(self._by_spark(task) if outcomes is None else outcomes)

    def _way(self, task: LaneTask) -> Way:
        if self._quiet.may_take(task):
            return Way.EMPTY
        return Way.DIRECT if task.is_short else Way.ON_SPARK

    def _by_spark(self, task: LaneTask) -> list[LaneOutcome]:
        self.is_cold = False
        if reads_in_place(task):
            plan = task.plan
            rows, places = self._source.in_place(
                plan.first_offsets,
                plan.end_offsets,
                plan.lanes,
                in_order_of=plan.barriers if task.in_parts else (),
                history=history_ranges(plan),
            )
            return run_each(rows, _lane_work(task, _of_rows, places))
        return run_each(self._exchanged(task), _lane_work(task, unpacked, range(task.plan.lanes)))

    def _exchanged(self, task: LaneTask) -> DataFrame:
        plan, source = task.plan, self._source
        ends = tuple(barrier.ends for barrier in plan.barriers) if task.in_parts else ()
        return source.exchanged(
            Exchange(task.upstream_format, task.table, Routes.of(plan, task.table), ends),
            source.range(plan.first_offsets, plan.end_offsets),
            [source.range(*zip(*layer, strict=True)) for layer in history_ranges(plan)],
        )


def reads_in_place(task: LaneTask) -> bool:
    """Whether each lane may read a share of the upstream's partitions as they are, and nothing has to be exchanged.

    That is where these are its vnodes; and where all that lanes do is write the log, as when a replica is built from
    a topic: it is all the same then in which of them a change is.
    """
    plan, table = task.plan, task.table
    if table.by_partition:
        return True
    if plan.lanes > len(plan.first_offsets):
        return False
    is_for_lanes = plan.sent_jobs or plan.parked or plan.reading is not None or task.replica is not None
    return not table.has_key or not is_for_lanes


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
    task: LaneTask,
    records_of: Callable[[Iterable[pa.RecordBatch]], Iterator[Records]],
    places: Sequence[int],
) -> Callable[[int, Iterable[pa.RecordBatch]], LaneOutcome]:
    def work(place: int, batches: Iterable[pa.RecordBatch]) -> LaneOutcome:
        failpoints.obey(task.failpoint)
        rows = map(partial(decoded, format_=task.upstream_format, table=task.table), records_of(batches))
        return _caught(task, places[place], rows, decoded_schema_of(task.upstream_format, task.table))

    return work


def _of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Records]:
    return (Records.concatenated([batch]) for batch in batches)


def _caught(task: LaneTask, lane: int, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> LaneOutcome:
    """A lane's outcome, whatever it ends with."""
    try:
        return run_lane(task, lane, batches, schema)
    except BackfillError as error:
        return Undone(lane, Failed(error))
    except Exception:  # noqa: BLE001  # Spark would bury it in a Java stack and give up on the stream
        return Undone(lane, Crashed(traceback.format_exc()))
