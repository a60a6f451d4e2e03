"""The jobs that Spark has under way, signs of their progress, and how to end one that makes none.

Spark reports how many of a stage's tasks are done, and with each heartbeat of its executors (ten seconds) what those at
work have read, written and given to Python so far. Where none of that changes, nothing is known to go on: a task waits
for a file system or a broker without an end, an executor is gone silently, or slots never come.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

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
    """Every job that is under way. A dozen calls into the JVM for each stage, some milliseconds.

    Those `lasting` are looked at more closely: what each operator of the query has done, which is the only sign of a
    task that has read all its rows and hands them on after they are sorted (`sorted_rows`).
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
