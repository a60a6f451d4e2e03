"""The base is an ordinary Delta table: Spark reads it as it is, and hashes rows as the compaction does."""

from __future__ import annotations

import functools
import operator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from schemas.records import Op
from schemas.table import declare
from state.columns import EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.maintenance.compaction import compact_part, parts_of
from state.replica import BASE_PATH, Replica, write_log_file
from state.storage import Storage
from state.vnode import row_hashes
from tests.kit.tables import vnode_of
from tests.kit.values import values_of

TYPES = (
    "boolean",
    "int",
    "bigint",
    "float",
    "double",
    "decimal(18,2)",
    "decimal(38,6)",
    "string",
    "binary",
    "date",
    "timestamp",
)
TABLE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint", **{f"c{number}": kind for number, kind in enumerate(TYPES)}},
        "primary_key": ["id"],
        "vnode_count": 4,
    }
)
ROWS = 300


def rows() -> pa.Table:
    """Values at the edges of their types, and nulls; the key counts up."""
    drawn: list[tuple[object, ...]] = []
    kinds = [column.type for column in TABLE.columns[1:]]

    @settings(max_examples=ROWS, database=None, suppress_health_check=list(HealthCheck))
    @given(st.tuples(*(st.none() | values_of(kind) for kind in kinds)))
    def draw(values: tuple[object, ...]) -> None:
        drawn.append(values)

    draw()
    named = [
        dict(zip(TABLE.column_names, (number, *values), strict=True)) for number, values in enumerate(drawn)
    ]
    return pa.Table.from_pylist(named, schema=pa.schema([(c.name, c.type.arrow) for c in TABLE.columns]))


def test_rows_hash_as_spark_hashes_them(spark: SparkSession, tmp_path: Path) -> None:
    table = rows()
    pq.write_table(table, tmp_path / "rows.parquet")
    schema = ", ".join(f"{column.name} {column.type}" for column in TABLE.columns)
    read = spark.read.schema(schema).parquet(str(tmp_path / "rows.parquet"))
    hashed = read.select("id", F.xxhash64(*TABLE.column_names).alias("hash")).orderBy("id").collect()
    arrays = [table[name].combine_chunks() for name in TABLE.column_names]
    assert row_hashes(arrays, TABLE.columns).tolist() == [row["hash"] for row in hashed]
    # Also where an array is a slice of a longer one.
    some = [array.slice(7, 100) for array in arrays]
    assert row_hashes(some, TABLE.columns).tolist() == [row["hash"] for row in hashed[7:107]]


def test_spark_reads_the_base_as_any_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "state"))
    replica, table = Replica(storage, TABLE), rows()
    vnodes = [vnode_of(TABLE, (number,)) for number in table["id"].to_pylist()]
    own = {
        VNODE: pa.array(vnodes, pa.int32()),
        EPOCH: pa.array([1] * len(table), pa.int64()),
        PARTITION: pa.array([0] * len(table), pa.int32()),
        OFFSET: pa.array(range(len(table)), pa.int64()),
        OP: pa.array([Op.INSERT.value] * len(table), pa.int8()),
        "_bf_before_hash": pa.nulls(len(table), pa.int64()),
    }
    log = pa.table({**own, **{name: table[name] for name in TABLE.column_names}}, schema=log_schema(TABLE))
    file = write_log_file(storage, log, "log")
    replica.append([file], 1)
    parts = parts_of(storage, TABLE, replica.files(replica.pin()))
    compacted = functools.reduce(operator.or_, map(compact_part, parts))
    replica.commit_compaction(compacted.added, compacted.removed, 1)
    found = spark.read.format("delta").load(storage.uri(BASE_PATH)).orderBy("id")
    assert found.filter(F.col(VNODE) == vnodes[0]).count() == vnodes.count(vnodes[0])
    read = found.select(*TABLE.column_names).toArrow().cast(table.schema)
    assert repr(read.to_pylist()) == repr(table.to_pylist())  # NaN equals nothing
