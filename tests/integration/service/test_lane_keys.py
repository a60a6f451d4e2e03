"""Spark sends a salt to the partition that it is the salt of, and a record to the lanes that it is for."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from schemas.formats.registry import DEFAULT
from schemas.records import Change, Op
from streaming.kafka.clients import KafkaSettings
from streaming.source.exchange import Exchange, lane_keys, unpacked
from streaming.source.kafka import UpstreamSource
from streaming.source.records import Routes
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.tables import table, vnode_of

RECORDS = (
    "partition int, offset long, key binary, value binary, headers array<struct<key string, value binary>>"
)


@pytest.mark.parametrize("lanes", [1, 2, 3, 64])
def test_a_lane_key_goes_to_its_lane(spark: SparkSession, lanes: int) -> None:
    salts = lane_keys(lanes)
    rows = spark.createDataFrame([(salt,) for salt in salts], "salt int")
    placed = rows.repartition(lanes, "salt").select("salt", F.spark_partition_id()).collect()
    assert {row[0]: row[1] for row in placed} == {salt: lane for lane, salt in enumerate(salts)}


def test_where_jobs_read_the_upstream_a_record_comes_to_the_lanes_of_its_vnode_and_its_partition(
    spark: SparkSession,
) -> None:
    table_, partitions, lanes = table({"id": "bigint"}, vnode_count=8), 4, 2
    source = UpstreamSource(lambda: spark, KafkaSettings("unused"), "up")
    changes, keys = ChangeCodec(table_.columns), KeyCodec(table_.key_columns)
    rows = {
        (number % partitions, number): (
            keys.encode((number,)),
            changes.encode(Change(Op.INSERT, None, (number,))),
        )
        for number in range(40)
    }
    early = [(*place, *record, None) for place, record in rows.items() if place[1] < 20]
    marked = (0, 100, None, b"-", [("barrier", b"1")])
    live = [(*place, *record, None) for place, record in rows.items() if place[1] >= 20]
    broken_key = (3, 101, b"\x80", b"?", None)
    broken = (3, 102, keys.encode((102,)), b"?", None)
    routes = Routes(lanes, table_.vnode_count, partitions, (20,) * partitions)
    blocks = source.exchanged(
        Exchange(DEFAULT, table_, routes),
        spark.createDataFrame([*live, marked, broken_key, broken], RECORDS),
        [spark.createDataFrame([*early, (*marked[:1], 5, *marked[2:])], RECORDS)],
    )
    placed = [
        (row["lane"], *place)
        for row in blocks.select("block", F.spark_partition_id().alias("lane")).collect()
        for records in unpacked([pa.record_batch({"block": [bytes(row["block"])]})])
        for place in zip(records.partitions.to_pylist(), records.offsets.to_pylist(), strict=True)
    ]
    assert len(placed) == len(set(placed)), "to each lane once"

    def lanes_of(partition: int, offset: int) -> set[int]:
        own = vnode_of(table_, (offset,)) * lanes // table_.vnode_count
        theirs = partition * lanes // partitions
        return {theirs} if offset < 20 else {own, theirs}

    wanted = {(lane, *place) for place in [*rows, (3, 102)] for lane in lanes_of(*place)}
    assert set(placed) == wanted | {(0, 0, 100), (0, 3, 101)}
