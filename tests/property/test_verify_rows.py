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
from streaming.reading.records.forms import CHANGE_FORM
from streaming.reading.values.avro_bytes import RowCodec
from streaming.reading.values.invalid import InvalidRecordError
from streaming.verify.records.canonical import CanonicalReader
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


NUMBERS = declare(
    {"name": "t", "columns": {"id": "int", "d": "decimal(9,2)", "f": "float"}, "primary_key": ["id"]}
)
ID, CENTS, REAL = b"\x02", b"\x02\x02\x05", b"\x02\x00\x00\x80\x3f"


@pytest.mark.parametrize(
    "row",
    [
        ID + CENTS + REAL,
        b"\x82\x00" + CENTS + REAL,
        ID + b"\x82\x00\x02\x05" + REAL,
        ID + b"\x02\x82\x80\x00\x05" + REAL,
        ID + b"\x02\x04\x00\x05" + REAL,
    ],
    ids=["shortest", "long number", "long branch", "long length", "long decimal"],
)
def test_a_row_has_one_canonical_form(row: bytes) -> None:
    reader = CanonicalReader(CHANGE_FORM, NUMBERS.columns, NUMBERS.key_columns)
    for value in (b"\x00\x00\x02" + row, b"\x02\x02" + row + b"\x02" + row, b"\x04\x02" + row + b"\x00"):
        change = reader.read(ID, value).change
        assert change is not None
        assert {change.before, change.after} <= {None, ID + CENTS + REAL}


def test_a_nan_has_the_bits_that_are_written() -> None:
    row, codec = ID + CENTS + b"\x02\x01\x00\x80\x7f", RowCodec(NUMBERS.columns)
    reader = CanonicalReader(CHANGE_FORM, NUMBERS.columns, NUMBERS.key_columns)
    change = reader.read(ID, b"\x00\x00\x02" + row).change
    assert change is not None
    assert change.after == codec.row_bytes(codec.row(row))


@given(one_row())
def test_the_rows_of_a_change_are_what_is_written_of_them(drawn: Drawn) -> None:
    columns, row = drawn
    value, codec = b"\x02\x02" + KeyCodec(columns).encode(row), RowCodec(columns)
    value += b"\x02" + value[2:]
    longer = [value[:at] + bytes([byte | 0x80, 0]) + value[at + 1 :] for at, byte in enumerate(value)]
    for each in (value, *longer):
        try:
            change, rows = codec.change(each)
        except InvalidRecordError:
            assert each != value
            continue
        assert rows in (None, tuple(map(codec.row_bytes, filter(None, (change.before, change.after)))))


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
