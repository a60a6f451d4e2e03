"""Spark sends a salt to the partition that it is the salt of."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.source.lane_keys import lane_keys


@pytest.mark.parametrize("lanes", [1, 2, 3, 64])
def test_a_lane_key_goes_to_its_lane(spark: SparkSession, lanes: int) -> None:
    salts = lane_keys(lanes)
    rows = spark.createDataFrame([(salt,) for salt in salts], "salt int")
    placed = rows.repartition(lanes, "salt").select("salt", F.spark_partition_id()).collect()
    assert {row[0]: row[1] for row in placed} == {salt: lane for lane, salt in enumerate(salts)}
