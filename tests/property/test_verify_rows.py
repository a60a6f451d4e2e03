"""Rows as bytes: cutting, joining and splitting, for rows of every type."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InputError
from schemas.records import Change, Op, Row
from schemas.table import Column
from streaming.verify.records.rows import RowBytes, compose
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.values import column_lists, rows_of

Drawn = tuple[tuple[Column, ...], Row, Row]


@st.composite
def two_rows(draw: st.DrawFn) -> Drawn:
    columns = draw(column_lists())
    return columns, draw(rows_of(columns)), draw(rows_of(columns))


@given(two_rows())
def test_a_row_is_cut_into_its_columns(drawn: Drawn) -> None:
    columns, row, _ = drawn
    cells = [KeyCodec([column]).encode((value,)) for column, value in zip(columns, row, strict=True)]
    assert RowBytes(columns).cells(KeyCodec(columns).encode(row)) == cells


@given(two_rows(), st.sampled_from(Op))
def test_a_change_is_composed_and_split_as_the_codec_writes_it(drawn: Drawn, op: Op) -> None:
    columns, one, other = drawn
    rows, codec = RowBytes(columns), KeyCodec(columns)
    before = None if op is Op.INSERT else codec.encode(one)
    after = None if op is Op.DELETE else codec.encode(other)
    value = ChangeCodec(columns).encode(
        Change(op, None if before is None else one, None if after is None else other)
    )
    assert compose(before, after) == value
    for present in (None, before, codec.encode(other)):
        assert rows.split(value, present) == (before, after)


@given(two_rows(), st.data())
def test_bytes_that_are_no_row_are_refused(drawn: Drawn, data: st.DataObject) -> None:
    columns, row, _ = drawn
    encoded = KeyCodec(columns).encode(row)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for broken in (encoded[:cut], encoded + b"\x00"):
        with pytest.raises(InputError):
            RowBytes(columns).cells(broken)
