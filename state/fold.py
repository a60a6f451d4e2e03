"""The fold: rewrite the vnodes that changed, so that the base holds everything up to a barrier.

One pass of Spark over the dirty vnodes: base rows and log rows of a key stand together, in the order of their
offsets, base first. The last one stays if it is no DELETE. On the way the changelog's legality is checked, which
the path of every row leaves to this place: INSERT only of an absent key, UPDATE and DELETE only of a present one,
`before` equal to what is there, all changes of a key from one partition. What is illegal is counted and told, and
the fold goes on: the outputs have had these changes long ago, the last change of a key decides either way, and a
service that stopped here would meet the same log at its next start.

The commit replaces exactly the dirty vnodes, and carries the epoch as Delta's `txnVersion`, so a fold that is run
again does nothing. Nobody else writes to the base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from schemas.errors import Code
from schemas.records import Op
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, EPOCH, OFFSET, OP, PARTITION, VNODE
from state.replica import BASE_PATH, LOG_PATH, ReplicaFiles
from state.storage import Storage
from state.vnode import vnode_expression

ROWS_PER_FILE = 100_000
"""Rows of a base file: small enough that a slice rarely reads much more than it takes."""
ROW_GROUP_BYTES = 2 * 1024 * 1024
"""Parquet row groups of about 20,000 narrow rows, which a reader can skip."""
ROWS_PER_TASK = 250_000


_ILLEGAL = (
    Code.KEY_IN_TWO_PARTITIONS,
    Code.INSERT_EXISTING_KEY,
    Code.DELETE_MISSING_KEY,
    Code.OLD_ROW_MISMATCH,
)
"""What a change of the log can be charged with, by the number that the fold gives it; the first that fits counts."""


@dataclass(frozen=True, slots=True)
class Illegal:
    """Changes that contradict the table in one way; `first` is the lowest of their places, `partition@offset`."""

    count: int
    first: str


@dataclass(frozen=True, slots=True)
class FoldReport:
    """`illegal` holds the changes that contradict the table, by what is wrong with them."""

    epoch: int
    vnodes: int
    rows_read: int
    illegal: Mapping[Code, Illegal] = field(default_factory=dict)


def fold(
    spark: SparkSession, storage: Storage, table: TableSchema, files: ReplicaFiles, fold_id: str, epoch: int
) -> FoldReport:
    """Bring the base to barrier `epoch`; `files` are those of a version whose log ends there.

    Does nothing if the base is there already, or further.

    Raises: whatever Spark and Delta raise; the base is then as it was.
    """
    if (DeltaTable(storage.uri(BASE_PATH)).transaction_version(fold_id) or 0) >= epoch:
        # Delta would skip the write, and who observes it would wait for ever.
        return FoldReport(epoch, 0, 0)
    log = _log(spark, storage, table, files)
    dirty = sorted(row[0] for row in log.select(VNODE).distinct().collect())
    base_files = [file for vnode in dirty for file in files.base.get(vnode, ())]
    rows = sum(file.rows for file in base_files) + files.log_rows
    history = log.unionByName(_base(spark, storage, table, [file.path for file in base_files]))
    checked = _checked(history, table, max(rows // ROWS_PER_TASK, 2 * spark.sparkContext.defaultParallelism))
    seen = Observation("fold")
    observed = checked.observe(seen, *_charges())
    kept = observed.where(F.col("_bf_last") & (F.col(OP) != F.lit(Op.DELETE.value)))
    (
        kept.select(VNODE, *table.column_names)
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", f"{VNODE} in ({', '.join(map(str, dirty or [-1]))})")
        .option("txnAppId", fold_id)
        .option("txnVersion", epoch)
        .option("maxRecordsPerFile", ROWS_PER_FILE)
        .option("parquet.block.size", ROW_GROUP_BYTES)
        .save(storage.uri(BASE_PATH))
    )
    return FoldReport(epoch, len(dirty), rows, _told(seen.get))


def _charges() -> list[Column]:
    """Of each way to be illegal how many changes there are, and the lowest place among them."""
    place = F.format_string(
        "%010d@%020d", F.col(PARTITION), F.col(OFFSET)
    )  # text in the order of the numbers
    charges = []
    for number, code in enumerate(_ILLEGAL):
        mine = F.col("_bf_illegal") == number
        charges += [F.count_if(mine).alias(code), F.min(F.when(mine, place)).alias(f"{code}_first")]
    return charges


def _told(seen: Mapping[str, Any]) -> dict[Code, Illegal]:
    found = {}
    for code in _ILLEGAL:
        if seen[code]:
            partition, offset = map(int, seen[f"{code}_first"].split("@"))
            found[code] = Illegal(seen[code], f"{partition}@{offset}")
    return found


def _ddl(text: str) -> StructType:
    schema = StructType.fromDDL(text)
    assert isinstance(schema, StructType)
    return schema


def _spark_schema(table: TableSchema) -> StructType:
    return _ddl(", ".join(f"`{c.name}` {c.type.spark_ddl}" for c in table.columns))


def _log(spark: SparkSession, storage: Storage, table: TableSchema, files: ReplicaFiles) -> DataFrame:
    own = f"{VNODE} int, {EPOCH} bigint, {PARTITION} int, {OFFSET} bigint, {OP} tinyint, {BEFORE_HASH} bigint"
    schema = StructType([*_ddl(own).fields, *_spark_schema(table).fields])
    paths = [storage.uri(LOG_PATH, file.path) for file in files.log]
    return spark.read.schema(schema).parquet(*paths).where(F.col(EPOCH) > files.folded_epoch).drop(EPOCH)


def _base(spark: SparkSession, storage: Storage, table: TableSchema, paths: Sequence[str]) -> DataFrame:
    """Base rows as INSERTs before every offset.

    The files are read by path: they are immutable, and opening
    the Delta table would cost a job of its own.
    """
    schema = _spark_schema(table)
    rows = (
        spark.read.schema(schema).parquet(*(storage.uri(BASE_PATH, path) for path in paths))
        if paths
        else (spark.createDataFrame([], schema))
    )
    return rows.select(
        vnode_expression(table, F.struct(*table.distribution_key)).alias(VNODE),
        F.lit(-1).alias(PARTITION),
        F.lit(-1).cast("bigint").alias(OFFSET),
        F.lit(Op.INSERT.value).cast("tinyint").alias(OP),
        F.lit(None).cast("bigint").alias(BEFORE_HASH),
        *table.column_names,
    )


def _checked(history: DataFrame, table: TableSchema, tasks: int) -> DataFrame:
    """Each row with `_bf_last` (newest of its key) and `_bf_illegal` (a number of `_ILLEGAL`, null if legal).

    One exchange by vnode and one sort serve both window functions and the write, which wants vnodes together.
    """
    key = [VNODE, *table.primary_key]
    shuffled = history.repartition(tasks, F.col(VNODE)).sortWithinPartitions(*key, OFFSET)
    in_order = Window.partitionBy(*key).orderBy(OFFSET)
    from_base = F.col(OFFSET) < 0
    was_there = F.coalesce(F.lag(F.col(OP) != F.lit(Op.DELETE.value)).over(in_order), F.lit(False))
    stored = F.lag(F.xxhash64(*table.column_names)).over(in_order)
    inserts = F.col(OP) == F.lit(Op.INSERT.value)
    home = F.lag(PARTITION).over(in_order)
    wrong = (
        F.when(home.isNotNull() & (home >= 0) & (home != F.col(PARTITION)), 0)
        .when(inserts & was_there, 1)
        .when(~inserts & ~was_there, 2)
        .when(~inserts & (F.col(BEFORE_HASH) != stored), 3)
    )
    return shuffled.withColumns(
        {
            "_bf_last": F.lead(F.lit(True)).over(in_order).isNull(),
            "_bf_illegal": F.when(~from_base, wrong),
        }
    )
