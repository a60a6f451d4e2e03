"""Outputs in Avro by a registry as any job of Spark reads them: `from_avro` behind five bytes, by the schema's text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from schemas.avro.output_schemas import text_of
from schemas.avro.registered import SchemaIds
from schemas.formats.outputs.debezium import DebeziumOutput
from schemas.formats.outputs.upsert import UpsertOutput
from schemas.formats.protocol import Origins, OutputFormat
from schemas.records import Op, Row
from schemas.table import declare
from tests.kit.origins import BARRIER
from tests.kit.values import TYPES, rows_of

pytestmark = pytest.mark.spark
TABLE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint"} | {f"c{number}": str(kind) for number, kind in enumerate(TYPES)},
        "primary_key": ["id"],
    }
)
MANY = 5


def arrays(rows: list[Row]) -> list[pa.Array]:
    return [
        pa.array([row[index] for row in rows], column.type.arrow)
        for index, column in enumerate(TABLE.columns)
    ]


def values(format_: OutputFormat, op: Op, before: list[Row], after: list[Row]) -> list[bytes | None]:
    parts, intervals = np.arange(len(after), dtype=np.int32), np.zeros(len(after), np.int64)
    origins = Origins("copy", "t", parts, intervals, [BARRIER])
    ops = pa.array([op] * len(after), pa.int8())
    found: list[bytes | None] = (
        format_.values(TABLE.columns).changes(ops, arrays(before), arrays(after), origins).to_pylist()
    )
    return found


def read(spark: SparkSession, format_: OutputFormat, data: list[bytes | None]) -> list[Any]:
    schema = text_of(format_.schemas(TABLE.columns, TABLE.key_columns, "shop.orders-1")["value"])
    frame = spark.createDataFrame([(each,) for each in data], "value binary").coalesce(1)  # in their order
    record = from_avro(F.expr("substring(value, 6)"), schema, {"mode": "FAILFAST"})
    found = frame.select(record.alias("record")).toArrow()
    return list(found["record"].to_pylist())


def utc(rows: list[Any]) -> str:
    """Comparable: a NaN is no NaN's equal, and an instant has many zones."""
    return repr(
        [
            {name: value.timestamp() if hasattr(value, "timestamp") else value for name, value in row.items()}
            for row in rows
        ]
    )


def test_spark_reads_rows_and_events_by_their_schemas(spark: SparkSession) -> None:
    ids = SchemaIds(3, 70_000)
    upsert, debezium = (
        kind(encoding="avro-registry").with_ids(ids) for kind in (UpsertOutput, DebeziumOutput)
    )
    rows = st.lists(rows_of(TABLE.columns), min_size=MANY, max_size=MANY)

    @settings(max_examples=2, deadline=None)
    @given(before=rows, after=rows)
    def holds(before: list[Row], after: list[Row]) -> None:
        old, new = (pa.table(arrays(half), TABLE.column_names).to_pylist() for half in (before, after))
        assert utc(read(spark, upsert, values(upsert, Op.INSERT, before, after))) == utc(new)
        events = read(spark, debezium, values(debezium, Op.UPDATE, before, after))
        assert utc([event["before"] for event in events]) == utc(old)
        assert utc([event["after"] for event in events]) == utc(new)
        assert [event["source"]["vnode"] for event in events] == list(range(MANY))
        assert {(event["op"], event["source"]["epoch"]) for event in events} == {("u", str(BARRIER.curr))}

    holds()
