"""The judge's vnode against Spark's own, on every type of key."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from schemas.position import Key
from schemas.table import declare
from schemas.types import ColumnType
from streaming.verify.records.keys import VnodeOf
from tests.kit.values import KEY_TYPES, values_of

VNODE_COUNT = 32_768  # the most there can be, so that agreement is least likely by chance
KEYS_OF_A_TYPE = 200


@pytest.mark.parametrize("kind", KEY_TYPES, ids=str)
def test_a_vnode_is_what_spark_computes(kind: ColumnType, spark: SparkSession) -> None:
    names = ["k0", "k1"]
    table = declare(
        {
            "name": "t",
            "columns": dict.fromkeys(names, str(kind)),
            "primary_key": names,
            "distribution_key": ["k1", "k0"],
            "vnode_count": VNODE_COUNT,
        }
    )

    @given(
        st.lists(
            st.tuples(values_of(kind), values_of(kind)), min_size=KEYS_OF_A_TYPE, max_size=KEYS_OF_A_TYPE
        )
    )
    @settings(max_examples=2, suppress_health_check=list(HealthCheck))
    def agree(keys: list[Key]) -> None:
        arrays = [pa.array([key[index] for key in keys], kind.arrow) for index in range(2)]
        frame = spark.createDataFrame(pa.table(arrays, names=names))
        vnode = sf.pmod(sf.xxhash64("k1", "k0"), sf.lit(VNODE_COUNT)).alias("vnode")
        assert [VnodeOf(table)(key) for key in keys] == [row.vnode for row in frame.select(vnode).collect()]

    agree()
