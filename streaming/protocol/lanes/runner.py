"""Runs the lanes of a batch in one of three ways, and waits for all of them.

A lane gets the same records in each way, and so sends the same bytes: a batch may begin in one and be repeated in
another.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from schemas.errors import BackfillError, Code, EnvironmentProblem
from streaming.core.offset_ranges import history_ranges
from streaming.lane.run import run_lane
from streaming.lane.task import Crashed, Failed, LaneOutcome, LaneTask, Undone
from streaming.runtime import failpoints
from streaming.runtime.paths import log_folder
from streaming.runtime.session import JVM_GONE, run_each, run_numbers
from streaming.runtime.timing import Stopwatch
from streaming.source.decoded import decoded, decoded_schema_of
from streaming.source.direct_read import DirectReader, QuietIntervals, UnreadError, ranges_of
from streaming.source.exchange import Exchange, unpacked
from streaming.source.kafka import UpstreamSource
from streaming.source.records import Records, Routes

_MOST_EMPTY_LANES = 8
"""Lanes of an empty batch that the driver runs at once."""


class Way(StrEnum):
    """Ways to run the lanes of a batch."""

    EMPTY = "empty"
    """The interval has no records. The driver runs the lanes, which send a barrier: a Spark job would take longer."""
    DIRECT = "direct"
    """There are few records. Each lane reads its own from the topic, in a Spark job of one stage without a query."""
    SHUFFLED = "shuffled"
    """Spark reads the records and exchanges them by lane, unless lanes can have them where they are."""


class LaneRunner:
    """Runs lanes by Spark. `is_cold` until the first query, which takes Spark seconds more than those after it."""

    def __init__(self, source: UpstreamSource, intervals: QuietIntervals, reader: DirectReader) -> None:
        self._source, self._intervals, self._reader = source, intervals, reader
        self.is_cold = True

    @property
    def slots(self) -> int:
        """Lanes that Spark runs at once."""
        return self._source.spark.sparkContext.defaultParallelism

    def warm_up(self) -> None:
        """Have Spark run a query, which takes seconds the first time, while batches need none."""
        # If it fails, so will the first batch that needs one.
        with suppress(EnvironmentProblem, *JVM_GONE):
            spark = self._source.spark
            run_each(spark.range(0, self.slots, 1, self.slots), lambda slot, batches: None)

    def is_empty(self, task: LaneTask) -> bool:
        """True if the task has nothing to do but to send barriers. May read the ends of the interval in the topic."""
        plan = task.plan
        needs_spark = (
            task.in_parts
            or failpoints.names_a_lane()
            or plan.until is not None
            or plan.parked
            or any(job.slices for job in plan.sent_jobs)
            or history_ranges(plan)
            or (plan.reading is not None and plan.reading.due)
            # Rows that lanes keep from batch to batch are on the machines of Spark's workers.
            or (task.replica is not None and not self._is_local())
        )
        return not needs_spark and self._intervals.is_quiet(plan)

    def _is_local(self) -> bool:
        return str(self._source.spark.sparkContext.master).startswith("local")

    def run(self, task: LaneTask, way: Way) -> list[LaneOutcome] | None:
        """The outcome of every lane; None if a lane can't read its records `DIRECT`, which `SHUFFLED` can.

        Some lanes may hold an error, or may not have read, while others have sent their part: those report
        `already_sent` when the task is run again.

        Raises: EnvironmentProblem(SPARK_FAILED) when the job itself failed. It is unknown then which lanes have sent,
        and some may still be at it.
        """
        ways = {Way.EMPTY: self._run_empty, Way.DIRECT: self._run_direct, Way.SHUFFLED: self._run_shuffled}
        outcomes = ways[way](task)
        for outcome in outcomes or ():
            if isinstance(outcome, Undone) and isinstance(outcome.why, Crashed):
                raise _crashed(outcome.lane, outcome.why.trace)
        return outcomes

    def _run_empty(self, task: LaneTask) -> list[LaneOutcome]:
        # The same function on the same task, so a driver that dies in the middle of it leaves what a lane leaves.
        lanes, schema = range(task.plan.lanes), _schema_of(task)
        with ThreadPoolExecutor(min(len(lanes), _MOST_EMPTY_LANES), "empty-lane") as threads:
            return list(threads.map(lambda lane: _caught(task, lane, [], schema), lanes))

    def _run_direct(self, task: LaneTask) -> list[LaneOutcome] | None:
        reader, begins = self._reader, self._source.begins

        def work(lane: int) -> LaneOutcome | None:
            failpoints.obey(task.failpoint)
            watch = Stopwatch()
            try:
                rows = _read_directly(task, lane, reader, begins, watch)
            except UnreadError:
                return None
            return _caught(task, lane, [rows], rows.schema, watch)

        found = run_numbers(self._source.spark, task.plan.lanes, work)
        read = [outcome for outcome in found if outcome is not None]
        return read if len(read) == len(found) else None

    def _run_shuffled(self, task: LaneTask) -> list[LaneOutcome]:
        self.is_cold = False
        if reads_in_place(task):
            plan = task.plan
            rows, lanes = self._source.in_place(
                plan.first_offsets,
                plan.end_offsets,
                plan.lanes,
                in_order_of=plan.barriers if task.in_parts else (),
                history=history_ranges(plan),
                headers=plan.headers,
            )
            return run_each(rows, _lane_work(task, _of_rows, lanes))
        records_of = partial(unpacked, headers=bool(task.plan.headers), times=task.moves_from is not None)
        return run_each(self._exchanged(task), _lane_work(task, records_of, range(task.plan.lanes)))

    def _exchanged(self, task: LaneTask) -> DataFrame:
        plan, source = task.plan, self._source
        ends = tuple(barrier.ends for barrier in plan.barriers) if task.in_parts else ()
        headers = bool(plan.headers)
        return source.exchanged(
            Exchange(
                task.upstream_format,
                task.read_table,
                Routes.of(plan, task.table),
                ends,
                plan.headers,
                task.moves_from,
            ),
            source.range(plan.first_offsets, plan.end_offsets, headers=headers),
            [source.range(*zip(*layer, strict=True), headers=headers) for layer in history_ranges(plan)],
        )


def reads_in_place(task: LaneTask) -> bool:
    """True if each lane may read a share of the upstream's partitions, without an exchange.

    So it is where these are its vnodes; and where lanes only write the log, as when a replica is built from a topic: a
    change may then be in any of them.
    """
    plan, table = task.plan, task.table
    if table.by_partition:
        return True
    if plan.lanes > len(plan.first_offsets) or task.moves_from is not None:
        return False
    is_for_lanes = plan.sent_jobs or plan.parked or plan.reading is not None or task.replica is not None
    return not table.has_key or not is_for_lanes


def _read_directly(
    task: LaneTask, lane: int, reader: DirectReader, begins: tuple[int, ...], watch: Stopwatch
) -> pa.RecordBatch:
    """The records of a lane, as the exchange brings them to it. Raises: UnreadError."""
    ranges, format_ = ranges_of(task.plan, begins), task.upstream_format
    reader = replace(reader, table=task.read_table)
    if task.table.by_partition:
        own = {number: ranges[number] for number in task.upstream_partitions(lane) if number in ranges}
        return reader.decoded(own, format_, watch=watch, headers=task.plan.headers)
    routes = Routes.of(task.plan, task.table)
    times = task.moves_from is not None
    return reader.decoded(ranges, format_, routes, lane, watch, headers=task.plan.headers, times=times)


def _schema_of(task: LaneTask) -> pa.Schema:
    wanted = {"headers": bool(task.plan.headers), "times": task.moves_from is not None}
    return decoded_schema_of(task.upstream_format, task.read_table, **wanted)


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
    lanes: Sequence[int],
) -> Callable[[int, Iterable[pa.RecordBatch]], LaneOutcome]:
    def work(number: int, batches: Iterable[pa.RecordBatch]) -> LaneOutcome:
        failpoints.obey(task.failpoint)
        watch, schema = Stopwatch(), _schema_of(task)
        return _caught(task, lanes[number], _decoded(task, records_of(batches), watch), schema, watch)

    return work


def _decoded(task: LaneTask, found: Iterable[Records], watch: Stopwatch) -> Iterator[pa.RecordBatch]:
    for records in found:
        watch.lap("read")
        rows = decoded(records, task.upstream_format, task.read_table)
        watch.lap("decode")
        yield rows
    watch.lap("read")


def _of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Records]:
    return (Records.concatenated([batch]) for batch in batches)


def _caught(
    task: LaneTask,
    lane: int,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    watch: Stopwatch | None = None,
) -> LaneOutcome:
    """A lane's outcome, with any error as a value."""
    try:
        return run_lane(task, lane, batches, schema, watch)
    except BackfillError as error:
        return Undone(lane, Failed(error))
    except Exception:  # noqa: BLE001  # Spark would bury it in a Java stack and give up on the stream
        return Undone(lane, Crashed(traceback.format_exc()))
