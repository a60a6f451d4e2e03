"""The fold as one Spark job: a task for each part, in the Python workers that lanes run in.

Lanes go first: their pool has a minimum share of slots, that of the upkeep none (`fairscheduler.xml`), so a batch waits
for one part at most, and never for a fold.
"""

from __future__ import annotations

import functools
import operator
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from state.fold import FoldPart, FoldResult, fold_part
from streaming.runtime.session import UPKEEP_POOL, collect

_RESULT = pa.schema([("result", pa.binary())])


def fold_on(spark: Callable[[], SparkSession], parts: Sequence[FoldPart]) -> FoldResult:
    """Fold all parts, and add up what they gave.

    Raises: EnvironmentProblem(SPARK_FAILED), also for a part that could not read or write a file.
    """
    session = spark()
    session.sparkContext.setLocalProperty("spark.scheduler.pool", UPKEEP_POOL)
    tasks = session.range(0, len(parts), 1, len(parts))
    found = collect(tasks.mapInArrow(_folding(parts), "result binary"))
    # Our own bytes, a moment old.
    results: list[FoldResult] = [pickle.loads(row["result"]) for row in found]  # noqa: S301
    return functools.reduce(operator.or_, results, FoldResult())


def _folding(
    parts: Sequence[FoldPart],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        result = fold_part(parts[context.partitionId()])
        yield pa.RecordBatch.from_pylist([{"result": pickle.dumps(result)}], schema=_RESULT)

    return run
