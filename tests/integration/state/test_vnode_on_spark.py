"""The vnode's reference in Python against Spark's own expression, over every type that a key may have."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from schemas.table import TableSchema, declare
from schemas.types import ColumnType
from tests.kit.values import KEY_TYPES, values_of
from tests.kit.vnodes import compute_vnode, vnode_expression

ROWS = 400
KINDS = [
    *KEY_TYPES,
    *map(ColumnType.parse, ("decimal(5,5)", "decimal(10,0)", "decimal(38,0)", "decimal(38,38)")),
]


def table(kinds: list[ColumnType], distribution: list[str] | None = None) -> TableSchema:
    columns = {f"k{number}": str(kind) for number, kind in enumerate(kinds)}
    declaration = {"name": "t", "columns": columns, "primary_key": list(columns), "vnode_count": 32_768}
    return declare(declaration | ({"distribution_key": distribution} if distribution else {}))


def drawn(kinds: list[ColumnType]) -> list[dict[str, Any]]:
    """Rows of values at the edges of their types."""
    rows: list[dict[str, Any]] = []

    @settings(max_examples=ROWS, database=None, suppress_health_check=list(HealthCheck))
    @given(st.tuples(*map(values_of, kinds)))
    def draw(values: tuple[Any, ...]) -> None:
        rows.append({f"k{number}": value for number, value in enumerate(values)})

    draw()
    return rows


def test_the_twin_agrees_with_spark_on_every_type_of_key(spark: SparkSession, tmp_path: Any) -> None:
    rows = drawn(KINDS)
    names = [f"k{number}" for number in range(len(KINDS))]
    schema = pa.schema([(name, kind.arrow) for name, kind in zip(names, KINDS, strict=True)])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "rows.parquet")
    chance = random.Random(0)
    keys = [[name] for name in names] + [chance.sample(names, chance.randint(2, 5)) for _ in range(10)]
    tables = [table(KINDS, key) for key in keys]
    row = F.struct(*names)
    frame = spark.read.schema(", ".join(f"{n} {k}" for n, k in zip(names, KINDS, strict=True)))
    found = (
        frame.parquet(str(tmp_path / "rows.parquet"))
        .select(*names, F.array(*(vnode_expression(each, row) for each in tables)).alias("vnodes"))
        .toArrow()
        .to_pylist()
    )
    assert len(found) == len(rows)
    for read in found:
        for each, vnode in zip(tables, read["vnodes"], strict=True):
            values = [read[name] for name in each.distribution_key]
            columns = each.select(each.distribution_key)
            assert compute_vnode(values, columns, each.vnode_count) == vnode, (columns, values)
