"""Refusals of the columnar encoder, and bytes worked out by hand from the Avro specification."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from schemas.avro.columnar import encode_changes, encode_inserts, encode_keys
from schemas.errors import Code, InputError
from schemas.records import Change, Op
from schemas.table import Column
from schemas.types import ColumnType
from tests.kit.avro_codec import ChangeCodec

ID = Column("id", ColumnType.parse("bigint"), nullable=False)
NOTE = Column("note", ColumnType.parse("string"), nullable=True)
ONE_ID = pa.array([1], pa.int64())


def test_bytes_worked_out_by_hand() -> None:
    ids, notes = pa.array([1, -65], pa.int64()), pa.array(["né", None])
    assert encode_keys([ID], [ids]).to_pylist() == [b"\x02", b"\x81\x01"]
    assert encode_inserts([ID, NOTE], [ids, notes]).to_pylist() == [
        b"\x00\x00\x02" + b"\x02" + b"\x02\x06n\xc3\xa9",
        b"\x00\x00\x02" + b"\x81\x01" + b"\x00",
    ]
    ops = pa.array([Op.DELETE, Op.UPDATE], pa.int8())
    assert encode_changes([ID, NOTE], ops, [ids, notes], [ids, notes]).to_pylist() == [
        b"\x04\x02" + b"\x02" + b"\x02\x06n\xc3\xa9" + b"\x00",
        b"\x02\x02" + b"\x81\x01" + b"\x00" + b"\x02" + b"\x81\x01" + b"\x00",
    ]


def test_a_large_batch_of_mixed_lengths_is_the_bytes_of_the_codec() -> None:
    length = 20_000
    rng = np.random.default_rng(7)
    columns = [ID, NOTE, *(Column(str(kind), kind, nullable=True) for kind in map(ColumnType.parse, _WIDE))]
    ids = rng.integers(-(2**63), 2**63, length, dtype=np.int64) >> rng.integers(0, 64, length)
    arrays = [
        pa.array(ids),
        pa.array(["x" * int(size) for size in rng.integers(0, 200, length)]),
        pa.array([Decimal(int(value)).scaleb(-2) for value in ids], pa.decimal128(38, 2)),
        pa.array(
            [dt.datetime.fromtimestamp(int(value) % 10**9, dt.UTC) for value in ids], columns[3].type.arrow
        ),
    ]
    codec = ChangeCodec(columns)
    rows = zip(*(array.to_pylist() for array in arrays), strict=True)
    assert encode_inserts(columns, arrays).to_pylist() == [
        codec.encode(Change(Op.INSERT, None, row)) for row in rows
    ]


_WIDE = ("decimal(38,2)", "timestamp")


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1], pa.int32()),
        pa.chunked_array([ONE_ID]),
        pa.array([None]),
        ONE_ID.dictionary_encode(),
        [1],
    ],
    ids=["int32", "chunked", "null", "dictionary", "list"],
)
def test_an_array_of_another_type_is_refused_by_name(array: object) -> None:
    with pytest.raises(TypeError, match="column id is"):
        encode_keys([ID], [array])


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("string", pa.large_string()),
        ("binary", pa.large_binary()),
        ("timestamp", pa.timestamp("us")),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("date", pa.date64()),
        ("decimal(18,2)", pa.decimal128(18, 3)),
        ("decimal(18,2)", pa.decimal256(18, 2)),
    ],
)
def test_a_close_relative_of_a_type_is_refused(kind: str, type_: pa.DataType) -> None:
    column = Column("c", ColumnType.parse(kind), nullable=True)
    with pytest.raises(TypeError, match="column c is"):
        encode_inserts([column], [pa.nulls(1, type_)])


def test_a_null_in_the_key_names_the_column() -> None:
    region = Column("region", ColumnType.parse("string"), nullable=False)
    with pytest.raises(InputError, match="column region") as caught:
        encode_keys([ID, region], [pa.array([1, 2]), pa.array(["EU", None])])
    assert caught.value.code is Code.PK_NULL


def test_a_null_outside_of_the_slice_does_not_matter() -> None:
    assert encode_keys([ID], [pa.array([None, 1, None], pa.int64()).slice(1, 1)]).to_pylist() == [b"\x02"]


def test_arrays_of_different_length_or_number_are_refused() -> None:
    with pytest.raises(ValueError, match="column note has 2 rows, not 1"):
        encode_inserts([ID, NOTE], [ONE_ID, pa.array(["a", "b"])])
    with pytest.raises(ValueError, match="shorter"):
        encode_inserts([ID, NOTE], [ONE_ID])


@pytest.mark.parametrize("op", [3, -1, None])
def test_an_op_that_does_not_exist_is_refused(op: int | None) -> None:
    with pytest.raises(ValueError, match="an op is"):
        encode_changes([ID], pa.array([op], pa.int8()), [ONE_ID], [ONE_ID])


def test_ops_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match="not int8"):
        encode_changes([ID], pa.array([0], pa.int32()), [ONE_ID], [ONE_ID])
