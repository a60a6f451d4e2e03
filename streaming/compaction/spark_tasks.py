"""Folds and merges as Spark jobs: a task for each part, in the Python workers that lanes run in.

Lanes go first: their pool has a minimum share of slots, that of the upkeep none (`fairscheduler.xml`), so a batch waits
for one part at most, and never for a whole fold.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

from state.fold import FoldPart, FoldResult, fold_part
from state.merge import Merge, Merged, merge_files
from streaming.runtime.session import UPKEEP_POOL
from streaming.runtime.tasks import run_each

Part = TypeVar("Part")
Result = TypeVar("Result")


def fold_on(spark: Callable[[], SparkSession], parts: Sequence[FoldPart]) -> FoldResult:
    """Fold all parts, and add up what they gave.

    Raises: EnvironmentProblem(SPARK_FAILED), also for a part that could not read or write a file.
    """
    return functools.reduce(operator.or_, _on_workers(spark(), fold_part, parts), FoldResult())


def merge_on(spark: Callable[[], SparkSession], merges: Sequence[Merge]) -> list[Merged]:
    """Carry out all merges, in no order. Raises: as `fold_on`."""
    return _on_workers(spark(), merge_files, merges)


def _on_workers(session: SparkSession, work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    session.sparkContext.setLocalProperty("spark.scheduler.pool", UPKEEP_POOL)
    tasks = session.range(0, len(parts), 1, len(parts))
    return run_each(tasks, lambda number, batches: work(parts[number]))
