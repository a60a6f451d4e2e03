"""The columnar encoder gives fastavro's bytes, whatever the types, nulls, slices and garbage behind nulls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro.columnar import encode_changes, encode_inserts, encode_keys
from schemas.records import Change, Op, Row
from schemas.table import Column
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.values import column_lists, key_column_lists, values_of


def with_nulls(array: pa.Array, nulls: Sequence[bool]) -> pa.Array:
    """Null where `nulls` says so, with the values still in the buffers behind."""
    bitmap = np.packbits(~np.array(nulls, np.bool_), bitorder="little")
    buffers = [pa.py_buffer(bitmap), *array.buffers()[1:]]
    return pa.Array.from_buffers(array.type, len(array), buffers)


@dataclass(frozen=True)
class Batch:
    """Rows twice, as columns (slices of longer arrays) and as tuples."""

    arrays: list[pa.Array]
    rows: list[Row]


@st.composite
def batches(draw: st.DrawFn, columns: Sequence[Column], length: int) -> Batch:
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 3))
    total = before + length + after
    arrays = []
    for column in columns:
        values = draw(st.lists(values_of(column.type), min_size=total, max_size=total))
        array = pa.array(values, column.type.arrow)
        if column.nullable:
            array = with_nulls(array, draw(st.lists(st.booleans(), min_size=total, max_size=total)))
        arrays.append(array.slice(before, length))
    rows = list(zip(*(array.to_pylist() for array in arrays), strict=True))
    return Batch(arrays, rows)


def batches_with_columns(
    columns: st.SearchStrategy[tuple[Column, ...]],
) -> st.SearchStrategy[tuple[tuple[Column, ...], Batch]]:
    lengths = st.integers(0, 12)
    return st.tuples(columns, lengths).flatmap(lambda drawn: st.tuples(st.just(drawn[0]), batches(*drawn)))


def assert_plain(encoded: pa.BinaryArray) -> None:
    """Check all that a caller relies on that hands the buffers on by pointer."""
    assert isinstance(encoded, pa.BinaryArray)
    assert encoded.null_count == 0
    assert encoded.offset == 0
    encoded.validate(full=True)
    if len(encoded):
        offsets = np.frombuffer(encoded.buffers()[1], np.int32, len(encoded) + 1)
        assert offsets[0] == 0
        assert offsets[-1] <= encoded.buffers()[2].size


def assert_same(encoded: pa.BinaryArray, twin: Callable[[int], bytes], length: int) -> None:
    assert_plain(encoded)
    assert encoded.to_pylist() == [twin(index) for index in range(length)]


@given(batches_with_columns(column_lists()))
def test_inserts_are_the_bytes_of_the_codec(drawn: tuple[tuple[Column, ...], Batch]) -> None:
    columns, batch = drawn
    codec = ChangeCodec(columns)
    encoded = encode_inserts(columns, batch.arrays)
    assert_same(encoded, lambda i: codec.encode(Change(Op.INSERT, None, batch.rows[i])), len(batch.rows))


@given(batches_with_columns(key_column_lists()))
def test_keys_are_the_bytes_of_the_codec(drawn: tuple[tuple[Column, ...], Batch]) -> None:
    columns, batch = drawn
    codec = KeyCodec(columns)
    assert_same(encode_keys(columns, batch.arrays), lambda i: codec.encode(batch.rows[i]), len(batch.rows))


@given(st.data())
def test_changes_of_mixed_ops_are_the_bytes_of_the_codec(data: st.DataObject) -> None:
    columns = data.draw(column_lists(max_size=3))
    ops = data.draw(st.lists(st.sampled_from(Op), max_size=12))
    before, after = (data.draw(batches(columns, len(ops))) for _ in range(2))
    # The half that an op does not have may hold anything, nulls in the primary key too.
    befores = [_null_where(array, ops, Op.INSERT) for array in before.arrays]
    afters = [_null_where(array, ops, Op.DELETE) for array in after.arrays]

    codec = ChangeCodec(columns)
    encoded = encode_changes(columns, pa.array(ops, pa.int8()), befores, afters)

    def twin(index: int) -> bytes:
        op = ops[index]
        old = None if op is Op.INSERT else before.rows[index]
        return codec.encode(Change(op, old, None if op is Op.DELETE else after.rows[index]))

    assert_same(encoded, twin, len(ops))


def _null_where(array: pa.Array, ops: list[Op], op: Op) -> pa.Array:
    chosen = [value if at is not op else None for value, at in zip(array.to_pylist(), ops, strict=True)]
    return pa.array(chosen, array.type)
