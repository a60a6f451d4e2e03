"""A Spark job that shows no progress is ended; one that does goes on however long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from schemas.errors import Code, EnvironmentProblem
from streaming.runtime.session import run_each, running_jobs, sorted_rows
from streaming.service.trouble import SparkWatch
from streaming.service.vitals import Vitals
from tests.kit.real import await_condition

LIMIT_S = 5.0
HEARTBEATS_S = 25.0
"""Two of an executor's, and some."""


def numbers(spark: SparkSession, count: int, work: Callable[[int, object], int]) -> list[int]:
    return run_each(spark.range(0, count, 1, count), work)


@pytest.fixture
def vitals(spark: SparkSession) -> Vitals:
    numbers(spark, 2, lambda number, batches: number)  # Python workers take seconds to start
    return Vitals("up", 1_000, late_s=1.0, injects=False)


def test_a_task_that_hangs_is_ended_and_its_slot_is_free_again(spark: SparkSession, vitals: Vitals) -> None:
    def hangs(number: int, batches: object) -> int:
        time.sleep(600)
        return number

    began_s = time.monotonic()
    with SparkWatch(lambda: spark, vitals, LIMIT_S).running(), pytest.raises(EnvironmentProblem) as failure:
        numbers(spark, 2, hangs)
    assert failure.value.code is Code.SPARK_FAILED
    assert LIMIT_S <= time.monotonic() - began_s < 10 * LIMIT_S
    assert numbers(spark, 2, lambda number, batches: number) == [0, 1]
    assert time.monotonic() - began_s < 20 * LIMIT_S
    await_condition(lambda: not running_jobs(spark), "the jobs' end")


@pytest.mark.faults
def test_a_task_that_hands_sorted_rows_to_python_is_progress(spark: SparkSession, vitals: Vitals) -> None:
    """All is read before the first row comes out of the sort; what goes on then shows in that filter's count only."""

    def takes_its_time(number: int, batches: Iterable[pa.RecordBatch]) -> int:
        rows = 0
        for batch in batches:
            time.sleep(1.0)
            rows += batch.num_rows
        return rows

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 10_000)
    try:
        # More than fits into what lies between the JVM and Python: that is given away before it is taken.
        wide = spark.range(0, 400_000, 1, 2).select("id", F.repeat(F.lit("x"), 200).alias("text"))
        rows = sorted_rows(wide.repartition(1), [F.col("id")])
        began_s = time.monotonic()
        with SparkWatch(lambda: spark, vitals, HEARTBEATS_S).running():
            assert run_each(rows, takes_its_time) == [400_000]
        assert time.monotonic() - began_s > HEARTBEATS_S
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_tasks_that_end_one_after_the_other_are_progress(spark: SparkSession, vitals: Vitals) -> None:
    def takes_its_time(number: int, batches: object) -> int:
        time.sleep(1.0)  # within the limit, which all of them together are beyond
        return number

    began_s = time.monotonic()
    with SparkWatch(lambda: spark, vitals, LIMIT_S).running():
        assert numbers(spark, 16, takes_its_time) == list(range(16))
    assert time.monotonic() - began_s > LIMIT_S
