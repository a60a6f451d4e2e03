"""The upstream topic as Spark sees it: a stream that tells when barriers come, and ranges between two barriers.

The stream's own rows are only looked through for barriers, which costs no decoding. A batch then reads exactly
the range from its first to its last barrier, so no row behind the last aligned barrier is ever decoded, carried
over or held; what the stream delivered too early is simply read when its barrier has come.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from schemas.avro import OPS, change_schema
from schemas.codec import MAX_BARRIER_BYTES
from schemas.records import BARRIER_HEADER
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, OFFSET, OP, PARTITION, VNODE
from state.vnode import vnode_expression
from streaming.lane.changes import AFTER, BEFORE, KEY, MARKED, SIZE, VALUE
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.session import collect
from streaming.service.barriers import FoundBarrier, Marked, found_barrier
from streaming.service.salts import lane_salts


class UpstreamSource:
    """One topic of one table.

    `left_out` are records, (partition, offset), that an operator named: a barrier among them is none.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        kafka: KafkaSettings,
        topic: str,
        table: TableSchema,
        left_out: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        self._spark, self._kafka, self._topic, self._table = spark, kafka, topic, table
        self._left_out = left_out
        self._avro = json.dumps(change_schema(table.columns))
        self._ranges = f"backfill-{uuid.uuid4()}"
        self._lane_salts: dict[int, Column] = {}

    @property
    def spark(self) -> SparkSession:
        """The session that it reads with; waits for it."""
        return self._spark()

    def _options(self) -> dict[str, str]:
        return {
            **self._kafka.spark_options(),
            "kafka.isolation.level": "read_committed",
            # A task that reads up to the end of a partition would wait half a second for more.
            "kafka.fetch.max.wait.ms": "5",
            "failOnDataLoss": "true",
            # A topic that was deleted must not come back empty because somebody still reads it.
            "kafka.allow.auto.create.topics": "false",
        }

    def stream(self, first: Sequence[int]) -> DataFrame:
        """The topic from first[p] of every partition p on."""
        return (
            self._spark()
            .readStream.format("kafka")
            .options(**self._options())
            .option("assign", self._partitions(first))
            .option("startingOffsets", self._offsets(first))
            .option("includeHeaders", "true")
            .load()
        )

    def range(self, first: Sequence[int], end: Sequence[int]) -> DataFrame:
        """The records of [first[p], end[p]) of every partition p."""
        return (
            self._spark()
            .read.format("kafka")
            .options(**self._options())
            # Spark keeps consumers by this name, which nothing is committed under: one range goes on where the last
            # one ended, with what was fetched ahead. Without it every range makes new ones, 30 ms each.
            .option("kafka.group.id", self._ranges)
            .option("assign", self._partitions(first))
            .option("startingOffsets", self._offsets(first))
            .option("endingOffsets", self._offsets(end))
            .option("includeHeaders", "true")
            .load()
        )

    def _partitions(self, offsets: Sequence[int]) -> str:
        return json.dumps({self._topic: list(range(len(offsets)))})

    def _offsets(self, offsets: Sequence[int]) -> str:
        return json.dumps({self._topic: {str(number): offset for number, offset in enumerate(offsets)}})

    @property
    def has_more(self) -> bool:
        """What has come since is in other records."""
        return False

    def close(self) -> None:
        """Nothing here waits."""

    def barriers(self, records: DataFrame) -> Iterator[FoundBarrier]:
        """The barriers among some records, in offset order within each partition.

        Raises: InputError at the first that is none, as `found_barrier`; EnvironmentProblem(SPARK_FAILED).
        """
        marked, marks = self._marks
        found = collect(records.where(marked).select(*marks))
        for row in sorted(found, key=lambda row: (row["partition"], row["offset"])):
            header, value = (None if row[name] is None else bytes(row[name]) for name in ("header", "value"))
            place = row["partition"], row["offset"]
            record = Marked(place, value, row["size"] or 0, header, row["ambiguous"])
            yield found_barrier(self._topic, record, self._left_out)

    def lane_rows(self, records: DataFrame, lanes: int) -> DataFrame:
        """Records decoded and brought to their lanes: Spark partition i holds lane i, also when it is empty.

        A record that does not decode has a null op, and goes to lane 0. Its value comes along for a second look, as
        does one that Spark would have written in other bytes (`streaming.lane.faults`). What is marked as a barrier
        has the op `MARKED`.
        """
        if lanes not in self._lane_salts:
            self._lane_salts[lanes] = self._lane_salt(lanes)
        return records.select(*self._decoded).select(*self._named).repartition(lanes, self._lane_salts[lanes])

    # Columns are built once: each takes a dozen calls into the JVM, 0.1 s a batch in all. Every step of a DataFrame is
    # analysed anew, 10 ms each.

    @cached_property
    def _marks(self) -> tuple[Column, list[Column]]:
        """What tells a barrier, and what is asked of one."""
        ours = F.filter("headers", lambda header: header["key"] == BARRIER_HEADER)
        return self._is_marked, [
            *map(F.col, ("partition", "offset")),
            # The driver holds them all: what is longer than any barrier only tells its length.
            F.when(F.length("value") <= MAX_BARRIER_BYTES, F.col("value")).alias("value"),
            F.length("value").alias("size"),
            ours[0]["value"].alias("header"),
            ((F.size(ours) > 1) | F.col("key").isNotNull()).alias("ambiguous"),
        ]

    @cached_property
    def _is_marked(self) -> Column:
        return F.col("headers").isNotNull() & F.exists(
            "headers", lambda header: header["key"] == BARRIER_HEADER
        )

    @cached_property
    def _decoded(self) -> list[Column]:
        change = from_avro(F.col("value"), self._avro, {"mode": "PERMISSIVE"})
        marked = self._is_marked.alias("marked")
        return [*map(F.col, ("partition", "offset", "key", "value")), marked, change.alias("change")]

    @cached_property
    def _named(self) -> list[Column]:
        rewritten = to_avro(F.col("change"), self._avro)
        before, after = F.col("change.before"), F.col("change.after")
        row = F.coalesce(after, before)
        op = F.array_position(F.array(*map(F.lit, OPS)), F.col("change.op")) - 1
        before_hash = F.xxhash64(*(before.getField(name) for name in self._table.column_names))
        return [
            F.col("partition").alias(PARTITION),
            F.col("offset").alias(OFFSET),
            F.col("key").alias(KEY),
            F.when(F.col("change.op").isNull(), F.col("value"))  # such a row can't be written at all
            .when(rewritten != F.col("value"), F.col("value"))
            .alias(VALUE),
            F.expr("coalesce(length(key), 0) + coalesce(length(value), 0)").alias(SIZE),
            F.when(F.col("marked"), F.lit(MARKED)).otherwise(op).cast("tinyint").alias(OP),
            F.when(row.isNotNull(), vnode_expression(self._table, row)).alias(VNODE),
            before.alias(BEFORE),
            after.alias(AFTER),
            F.when(before.isNotNull(), before_hash).alias(BEFORE_HASH),
        ]

    def _lane_salt(self, lanes: int) -> Column:
        lane = F.coalesce(F.floor(F.col(VNODE) * lanes / self._table.vnode_count).cast("int"), F.lit(0))
        return F.element_at(F.array(*map(F.lit, lane_salts(lanes))), lane + 1)
