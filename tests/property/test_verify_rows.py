"""Rows in canonical form are what the codec of the contract writes, and bytes of no row are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Row
from schemas.table import Column
from streaming.reading.values.avro_bytes import RowCodec
from streaming.reading.values.invalid import InvalidRecordError
from tests.kit.avro_codec import KeyCodec
from tests.kit.values import column_lists, rows_of

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
