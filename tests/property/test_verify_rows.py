"""The checker's own readers: rows have the bytes of the codec, and vnodes are those of Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from schemas.position import Key
from schemas.records import Row
from schemas.table import Column, declare
from schemas.types import ColumnType
from streaming.reading.values.avro_bytes import RowCodec
from streaming.reading.values.invalid import InvalidRecordError
from streaming.verify.records.keys import VnodeOf
from tests.kit.avro_codec import KeyCodec
from tests.kit.values import KEY_TYPES, column_lists, rows_of, values_of

Drawn = tuple[tuple[Column, ...], Row]


@st.composite
def one_row(draw: st.DrawFn) -> Drawn:
    columns = draw(column_lists())
    return columns, draw(rows_of(columns))


@given(one_row())
def test_a_row_has_the_bytes_that_the_codec_writes(drawn: Drawn) -> None:
    columns, row = drawn
    encoded, codec = KeyCodec(columns).encode(row), RowCodec(columns)
    assert codec.row_bytes(row) == encoded
    assert codec.row_bytes(codec.row(encoded)) == encoded


@given(one_row(), st.data())
def test_bytes_that_are_no_row_are_refused(drawn: Drawn, data: st.DataObject) -> None:
    columns, row = drawn
    encoded = KeyCodec(columns).encode(row)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for broken in (encoded[:cut], encoded + b"\x00"):
        with pytest.raises(InvalidRecordError):
            RowCodec(columns).row(broken)


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
