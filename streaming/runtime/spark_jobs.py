"""Spark jobs: Python work in tasks, the progress of running jobs, and the end of one that makes none."""

from __future__ import annotations

import functools
import operator
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.sql.udf import _create_udf
from pyspark.util import PythonEvalType

from state.maintenance.compaction import CompactionPart, CompactionResult, compact_part
from state.maintenance.merge import Merge, Merged, merge_files
from streaming.runtime.session import Result, run_job

Part = TypeVar("Part")

_RESULT = pa.schema([("result", pa.binary())])
_RESULT_TYPE = StructType([StructField("result", BinaryType())])


def run_each(rows: DataFrame, work: Callable[[int, Iterable[pa.RecordBatch]], Result]) -> list[Result]:
    """Run `work(number, batches)` for every partition of some rows, in Python workers; the results in no order.

    Work and results travel by pickle, between our own processes only: a result must hold nothing executable that came
    from a topic. Raises: EnvironmentProblem(SPARK_FAILED), for an error of `work` as well.
    """

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        result = work(context.partitionId(), batches)
        for _ in batches:
            pass  # Spark ends a worker that leaves rows unread, and the next task waits for a new one
        yield pa.RecordBatch.from_pylist([{"result": pickle.dumps(result)}], schema=_RESULT)

    found = run_job(mapped_in_arrow(rows, task, _RESULT_TYPE).collect)
    return [pickle.loads(row["result"]) for row in found]  # noqa: S301  # our own bytes, a moment old


def mapped_in_arrow(
    rows: DataFrame,
    function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    result: StructType,
) -> DataFrame:
    """`DataFrame.mapInArrow` without its import of pandas, which costs half a second of a start, and 40 MB."""
    mapped = _create_udf(function, result, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = mapped(*(rows[name] for name in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)


def run_numbers(session: SparkSession, count: int, work: Callable[[int], Result]) -> list[Result]:
    """Run `work(number)` for every number below `count`, a task each; the results in the order of the numbers.

    It is `run_each` without rows: without a query plan it costs 15 ms in place of 40, and the workers are the same.
    """
    numbers = session.sparkContext.parallelize(range(count), count)
    return run_job(numbers.map(work).collect)


# Compactions and merges have a task for each part. Lanes go first: their pool has a minimum share of slots, that of the
# maintenance none (`fairscheduler.xml`), so a batch waits for one part at most, and never for a whole compaction.
MAINTENANCE_POOL = "maintenance"


def compact_on(spark: Callable[[], SparkSession], parts: Sequence[CompactionPart]) -> CompactionResult:
    """Compact all parts, and add up their results.

    Raises: EnvironmentProblem(SPARK_FAILED), also for a part that could not read or write a file.
    """
    return functools.reduce(operator.or_, _on_workers(spark(), compact_part, parts), CompactionResult())


def merge_on(spark: Callable[[], SparkSession], merges: Sequence[Merge]) -> list[Merged]:
    """Carry out all merges, in no order. Raises: as `compact_on`."""
    return _on_workers(spark(), merge_files, merges)


def _on_workers(session: SparkSession, work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    session.sparkContext.setLocalProperty("spark.scheduler.pool", MAINTENANCE_POOL)
    tasks = session.range(0, len(parts), 1, len(parts))
    return run_each(tasks, lambda number, batches: work(parts[number]))


# Spark reports the finished tasks of a stage, and with each heartbeat of its executors (ten seconds) what the running
# ones have read, written and given to Python so far. If none of that changes, no progress is known: a task waits for a
# file system or a broker without an end, an executor is gone silently, or slots never come.
Sign = tuple[int | str, ...]
"""A value for a job that changes while the job makes progress."""

_FIGURES = (
    "numCompleteTasks",
    "numActiveTasks",
    "inputRecords",
    "shuffleReadRecords",
    "shuffleReadBytes",
    "shuffleWriteRecords",
    "memoryBytesSpilled",
)


def running(session: SparkSession, lasting: Collection[int] = ()) -> dict[int, Sign]:
    """The jobs that are under way. A dozen calls into the JVM for each stage, some milliseconds.

    For jobs in `lasting` the metrics of each operator are read as well: the only sign of a task that has read all its
    rows and hands them on after they are sorted (`sorted_rows`).
    """
    context = session.sparkContext
    if context._jsc is None:  # stopped
        return {}
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    found: dict[int, Sign] = {}
    for job in tracker.getActiveJobsIds():
        info = tracker.getJobInfo(job)
        if info is not None:
            found[job] = tuple(figure for stage in info.stageIds for figure in _figures(store, stage))
    closer = found.keys() & set(lasting)
    for query in _open_queries(session) if closer else ():
        for job in closer:
            if query.jobs().contains(job):
                found[job] += (_metrics(session, query),)
    return found


def sorted_rows(rows: DataFrame, order: Sequence[Column]) -> DataFrame:
    """Sort each partition so that Spark counts the rows as they come out; no figure of a sort itself rises then.

    The filter lets all rows through and counts them. It must be non-deterministic to Spark, or it would be moved before
    the sort.
    """
    return rows.sortWithinPartitions(*order).filter(F.monotonically_increasing_id() >= 0)


def _open_queries(session: SparkSession) -> list[Any]:
    queries = session._jsparkSession.sharedState().statusStore().executionsList()
    every = (queries.apply(number) for number in range(queries.size()))
    return [query for query in every if query.completionTime().isEmpty()]


def _metrics(session: SparkSession, query: Any) -> str:
    store = session._jsparkSession.sharedState().statusStore()
    return str(store.executionMetrics(query.executionId()).toString())


def _figures(store: Any, stage: int) -> tuple[int, ...]:
    with suppress(Py4JJavaError):  # of a stage that is not known any more
        data = store.lastStageAttempt(stage)
        return tuple(int(getattr(data, figure)()) for figure in _FIGURES)
    return ()


def end(session: SparkSession, job: int) -> None:
    """Fail a job, its tasks' Python workers included. The call that waits for it raises at once."""
    session.sparkContext._jsc.sc().cancelJob(job)
