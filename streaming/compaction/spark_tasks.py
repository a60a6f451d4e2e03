"""Compactions and merges as Spark jobs: a task for each part, in the Python workers of the lanes.

Lanes go first: their pool has a minimum share of slots, that of the maintenance none (`fairscheduler.xml`), so a batch
waits for one part at most, and never for a whole compaction.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

from state.maintenance.compaction import CompactionPart, CompactionResult, compact_part
from state.maintenance.merge import Merge, Merged, merge_files
from streaming.runtime.session import MAINTENANCE_POOL
from streaming.runtime.tasks import run_each

Part = TypeVar("Part")
Result = TypeVar("Result")


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
