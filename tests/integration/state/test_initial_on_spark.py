"""Tables that Spark writes: timestamps, partitions, deletion vectors and renamed columns come as Spark reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from schemas.errors import BackfillError
from schemas.table import TableSchema
from state.initial.copy import TableCopy, copy_part
from state.initial.table import SourceTable
from state.maintenance.compaction import compact_part
from state.replica import BASE_PATH, Replica
from state.storage import Storage
from tests.kit.tables import table

COLUMNS = {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "day": "date"}
WITH_TIME = table({**COLUMNS, "at": "timestamp"}, key=["region", "id"])
WITHOUT = table(COLUMNS, key=["region", "id"])
_VALUES = (
    "CASE id % 4 WHEN 0 THEN 'a b' WHEN 1 THEN 'c/d' WHEN 2 THEN 'é' ELSE 'e' END AS region",
    "id",
    "CAST(id / 7 AS DECIMAL(18,2)) AS amount",
    "'x' AS more",
    "TIMESTAMP'2400-01-01 00:00:00.000001Z' + make_dt_interval(CAST(id AS INT)) AS at",
    "date_add(DATE'0001-01-01', CAST(id AS INT)) AS day",
)
DELETED, MAPPED = "'delta.enableDeletionVectors' = 'true'", "'delta.columnMapping.mode' = 'name'"


@pytest.mark.parametrize(
    ("properties", "parts", "declared"),
    [
        pytest.param("'delta.appendOnly' = 'false'", 4, WITH_TIME, id="plain", marks=pytest.mark.thorough),
        pytest.param(DELETED, 1, WITHOUT, id="deletion vectors"),
        pytest.param(MAPPED, 1, WITHOUT, id="mapped columns"),
    ],
)
def test_a_table_of_spark_is_copied_as_spark_reads_it(
    spark: SparkSession, tmp_path: Path, properties: str, parts: int, declared: TableSchema
) -> None:
    uri = str(tmp_path / "source")
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (region STRING, id BIGINT, amount DECIMAL(18,2), more STRING, at TIMESTAMP, "
        f"day DATE) USING delta PARTITIONED BY (region) TBLPROPERTIES ({properties})"
    )
    spark.range(0, 200, 1, 1).selectExpr(*_VALUES).write.format("delta").mode("append").save(uri)
    if properties == MAPPED:
        spark.sql(f"ALTER TABLE delta.`{uri}` RENAME COLUMN more TO less")
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id % 10 = 3")  # noqa: S608
    read = spark.read.format("delta").load(uri).select(*declared.column_names).orderBy("id")
    replica = Replica(Storage(str(tmp_path / "state")), declared)
    version = spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").agg({"version": "max"}).collect()[0][0]
    source = SourceTable(uri, version)
    source.check(declared)
    if declared is WITHOUT:
        with pytest.raises(BackfillError, match="timestamps in 'at', and deletion vectors or mapped columns"):
            source.check(WITH_TIME)
    copy = TableCopy(replica, source, 1)
    todo = copy.to_copy(100)
    assert len(todo) == parts
    copy.commit_copied([copy_part(part) for part in todo])
    for part in copy.to_sort(100):
        copy.commit_sorted(1, compact_part(part))
    copy.commit_end()
    stored = spark.read.format("delta").load(replica.storage.uri(BASE_PATH)).select(*declared.column_names)
    expected = read.collect()
    assert len(expected) == 180
    assert stored.orderBy("id").collect() == expected
