"""The Spark session of the service: its JVM, its secrets, its jobs, its end.

What the JVM says goes to a log file; the terminal belongs to the command. The JVM reads its standard input, a pipe
from this process, and leaves when the pipe closes: a killed driver leaves no JVM behind, and a JVM that leaves takes
its Python workers along in the same way.

A function given to `foreachBatch` must raise short messages only: Spark matches them with a regular
expression that recurses once per character, and a long one ended the stream's thread with a
StackOverflowError in place of the cause. Threads get a larger stack here, but the rule stays.
"""

from __future__ import annotations

import functools
import logging
import operator
import os
import pickle
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa
import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.sql.udf import _create_udf
from pyspark.util import PythonEvalType

from schemas.errors import Code, EnvironmentProblem
from state.maintenance.compaction import CompactionPart, CompactionResult, compact_part
from state.maintenance.merge import Merge, Merged, merge_files
from streaming.runtime.java.spark_jvm import SparkJvm
from streaming.runtime.paths import log_folder, sweep_logs, sweep_scratch

Result = TypeVar("Result")

log = structlog.get_logger()

JVM_GONE = (Py4JError, OSError)
"""Errors of calls to a JVM that is gone."""

_AUTHENTICATE_SECRET = "spark.authenticate.secret"  # noqa: S105 (a setting's name)
_GATEWAY = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
"""Variables by which pyspark finds a JVM that is there already."""


@contextmanager
def session_starting(jvm: SparkJvm) -> Iterator[Callable[[], SparkSession]]:
    """A session in a JVM that comes up; the block gets a function that blocks until the session is there.

    JVM and Spark take seconds, in which a caller can import and ask the broker. The function raises as `session_in`,
    each time. A block that fails before does not wait for it.
    """
    with ExitStack() as stack, ThreadPoolExecutor(1, thread_name_prefix="spark-start") as thread:
        started = thread.submit(stack.enter_context, session_in(jvm))
        started.add_done_callback(_log_start)
        try:
            yield started.result
        except BaseException:
            if not started.done():
                jvm.process.kill()
            raise
        finally:
            started.exception()  # whatever it became, it has to be there before it can be closed


def _log_start(started: Future[SparkSession]) -> None:
    if started.exception() is None:
        log.info("started", step="Spark")


def is_alive(session: SparkSession) -> bool:
    """True if the session's JVM answers."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except JVM_GONE:
        return False


@contextmanager
def session_in(jvm: SparkJvm) -> Iterator[SparkSession]:
    """A session for the length of the block. One process has one at a time; queries are to be stopped before its end.

    Raises: EnvironmentProblem(SPARK_FAILED).
    """
    sweep_scratch()
    sweep_logs(log_folder())
    try:
        session = _start(jvm)
        jvm.is_used = True
        try:
            yield session
        finally:
            _apart(session.stop)
    finally:
        # pyspark keeps the gateway for the life of the process; a later session may need another heap or log.
        gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
        if gateway is not None:
            _apart(gateway.shutdown)


def _apart(end: Callable[[], None]) -> None:
    """Call the JVM by a connection of its own, which each thread has.

    A signal may have left this thread's in the middle of a call: its next answer would be that of the last one.
    """

    def ended() -> None:
        with suppress(*JVM_GONE):
            end()

    thread = threading.Thread(target=ended, name="session-end", daemon=True)
    thread.start()
    thread.join()


def _start(jvm: SparkJvm) -> SparkSession:
    # Workers have to be this Python, whatever else the machine has.
    os.environ["PYSPARK_PYTHON"] = jvm.settings.python or sys.executable
    # At debug it would log each command to the JVM, and with them the secrets among the options of a source.
    logging.getLogger("py4j").setLevel(logging.INFO)
    conf = SparkConf(loadDefaults=False).setAll(list(jvm.conf.items()))
    try:
        gateway = _gateway_of(jvm)
        if jvm.settings.authenticate_secret is not None:
            # Spark asks for it as a setting, which it hides from its executors' command lines. By the gateway it
            # comes to the JVM without one.
            conf.set(_AUTHENTICATE_SECRET, jvm.settings.authenticate_secret.read())
        context = SparkContext(conf=conf, gateway=gateway)
    except Py4JJavaError as cause:
        reason = cause.java_exception.getClass().getSimpleName()
        raise EnvironmentProblem(
            Code.SPARK_FAILED,
            found=f"a driver that did not start: {reason}",
            expected="a Spark driver",
            next_step="read the end of the file; often the master does not answer, or a setting is not right",
            where=str(jvm.log),
        ) from cause
    except JVM_GONE as cause:
        raise jvm.ended() from cause
    # Otherwise a JVM that is gone shows here first, as a stack trace on standard error.
    context._accumulatorServer.handle_error = _ignore  # type: ignore[method-assign, assignment]
    threading.Thread(target=_start_workers, args=(context,), daemon=True).start()
    return SparkSession(context)


def _gateway_of(jvm: SparkJvm) -> Any:
    """Connect to a JVM that pyspark has not started itself."""
    os.environ.update(zip(_GATEWAY, map(str, jvm.gateway()), strict=True))
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in _GATEWAY:
            del os.environ[name]
    gateway.proc = jvm.process
    return gateway


def _start_workers(context: SparkContext) -> None:
    """Have the Python workers import, which takes a second or two, beside whatever comes before the first task."""
    # If it fails, so will the first task.
    with suppress(*JVM_GONE):
        context.parallelize(range(context.defaultParallelism), context.defaultParallelism).map(id).collect()


def _ignore(*_: object) -> None:
    """The call to the JVM that fails next raises an error of ours."""


def run_job(action: Callable[[], Result]) -> Result:
    """The result of a job.

    Raises: EnvironmentProblem(SPARK_FAILED) when the job failed: errors of Spark's planner come translated, those of
        its tasks as they are. Where another thread ends the session meanwhile: as `JVM_GONE`, too.
    """
    try:
        return action()
    except (PySparkException, Py4JJavaError) as error:
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        raise EnvironmentProblem(
            Code.SPARK_FAILED, found=f"a job that ended with {condition or type(error).__name__}"
        ) from error
    except AttributeError as error:
        # pyspark leaves a job so whose session another thread has ended (`SCCallSiteSync.__exit__`).
        if error.name != "setCallSite":
            raise
        raise EnvironmentProblem(Code.SPARK_FAILED, found="a job whose session has ended") from error


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


def running_jobs(session: SparkSession, lasting: Collection[int] = ()) -> dict[int, Sign]:
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


def end_job(session: SparkSession, job: int) -> None:
    """Fail a job, its tasks' Python workers included. The call that waits for it raises at once."""
    session.sparkContext._jsc.sc().cancelJob(job)
