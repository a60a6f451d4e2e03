"""The fold as one Spark job: a task for each part, in the Python workers that lanes run in.

Lanes go first: their pool has a minimum share of slots, that of the upkeep none (`fairscheduler.xml`), so a batch waits
for one part at most, and never for a fold.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from state.fold import FoldPart, FoldResult, fold_part
from streaming.runtime.session import UPKEEP_POOL
from streaming.runtime.tasks import run_each


def fold_on(spark: Callable[[], SparkSession], parts: Sequence[FoldPart]) -> FoldResult:
    """Fold all parts, and add up what they gave.

    Raises: EnvironmentProblem(SPARK_FAILED), also for a part that could not read or write a file.
    """
    session = spark()
    session.sparkContext.setLocalProperty("spark.scheduler.pool", UPKEEP_POOL)
    tasks = session.range(0, len(parts), 1, len(parts))
    results = run_each(tasks, lambda number, batches: fold_part(parts[number]))
    return functools.reduce(operator.or_, results, FoldResult())
