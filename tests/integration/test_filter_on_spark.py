"""A filter decides what Spark SQL decides. Spark gets a text here, which the service never gives it."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from schemas.filter.ast import Filter
from schemas.filter.columnar import evaluate
from tests.kit.filters import TABLE, arrays_of, edge_rows, filters

ROWS, FILTERS, ROUNDS = 1_000, 40, 6
ARRAYS = arrays_of(edge_rows(ROWS), TABLE)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Every edge and null, in the order of `ARRAYS`; kept as rows so that Spark compactions nothing away."""
    numbered = {"row": pa.array(range(ROWS), pa.int32()), **ARRAYS}
    frame = spark.createDataFrame(pa.table(numbered)).repartition(2).cache()
    assert frame.count() == ROWS
    return frame


def spark_text(condition: Filter) -> str:
    """The canonical text with its quoted texts as Spark wants them: a backslash escapes, also a quote."""

    def requoted(quoted: re.Match[str]) -> str:
        text = quoted[1].replace("''", "'")
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    return re.sub(r"'((?:[^']|'')*)'", requoted, str(condition))


# No shrinking: the assertion names the one filter, and each further try would cost Spark seconds.
@settings(
    max_examples=ROUNDS, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None
)
@given(conditions=st.lists(filters(TABLE, extreme=False), min_size=FILTERS, max_size=FILTERS))
def test_random_filters_decide_as_spark_does(rows: DataFrame, conditions: list[Filter]) -> None:
    decided = rows.select(
        "row", *(expr(spark_text(condition)).alias(f"c{n}") for n, condition in enumerate(conditions))
    )
    by_spark = decided.orderBy("row").toArrow()
    for n, condition in enumerate(conditions):
        ours = evaluate(condition, ARRAYS)
        assert ours.to_pylist() == by_spark.column(f"c{n}").to_pylist(), str(condition)
